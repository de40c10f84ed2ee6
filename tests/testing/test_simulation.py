"""Random jobs under random faults (`make simulate` for many), the engine broken in known ways, and
users' pipelines."""

from __future__ import annotations

import json
import os
from copy import copy
from dataclasses import fields, replace
from typing import Any

import pytest
from strom import (
    ConfigurationError,
    KeyedProcessFunction,
    Row,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    sum_,
)
from strom.api.connectors.base import OutputClaim, WriterContext
from strom.checkpoint.epochs import Tenant
from strom.checkpoint.handles import InFlightHandle, SubtaskSnapshot
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.storage import CheckpointError, MemoryStorage
from strom.core.batch import ObjectBatch
from strom.core.clock import VirtualClock
from strom.core.errors import (
    CorruptCheckpointError,
    FencedError,
    OutputRefusedError,
    RetryableCommitError,
)
from strom.core.ids import TaskId, VertexId
from strom.testing import Difference, Faults, SimulationError, SimulationFailed, simulate
from strom.testing.equivalence import NothingProven
from strom.testing.scripted import ScriptedSource
from strom.testing.simulation.__main__ import main
from strom.testing.simulation.case import Case, parse
from strom.testing.simulation.draws import draw, drawn
from strom.testing.simulation.invariants import Violation
from strom.testing.simulation.mutations import KNOWN, MUTATIONS, catch
from strom.testing.simulation.random_jobs import check_at_least, check_failed, run_random
from strom.testing.simulation.regressions import REGRESSIONS
from strom.testing.simulation.running import Ran, check_left
from strom.testing.simulation.running_seeds import failure_of, run_seeds, undisturbed
from strom.testing.simulation.sinks import (
    CLOSED,
    LONGEST_MS,
    OUTAGES,
    Outside,
    StagedSink,
    entered,
)
from strom.testing.simulation.storage import Failing, FilesInMemory
from strom.testing.simulation.topologies import TOPOLOGIES

pytest_plugins = ["pytester"]

FIRST = int(os.environ.get("STROM_SEED", "0"))


def test_random_jobs_under_random_faults() -> None:
    """Forty, and as many of two hundred as there is time for."""
    totals = run_seeds(FIRST, 40)
    totals.add(run_seeds(FIRST + 40, 160, time_s=2))
    assert not totals.violations, "\n".join(f"{case}\n    {why}" for case, why in totals.violations)
    print(f"{totals.seeds} seeds, {totals.seeds / totals.cpu_seconds:.1f} a second of CPU")
    assert totals.crashes > totals.seeds
    assert totals.midway > totals.seeds // 3
    assert totals.checkpoints > totals.seeds
    assert totals.cut_off > 0
    assert totals.partitions > 0
    assert totals.failed_commits > 0


def test_jobs_that_rescale_themselves() -> None:
    """Also where tasks and coordinators die, and somebody else asks for a rescale."""
    with undisturbed():
        calm = Case(job="timers", own=3, mode="unaligned", interval=4)
        ran = [run_random(replace(calm, seed=seed)) for seed in range(3)]
        disturbed = replace(calm, own=4, live=1, coordinators=1, crashes=1)
        more = [run_random(replace(disturbed, seed=seed)) for seed in range(6)]
    assert sum(one.rescaled_itself for one in ran) > 0
    assert sum(one.rescaled_itself for one in more) > 0
    assert sum(one.coordinators for one in more) > 0


def test_jobs_that_rescale_themselves_and_find_too_little_room() -> None:
    with undisturbed():
        case = Case(parallelism=(3,), batch=1, interval=3, own=3, looks=2, short=2)
        ran = [
            run_random(replace(case, job=job, seed=seed, crashes=seed % 2))
            for job in ("two_stages", "pairs", "joined")
            for seed in range(10)
        ]
    for name in ("rescaled_itself", "shrunk", "grown"):
        assert sum(getattr(one, name) for one in ran) > 0, name


def test_what_does_not_change_stands_still_and_goes_on() -> None:
    """And begins again where a task or the coordinator dies meanwhile."""
    case = Case(job="stages", interval=4, window=150, live=3, figures=False)
    with undisturbed():
        calm = [run_random(replace(case, seed=seed, batch=1 + seed % 3)) for seed in range(8)]
        amid = [run_random(replace(case, seed=seed, amid=2)) for seed in range(16)]
    assert sum(one.rescaled_holding for one in calm) > 1
    assert sum(one.coordinators for one in amid) > 0
    assert sum(one.crashed for one in amid) > 0


@pytest.mark.parametrize("job", TOPOLOGIES)
def test_each_job_undisturbed_and_disturbed(job: str) -> None:
    with undisturbed():
        assert run_random(Case(job=job, storage="memory")).crashed == 0
        ran = run_random(
            Case(seed=3, job=job, crashes=2, coordinators=1, parallelism=(2, 3), mode="unaligned")
        )
    assert ran.crashed + ran.coordinators > 0


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_engine_broken_in_a_known_way_is_caught(name: str) -> None:
    """By a case that is known to; schedules change with the engine, so others are tried then."""
    caught = catch(name, [parse(KNOWN[name])]) or catch(name, map(drawn, range(1000)))
    assert caught is not None
    with undisturbed():
        assert failure_of(caught.case) is None  # mended again


def test_what_failed_once() -> None:
    with undisturbed():
        assert {name: failure_of(parse(case)) for name, case in REGRESSIONS.items()} == (
            dict.fromkeys(REGRESSIONS)
        )


def fingerprint(case: Case) -> Any:
    ran = run_random(case)
    return ran.steps, ran.crashed, ran.completed, ran.failed_calls, repr(ran.output)


def test_a_case_repeats_its_run_and_is_its_text() -> None:
    for seed in (2, 5, 9):
        case = drawn(seed)
        assert fingerprint(case) == fingerprint(parse(str(case)))
    for seed in range(300):
        assert parse(str(drawn(seed))) == drawn(seed)


def test_all_that_can_be_drawn_is_drawn() -> None:
    cases = [drawn(seed) for seed in range(2000)]
    for one in fields(Case):
        if one.name not in ("records", "choices"):
            assert len({getattr(case, one.name) for case in cases}) > 1, one.name
    assert {case.job for case in cases} == set(TOPOLOGIES)
    assert not any(c.mode == "at_least_once" and not TOPOLOGIES[c.job].at_least for c in cases)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("seed=1 crash=2", "'crash=2' is none of"),
        ("seed=x", "seed=x"),
        ("mode=loose", "one of aligned"),
        ("parallelism=0,2", "parallelism is at least 1"),
        ("records=-4", "records is at least 0"),
    ],
)
def test_a_replay_that_is_none_says_why(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse(text)


def test_the_command(capsys: Any) -> None:
    assert main(["--seeds", "3", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["seeds"] == 3
    assert said["violations"] == 0
    assert said["seeds_per_second"] > 0
    assert main(["--replay", str(drawn(1))]) == 0
    assert "nothing went wrong" in capsys.readouterr().out


# --- what is looked at ------------------------------------------------------------------------


def test_at_least_once_is_neither_less_nor_anything_else() -> None:
    want = [("out", (1, 2, 5)), ("out", (1, 3, 7))]
    check_at_least("way", want, [*want, ("out", (1, 2, 9)), ("out", (1, 3, 1))], "numbers")
    check_at_least("way", want, [*want, want[0]], "set")
    for found in ([want[0]], [want[0], ("out", (1, 3, 6))], [*want, ("out", (1, 4, 9))]):
        with pytest.raises(Difference):
            check_at_least("way", want, found, "numbers")
    with pytest.raises(Difference):
        check_at_least("way", want, [want[0]], "set")


def test_files_that_are_left_over_are_found() -> None:
    storage = FilesInMemory("job")
    storage.write_file(1, "part", b"x")
    with pytest.raises(Difference, match="left over"):
        check_left("way", storage, more=False)
    storage.delete(1)
    check_left("way", storage, more=False)
    storage.write_file(1, "part", b"x", shared=True)
    with pytest.raises(Difference, match="left over"):
        check_left("way", storage, more=False)


def test_of_what_counts_nothing_is_missing_whatever_else_is_left() -> None:
    storage = FilesInMemory("job")
    epoch = storage.begin_epoch(Tenant("job", "name", "token", None, 0, 0, "here"))
    handle = storage.write_file(1, "part", b"x")
    task = SubtaskSnapshot(TaskId(VertexId("v"), 0), in_flight=InFlightHandle(handle, ()))
    manifest = Manifest("job", "name", 1, 0, (), (task,), epoch=epoch)
    storage.publish(manifest)
    check_left("way", storage, more=True)
    storage.remove_files(1, [handle])
    with pytest.raises(CorruptCheckpointError, match="missing"):
        check_left("way", storage, more=True)
    storage.settle(epoch, 0)
    check_left("way", storage, more=True)


def test_a_storage_that_fails_does_so_now_and_then() -> None:
    storage = Failing(MemoryStorage("job"), 7, 200)
    failed = 0
    for n in range(200):
        try:
            storage.write_file(n, "part", b"x")
        except CheckpointError:
            failed += 1
    assert failed == storage.failed
    assert 10 < failed < 80
    storage.stop()
    storage.write_file(500, "part", b"x")


def test_a_copy_of_a_storage_is_that_of_another_process() -> None:
    """Coordinators of two epochs write files of one name beside each other, and what one withdraws
    leaves the other's."""
    first = FilesInMemory("job")
    tenant = Tenant("job", "name", "token", None, 0, 0, "here")
    assert first.begin_epoch(tenant) == 1
    second = copy(Failing(first, 0, 0))
    assert second.begin_epoch(tenant) == 2
    assert first.has_epoch(2)
    handles = [
        storage.write_file(1, "part", data) for storage, data in ((first, b"1"), (second, b"2"))
    ]
    assert [first.read_file(1, handle).to_pybytes() for handle in handles] == [b"1", b"2"]
    manifest = Manifest("job", "name", 1, 0, (), ())
    first.publish(manifest)
    second.withdraw(manifest)
    assert first.published == ()
    assert len(first.files) == 2


def test_what_is_outside_is_away_for_a_time_and_belongs_to_one() -> None:
    outside, seen = Outside(seed=1, per_thousand=1000), []
    tried = []
    for now_ms in range(200):
        try:
            outside.commit(now_ms, [("name", now_ms)], seen.extend)
        except (RetryableCommitError, ValueError) as error:
            tried.append((now_ms, str(error)))
    assert {why for _, why in tried} == {CLOSED}
    assert len(tried) == outside.failed
    assert OUTAGES <= len(tried) <= OUTAGES * (LONGEST_MS + 1)
    assert {n for _, n in seen} >= set(range(200)) - {n for n, _ in tried}

    def claim(token: str, epoch: int, origin: Any = None) -> OutputClaim:
        return OutputClaim("job", "name", "sink", "op", token, "here", origin, epoch)

    with entered(outside):
        sink = StagedSink()
        old, new = (writer_context(token) for token in ("old", "new"))
        sink.take_over(claim("old", 1))
        writers = [sink.create_writer(context) for context in (old, new)]
        for writer in writers:
            writer.write(ObjectBatch([1, 2]))
        former, latter = (writer.prepare_commit(2) for writer in writers)
        sink.take_over(claim("new", 2))
        with pytest.raises(OutputRefusedError):
            sink.take_over(claim("old", 1))
        with pytest.raises(FencedError, match="any more by"):
            writers[0].commit(former)
        writers[1].commit(latter)
        writers[1].commit(latter)  # once more, as after a restore
        assert outside.output() == {"op": [[1, 2]]}
        with pytest.raises(AssertionError, match="was removed"):
            writers[1].commit(former)  # by the first commit
        sink.take_over(claim("later", 3, ("job", 1)))
        assert outside.output() == {}  # taken back


def writer_context(token: str) -> WriterContext:
    return WriterContext(
        "sink", "op", "job", 0, 1, 0, VirtualClock(), lambda *_: None, True, None, token
    )


def test_a_job_that_was_to_fail_gave_nothing_wrong() -> None:
    expected = [("out", 1), ("out", 1), ("out", 2)]
    check_failed(Ran(expected[:2], failed="why"), expected)
    with pytest.raises(Difference, match="too much"):
        check_failed(Ran([*expected[:2], ("out", 1)], failed="why"), expected)
    with pytest.raises(Violation, match="and the job finished"):
        check_failed(Ran(expected), expected)


# --- users' pipelines -------------------------------------------------------------------------


class Forgets(KeyedProcessFunction):
    """What it knows is in no checkpoint."""

    def open(self, runtime_context: Any) -> None:
        self.seen: dict[Any, int] = {}

    def process_element(self, value: Any, ctx: Any) -> Any:
        key = ctx.get_current_key()
        self.seen[key] = self.seen.get(key, 0) + value
        yield key, self.seen[key]


def forgetful(env: Any) -> Any:
    return env.from_collection(list(range(60))).key_by(lambda n: n % 5).process(Forgets())


def sums(env: Any) -> Any:
    rows = [Row(k=n % 5, v=n, ts=10 * n) for n in range(60)]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("ts")
    stream = env.from_collection(rows).assign_timestamps_and_watermarks(strategy)
    windows = stream.key_by("k").window(TumblingEventTimeWindows.of(100))
    return {"sums": windows.aggregate(total=sum_("v"))}


def test_a_pipeline_of_a_user() -> None:
    totals = simulate(sums, seeds=6)
    assert totals.seeds == 6
    assert totals.midway > 0
    seen: list[list[Any]] = []
    simulate(sums, seeds=2, check=seen.append, faults=Faults(crashes=1, rescales=0))
    assert all(len(records) == 30 and records[0][0] == "sums" for records in seen)


def test_one_that_fails_is_shown_short_and_replays() -> None:
    with pytest.raises(SimulationFailed, match="replay with simulate") as failed:
        simulate(forgetful, seeds=50)
    case = failed.value.case
    drawn_case = parse(str(failed.value).partition("drawn as: ")[2])
    assert case.crashes + case.coordinators + case.after < 3
    assert len(str(case)) < len(str(drawn_case))
    with pytest.raises(SimulationFailed) as again:
        simulate(forgetful, replay=str(case), shrink=False)
    assert again.value.why == failed.value.why
    calm = replace(case, crashes=0, coordinators=0, after=0, parallelism=(2,))
    simulate(forgetful, replay=str(calm))


def test_a_check_of_the_user_fails_a_seed() -> None:
    def check(records: list[Any]) -> None:
        assert len(records) < 30, "too many"

    with pytest.raises(SimulationFailed, match="too many"):
        simulate(sums, seeds=1, check=check, shrink=False)


def test_a_check_of_all_records_is_not_shown_with_fewer() -> None:
    """Which it would fail without any fault."""

    def check(records: list[Any]) -> None:
        assert sorted(v for _, v in records)[-1] == sum(range(4, 60, 5)), records

    with pytest.raises(SimulationFailed) as failed:
        simulate(forgetful, seeds=50, check=check)
    case = failed.value.case
    assert case.records == 0, case
    assert case.crashes + case.after + case.coordinators + case.failing > 0, case


def test_what_cannot_be_simulated_says_so() -> None:
    class Endless(ScriptedSource):
        bounded = False  # type: ignore[assignment]

    def endless(env: Any) -> Any:
        return env.from_source(Endless([[1]]), WatermarkStrategy.no_watermarks(), "clicks")

    def raising(env: Any) -> Any:
        return env.from_collection([1, 0]).map(lambda n: 1 // n)

    def short(env: Any) -> Any:
        return env.from_collection([1])

    with pytest.raises(ConfigurationError, match="check="):
        simulate(sums, faults=Faults(modes=("at_least_once",)))
    with pytest.raises(ConfigurationError, match="crashes is at least 0"):
        Faults(crashes=-1)
    with pytest.raises(ConfigurationError, match="modes are some of"):
        Faults(modes=("loose",))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="it returned None"):
        simulate(lambda env: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigurationError, match="max_parallelism"):
        simulate(sums, replay="seed=1 parallelism=200")
    with pytest.raises(ConfigurationError, match="'clicks' never ends"):
        simulate(endless)
    with pytest.raises(SimulationError, match=r"undisturbed, the job failed.*ZeroDivisionError"):
        simulate(raising, seeds=1)
    once = Faults(crashes=1, coordinators=0, after=0)
    calm = [seed for seed in range(20) if not draw(seed, once).crashes]
    with pytest.raises(NothingProven, match="more records"):
        simulate(short, seeds=calm[:2], faults=once)


def test_the_fixture(pytester: Any) -> None:
    pytester.makeconftest('pytest_plugins = "strom.testing.pytest_plugin"')
    pytester.makepyfile(
        """
        def job(env):
            return env.from_collection(list(range(40))).key_by(lambda n: n % 3).map(str)

        def test_one(simulate):
            assert simulate(job).seeds == 4
        """
    )
    result = pytester.runpytest_inprocess("--simulate-seeds", "4", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)

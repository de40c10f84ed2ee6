"""Savepoints of jobs that run, fail and are stopped: what comes after one and what came before are
the whole.

Replay a failing seed of the simulator with

    STROM_SEED=n python -m pytest tests/e2e/test_savepoints.py -k seeds
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import strom
from amounts import seeds
from chaos_kit import config, until, within
from held_source import HeldSource
from strom import (
    KeyedProcessFunction,
    Row,
    RuntimeContext,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
    count,
    sum_,
)
from strom.checkpoint.folder_storage import FolderStorage, open_folder
from strom.core.errors import CheckpointError
from strom.core.job_status import JobStatus
from strom.engine.exchange.pickling import opened
from strom.engine.hosts.claimed import Claimed
from strom.engine.hosts.published import PublishedValues
from strom.engine.hosts.simulator import Simulation, SimulationPlan, SimulationResult
from strom.testing.equivalence import Ways, checkpointed, compare, run_local
from strom.testing.probes import CollectProbe, seen_once
from strom.testing.scripted import ScriptedSource

SEEDS = len(seeds(60))

LANES = [
    [Row("k", "v", "ts")((3 * i + lane) % 5, i, 10 * i + lane) for i in range(40)]
    for lane in range(3)
]


class Running(KeyedProcessFunction):
    """The sum so far of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.total.update((self.total.value() or 0) + value.total)
        yield (value.k, value.window_start, value.n, self.total.value())


def build(env: Any) -> Any:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(0).with_timestamp_assigner("ts")
    stream = env.from_source(ScriptedSource(LANES), strategy).uid("lanes")
    windows = stream.key_by("k").window(TumblingEventTimeWindows.of(50))
    results = windows.aggregate(n=count(), total=sum_("v")).uid("windows")
    return results.key_by(lambda r: r.k % 2).process(Running()).uid("running").map(_least)


def _least(value: Any) -> Any:
    """The running sums depend on the order of windows of several keys, their number does not."""
    return value[:3]


@pytest.fixture(scope="module")
def reference() -> list[Any]:
    return run_local(build, strom.JobConfig())


def simulate(
    seed: int, folder: str, parallelism: int, **plan: Any
) -> tuple[CollectProbe, SimulationResult]:
    probe = CollectProbe(build)
    graph = probe.graph(checkpointed(Ways(batch_size=2 + seed % 4), parallelism))
    return probe, Simulation(
        graph, SimulationPlan(seed=seed, savepoint_directory=folder, **plan)
    ).run()


def continued(path: str, seed: int) -> SimulationResult:
    """Another job, from the savepoint, at another parallelism and amid failures."""
    probe = CollectProbe(build)
    started = replace(checkpointed(Ways(), 1 + seed % 4), restore_from=path)
    return Simulation(probe.graph(started), SimulationPlan(seed=seed, crashes=seed % 2)).run()


def check_seed(seed: int, folder: str, reference: list[Any]) -> SimulationResult:
    probe, result = simulate(
        seed,
        folder,
        2,
        crashes=seed % 3,
        coordinator_crashes=int(seed % 5 == 0),
        crash_window=400 + 300 * (seed % 5),
        crash_after_checkpoints=4 if seed % 4 == 3 else 0,
        savepoints=2,
        halt_after_checkpoint=1 + seed // 2 % 2 if seed % 2 else None,
    )
    assert result.outcome is not None
    assert result.outcome.status is JobStatus.FINISHED, result.outcome.error
    if result.halted_at is None:
        compare(
            "the output of the job itself", reference, probe.output(seen_once(result.published))
        )
    left = {p.name for p in Path(folder).iterdir()}
    assert left >= {path.rpartition("/")[2] for path in result.savepoints}, "savepoints are gone"
    for path, before in list(result.savepoints.items())[-2:]:
        moved = f"{path}-moved"
        shutil.move(path, moved)
        after = continued(moved, seed)
        assert after.outcome is not None
        assert after.outcome.status is JobStatus.FINISHED, after.outcome.error
        whole = result.published if path == result.halted_at else before
        output = probe.output(seen_once(whole, after.published))
        compare(f"from the savepoint {path}", reference, output)
    return result


def test_savepoints_among_failures_for_many_seeds(reference: list[Any]) -> None:
    only = os.environ.get("STROM_SEED")
    chosen = range(SEEDS) if only is None else range(int(only), int(only) + 1)
    saved = halted = refused = 0
    for seed in chosen:
        with tempfile.TemporaryDirectory(prefix="strom-savepoints-") as folder:
            try:
                result = check_seed(seed, folder, reference)
            except Exception as error:
                raise AssertionError(f"replay with STROM_SEED={seed}: {error}") from error
        saved += len(result.savepoints)
        halted += result.halted_at is not None
        refused += len(result.refused)
    if only is None:
        assert saved > SEEDS // 2, saved
        assert halted > SEEDS // 4, halted
        assert refused > SEEDS // 10, refused


# --- on the local host ----------------------------------------------------------------------

NUMBERS = 3000
RATE = 1500.0


class Job:
    """Numbers by their last digit, counted per key and in windows, while they come in slowly; the
    last `held` of each split, if any are, once the test says so (`let_go`)."""

    def __init__(self, settings: Any, held: int = 500, uids: bool = True) -> None:
        self._latch = threading.Event()
        if not held:
            self._latch.set()
        self.probe = CollectProbe(lambda env: self._build(env, held, uids))
        self.client = strom.api.jobs.host.open_host("local").submit(
            self.probe.graph(settings), "numbers"
        )

    def _build(self, env: Any, held: int, uids: bool) -> Any:
        def named(stream: Any, uid: str) -> Any:
            return stream.uid(uid) if uids else stream

        def numbered(start: int, n: int) -> list[int]:
            return list(range(start, start + n))

        source = HeldSource(numbered, NUMBERS, self._latch, held, RATE)
        times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
            lambda value, _: value
        )
        numbers = named(env.from_source(source, times), "numbers")
        rows = numbers.map(lambda n: Row("k", "n")(n % 10, n))
        windows = rows.key_by("k").window(TumblingEventTimeWindows.of(10**6))
        counts = named(windows.aggregate(n=count()), "windows").map(lambda r: ("window", r.k, r.n))
        singles = named(rows.key_by("k").process(Counting()), "counting")
        return counts.union(singles)

    def started(self) -> Job:
        """It runs, and has read something."""
        until(lambda: self._read() > 100, "records")
        return self

    def let_go(self) -> Job:
        """It may come to its end."""
        self._latch.set()
        return self

    def _read(self) -> int:
        figures = self.client.metrics()["operators"]
        return max((int(one["records_out"]) for one in figures), default=0)

    def output(self) -> list[Any]:
        """Of a job that is over."""
        within(30.0, "the end", self.client.get_job_execution_result)
        sinks = self.probe.sinks.values()
        return self.probe.output({op: list(self.client.published(op)) for op in sinks})


class Counting(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.seen.update((self.seen.value() or 0) + 1)
        yield ("single", value.k, self.seen.value())


EXPECTED = Counter(
    [("single", k, n) for k in range(10) for n in range(1, NUMBERS // 10 + 1)]
    + [("window", k, NUMBERS // 10) for k in range(10)]
)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Any:
    return config(tmp_path / "checkpoints", interval_ms=20, parallelism=2, tolerable=99)


def test_a_savepoint_in_the_middle_changes_nothing_and_is_gone_on_from(
    tmp_path: Path, checkpoints: Any, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(checkpoints).started()
    answer = job.client.trigger_savepoint(str(tmp_path / "saved"))
    path = answer.result(timedelta(seconds=20))
    assert answer.done()
    assert answer.exception() is None
    assert Path(path).parent == tmp_path / "saved"
    assert f"savepoint-{job.client.get_job_id()[:6]}-" in path
    assert job.client.get_job_status() == "RUNNING"
    storage, manifest = open_folder(path, validate=True)
    assert isinstance(storage, FolderStorage)
    assert manifest.savepoint
    # The job goes on as if nothing had been; its retention neither counts nor removes this one.
    assert Counter(job.let_go().output()) == EXPECTED
    assert open_folder(path, validate=True)[1] == manifest
    assert "without a uid" not in caplog.text
    # Another one goes on from it, at another parallelism: what it gives is the rest.
    moved = tmp_path / "somewhere else"
    shutil.move(path, moved)
    second = Job(config(parallelism=3, restore_from=str(moved)), held=0)
    rest = Counter(second.output())
    assert rest <= EXPECTED
    assert {one: n for one, n in rest.items() if one[0] == "window"} == {
        one: 1 for one in EXPECTED if one[0] == "window"
    }
    assert max(one[2] for one in EXPECTED - rest) < max(one[2] for one in rest) == NUMBERS // 10
    assert moved.exists()


def test_a_job_that_is_stopped_and_the_one_that_goes_on_give_the_whole(
    tmp_path: Path, checkpoints: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed: dict[int, dict[Any, Any]] = defaultdict(dict)
    add = PublishedValues.add

    def added(self: PublishedValues, operator: Any, key: str, value: Any) -> None:
        assert key not in keyed[id(self)], "published twice in one job"
        keyed[id(self)][key] = opened(value, "records")
        add(self, operator, key, value)

    monkeypatch.setattr(PublishedValues, "add", added)
    job = Job(replace(checkpoints, savepoint_directory=str(tmp_path / "saved"))).started()
    path = job.client.stop_with_savepoint().result(timedelta(seconds=20))
    assert job.client.get_job_status() == "FINISHED"
    first = Counter(job.output())
    assert first < EXPECTED
    assert not any(one[0] == "window" for one in first), "no window is over"
    second = Counter(Job(config(parallelism=1, restore_from=path), held=0).output())
    assert first + second - (first & second) == EXPECTED
    # What was prepared for the savepoint was published by the job that took it, and by a sink that
    # only gives records to its client, again, under the same keys; nothing else twice.
    before, after = keyed.values()
    again = before.keys() & after.keys()
    assert {key: before[key] for key in again} == {key: after[key] for key in again}
    assert Counter(one for values in (before | after).values() for one in values) == EXPECTED
    assert Counter(one for key in again for one in before[key]) == first & second


def test_a_job_that_is_drained_fires_its_windows_and_its_savepoint_knows_it(
    tmp_path: Path, checkpoints: Any
) -> None:
    job = Job(checkpoints).started()
    answer = job.client.stop_with_savepoint(True, str(tmp_path))
    path = answer.result(timedelta(seconds=20))
    assert job.client.get_job_status() == "FINISHED"
    first = Counter(job.output())
    singles = Counter(one[1] for one in first if one[0] == "single")
    assert 100 < sum(singles.values()) < NUMBERS
    assert first == Counter(
        [("single", k, n) for k in range(10) for n in range(1, singles[k] + 1)]
        + [("window", k, singles[k]) for k in range(10)]
    )
    # The sources kept their positions: the rest is read, and counted from there on.
    second = Counter(Job(config(parallelism=3, restore_from=path), held=0).output())
    found = first + second - (first & second)
    expected = {one for one in EXPECTED if one[0] == "single"}
    assert {one for one in found if one[0] == "single"} == expected


def test_without_checkpoints_there_are_savepoints_all_the_same(tmp_path: Path) -> None:
    job = Job(config(parallelism=2)).started()
    path = job.client.stop_with_savepoint(savepoint_directory=str(tmp_path)).result()
    first = Counter(job.output())
    second = Counter(Job(config(parallelism=3, restore_from=path), held=0).output())
    assert first + second == EXPECTED


@pytest.mark.parametrize("stop", [None, False, True])
def test_a_savepoint_that_fails_is_told_and_the_job_goes_on(
    tmp_path: Path, checkpoints: Any, stop: bool | None
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    checkpoints = replace(
        checkpoints, checkpoint=replace(checkpoints.checkpoint, tolerable_failures=0)
    )
    job = Job(checkpoints).started()
    if stop is None:
        answer = job.client.trigger_savepoint(str(blocked))
    else:
        answer = job.client.stop_with_savepoint(savepoint_directory=str(blocked), drain=stop)
    with pytest.raises(
        CheckpointError, match=rf"job 'equivalence': the savepoint {blocked}/.* failed: "
    ):
        answer.result(timedelta(seconds=20))
    assert isinstance(answer.exception(), CheckpointError)
    if stop is not True:
        assert job.client.metrics()["restarts"] == 0
    assert Counter(job.let_go().output()) == EXPECTED
    # Its sources had ended: it went back to its last checkpoint.
    assert job.client.metrics()["restarts"] == (1 if stop else 0)
    assert blocked.read_text() == "a file"


def test_requests_that_cannot_be_met_are_refused_and_never_hang(
    tmp_path: Path, checkpoints: Any
) -> None:
    job = Job(checkpoints).started()
    with pytest.raises(CheckpointError, match="nobody says where to"):
        job.client.trigger_savepoint().result(timedelta(seconds=20))
    with pytest.raises(CheckpointError, match=r"savepoint_directory 'nope://x/savepoint-"):
        job.client.trigger_savepoint("nope://x").result(timedelta(seconds=20))
    with pytest.raises(strom.ConfigurationError, match="is empty"):
        job.client.trigger_savepoint("")
    job.client.cancel()
    for _ in range(2):
        with pytest.raises(CheckpointError, match="the job is CANCELED"):
            job.client.trigger_savepoint(str(tmp_path)).result(timedelta(seconds=20))
    with pytest.raises(CheckpointError, match="the job is CANCELED"):
        job.client.stop_with_savepoint(savepoint_directory=str(tmp_path)).result(
            timedelta(seconds=20)
        )
    assert not list(tmp_path.glob("savepoint-*"))


def test_state_without_a_uid_is_warned_about_by_name(
    tmp_path: Path, checkpoints: Any, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(checkpoints, uids=False).started()
    job.client.stop_with_savepoint(savepoint_directory=str(tmp_path)).result()
    (line,) = [r.getMessage() for r in caplog.records if "without a uid" in r.getMessage()]
    assert "Source: HeldSource" in line, line
    assert "TumblingEventTimeWindows" in line
    assert "KeyedProcess" in line
    assert "Map" not in line


@pytest.mark.parametrize(("claims", "failures"), [(True, 0), (True, 2), (False, 0)])
def test_a_claimed_savepoint_goes_when_it_is_not_needed_any_more(
    tmp_path: Path,
    checkpoints: Any,
    monkeypatch: pytest.MonkeyPatch,
    claims: bool,
    failures: int,
) -> None:
    """Also if the storage is away when it is to go: then with a later checkpoint that goes."""
    tries: list[Claimed] = []
    remove = Claimed.remove

    def removed(self: Claimed) -> None:
        tries.append(self)
        if len(tries) <= failures:
            raise CheckpointError("the storage is away")
        remove(self)

    monkeypatch.setattr(Claimed, "remove", removed)
    job = Job(checkpoints).started()
    path = job.client.stop_with_savepoint(savepoint_directory=str(tmp_path)).result()
    again = replace(
        checkpoints,
        restore_from=path,
        claim_restored=claims,
        checkpoint=replace(checkpoints.checkpoint, retained=2),
    )
    second = Job(again, held=50).started()
    until(lambda: second.client.metrics()["checkpoints"]["completed"] > 3, "checkpoints")
    if claims:
        until(lambda: not Path(path).exists(), "its removal")
    assert Path(path).exists() != claims
    second.client.cancel()
    assert len(tries) == (failures + 1 if claims else 0)


def test_the_folder_of_a_job_is_its_newest_checkpoint(tmp_path: Path, checkpoints: Any) -> None:
    job = Job(checkpoints).started()
    until(lambda: job.client.metrics()["checkpoints"]["completed"] > 2, "checkpoints")
    job.client.cancel()
    folder = tmp_path / "checkpoints" / job.client.get_job_id()
    newest = max(int(p.name.removeprefix("chk-")) for p in folder.glob("chk-*"))
    second = Job(config(parallelism=3, restore_from=str(folder)), held=0)
    rest = Counter(second.output())
    assert second.client.metrics()["checkpoints"]["restored_from"] <= newest
    assert rest <= EXPECTED
    assert sum(rest.values()) < sum(EXPECTED.values())


def test_what_cannot_be_started_from_is_told(tmp_path: Path, checkpoints: Any) -> None:
    """Nothing there, half of it there, and another max parallelism."""

    def failure(**settings: Any) -> str:
        client = Job(config(**settings), held=0).client
        with pytest.raises(strom.JobFailedError) as raised:
            within(20.0, "the failure", client.get_job_execution_result)
        return str(raised.value)

    job = Job(checkpoints).started()
    path = job.client.stop_with_savepoint(savepoint_directory=str(tmp_path)).result()
    gone = failure(restore_from=str(tmp_path / "gone"))
    assert f"restore_from='{tmp_path}/gone': there is no complete checkpoint or savepoint" in gone
    other = failure(restore_from=path, max_parallelism=64)
    assert "max_parallelism" in other, other
    assert "128" in other
    assert "64" in other
    half = tmp_path / "half"
    shutil.copytree(path, half)
    victim = min(half.glob("*.arrow"))
    victim.unlink()
    text = failure(restore_from=str(half))
    assert f"{victim}: the file is missing" in text, text

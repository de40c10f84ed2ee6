"""The dispatcher, with coordinators and a cluster that a test plays."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dispatcher_kit import RECORD, Coordinator, World, outcome, phase, run
from ray.exceptions import ActorDiedError, ObjectLostError
from strom.cluster import dispatcher, ledger
from strom.cluster.ledger import MOST_HISTORY
from strom.cluster.records import JobRecord, Phase
from strom.cluster.registry import Registry
from strom.cluster.runs import ATTEMPTS_OF_A_RUN
from strom.cluster.slot_pool import PREFIX, prefix_of
from strom.core.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    SerializationError,
)
from strom.core.job_status import JobStatus
from strom.engine.hosts.launch import Submission

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
"""Coroutines that nobody awaits, above all."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(monkeypatch, tmp_path)


def test_from_its_submission_to_the_archive(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        record, _ = await d.waiting("a1", 30.0, "")
        assert (record.phase, record.run) == (Phase.RUNNING, 0)
        (coordinator,) = world.made
        assert (coordinator.first_attempt, coordinator.told) == (0, ["detach"])
        await d.submit(RECORD, b"again")
        coordinator.ends.set_result(outcome(JobStatus.FAILED, "why"))
        record = await phase(d, Phase.ENDED)
        assert (record.status, record.error) == (JobStatus.FAILED, "why")
        while (await d.about())["ended"] != 1:
            await asyncio.sleep(0.001)
        kept = await d.archived("a1")
        assert kept is not None
        assert (kept["metrics"], kept["checkpoints"]) == ({"state": "FAILED"}, 3)
        assert kept["record"]["tasks"] == {"FAILED": 1}
        view = d._ledger._registry.view("a1")
        assert view is not None
        assert (view["id"], view["status"]) == ("a1", "FAILED")
        await d.submit(RECORD, b"again")
        await d.cancel("a1")
        assert [one.job_id for one, _ in await d.jobs()] == ["a1"]
        assert len(world.made) == 1
        with pytest.raises(ConfigurationError, match="no job 'b2'"):
            await d.cancel("b2")

    run(world, test)


def test_a_job_without_a_last_view_is_archived_all_the_same(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        await d.waiting("a1", 30.0, "")
        while not world.made:
            await asyncio.sleep(0.001)
        last, _ = outcome(JobStatus.FINISHED)
        world.made[0].ends.set_result((last, None))
        while (await d.about())["ended"] != 1:
            await asyncio.sleep(0.001)
        kept = await d.archived("a1")
        assert kept is not None
        assert (kept["record"]["status"], kept["record"]["tasks"]) == ("FINISHED", {})
        assert d._ledger._registry.view("a1") is None

    run(world, test)


def test_coordinators_are_told_whether_others_wait_for_what_gets_free(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        record, _ = await d.waiting("a1", 30.0, "")

        async def told() -> bool:
            coordinator = Coordinator(None)
            d._runs._coordinators["a1"] = coordinator
            following = asyncio.create_task(d._runs.follow(record))
            while not coordinator.followers:
                await asyncio.sleep(0.001)
            following.cancel()
            return coordinator.others_wait

        assert not await told()
        waits = replace(RECORD, job_id="b2", cpus=4.0, submitted_ms=RECORD.submitted_ms + 1)
        await d.submit(waits, pickle.dumps(Submission("b2", b"graph")))
        assert await told()

    run(world, test)


def test_nothing_starts_that_the_registry_does_not_take(world: World) -> None:
    async def test() -> None:
        d = world.dispatcher()
        store, failures = d._ledger._registry.store, iter(range(3))

        def failing(record: JobRecord) -> None:
            if record.phase is Phase.STARTING and next(failures, None) is not None:
                assert not world.made
                raise CheckpointError("the disk is full")
            store(record)

        d._ledger._registry.store = failing  # type: ignore[method-assign]
        await d.submit(RECORD, pickle.dumps(Submission("a1", b"graph")))
        await phase(d, Phase.RUNNING)
        assert next(failures, None) is None

    run(world, test)


def test_a_submission_that_the_registry_does_not_take_is_refused(world: World) -> None:
    async def test() -> None:
        d = world.dispatcher()

        def failing(record: JobRecord, submission: bytes) -> None:
            raise CheckpointError("the disk is full")

        d._ledger._registry.submit = failing  # type: ignore[method-assign]
        with pytest.raises(CheckpointError, match="full"):
            await d.submit(RECORD, b"")
        assert await d.jobs() == []

    run(world, test)


def test_what_cannot_start_fails_with_the_cause(world: World) -> None:
    async def test() -> None:
        world.failure = SerializationError("no module named 'mine'")
        d = await world.submitted()
        record = await phase(d, Phase.ENDED)
        assert record.status is JobStatus.FAILED
        assert "no module named 'mine'" in (record.error or "")
        assert len(world.made) == 1

    run(world, test)
    world.made.clear()
    world.failure = None  # which holds what was on the stack
    gc.collect()  # a call that nobody awaits would say so now


def test_a_registry_that_is_away_as_a_job_starts_is_no_end_of_the_job(world: World) -> None:
    async def test() -> None:
        d = world.dispatcher()
        read, failures = d._ledger._registry.submission, iter(range(3))

        def failing(job_id: str) -> bytes:
            for _ in failures:
                raise CheckpointError("the storage is away")
            return read(job_id)

        d._ledger._registry.submission = failing  # type: ignore[method-assign]
        await d.submit(RECORD, pickle.dumps(Submission("a1", b"graph")))
        while (record := (await d.job("a1"))[0]).phase not in (Phase.RUNNING, Phase.ENDED):
            await asyncio.sleep(0.001)
        assert (record.phase, record.run) == (Phase.RUNNING, 0)

    run(world, test)


def test_a_job_whose_submission_is_gone_fails(world: World) -> None:
    async def test() -> None:
        d = world.dispatcher()

        def gone(job_id: str) -> bytes:
            raise CorruptCheckpointError("jobs/a1/submission: the file is missing")

        d._ledger._registry.submission = gone  # type: ignore[method-assign]
        await d.submit(RECORD, b"")
        assert "the file is missing" in str((await phase(d, Phase.ENDED)).error)

    run(world, test)


def test_a_damaged_last_word_is_none(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        (Path(world.folder) / "jobs" / "a1" / "end.json").write_text("{}")
        world.made[0].ends.set_exception(ActorDiedError())
        while len(world.made) < 2:
            await asyncio.sleep(0.001)
        assert (await phase(d, Phase.RUNNING)).run == 1

    run(world, test)


def test_a_dispatcher_comes_back_though_nobody_says_what_slots_there_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray would not make it again; it looks later."""
    failures = iter([RuntimeError("the cluster's head is away")])
    world.slots = [f"{prefix_of(world.folder)}a1-0-1"]

    def there(prefix: str) -> list[str]:
        for failure in failures:
            raise failure
        return list(world.slots)

    monkeypatch.setattr(dispatcher, "slots_there", there)

    async def test() -> None:
        await phase(await world.submitted(), Phase.RUNNING)
        while world.slots:
            await asyncio.sleep(0.001)

    run(world, test)


def test_a_cluster_whose_head_does_not_answer_holds_up_no_question(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def resources() -> dict[str, float]:
        entered.set()
        in_time.append(go_on.wait(5))
        return {"CPU": 4.0}

    monkeypatch.setattr(dispatcher.ray, "cluster_resources", resources)

    async def test() -> None:
        d = world.dispatcher()
        assert await asyncio.to_thread(entered.wait, 60)
        assert (await d.about())["queued"] == 0
        go_on.set()
        await d.submit(RECORD, pickle.dumps(Submission("a1", b"graph")))
        await phase(d, Phase.RUNNING)
        assert all(in_time), "the answer had to wait"

    run(world, test)


def test_attempts_of_the_next_run_are_later_ones(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        world.made[0].ends.set_exception(ActorDiedError())
        while len(world.made) < 2:
            await asyncio.sleep(0.001)
        record = await phase(d, Phase.RUNNING)
        assert (record.run, world.made[1].first_attempt) == (1, ATTEMPTS_OF_A_RUN)

    run(world, test)


def test_a_coordinator_that_cannot_be_reached_is_told_to_cancel_later(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        await d.cancel("a1")
        assert (await phase(d, Phase.ENDED)).status is JobStatus.CANCELED
        assert world.made[0].told == ["detach", "cancel", "cancel"]

    run(world, test)


def test_the_next_dispatcher_follows_who_lives(world: World) -> None:
    async def test() -> None:
        await phase(await world.submitted(), Phase.RUNNING)
        d = world.dispatcher()
        await phase(d, Phase.RUNNING)
        world.made[0].ends.set_result(outcome(JobStatus.FINISHED))
        await phase(d, Phase.ENDED)
        assert len(world.made) == 1

    run(world, test)


def test_who_follows_a_job_hears_of_its_next_run_and_of_its_end(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        assert (await d.next_run("a1", -1, 30.0))[0].phase is Phase.RUNNING
        assert (await d.next_run("a1", 0, 0.0))[0].run == 0  # there is no later one
        world.made[0].ends.set_exception(ActorDiedError())
        record, _ = await d.next_run("a1", 0, 30.0)
        assert (record.run, record.phase) == (1, Phase.RUNNING)
        last, view = outcome(JobStatus.FINISHED)
        part = ("hits", "map", b"sealed")
        world.made[1].ends.set_result((replace(last, accumulators=(part,)), view))
        assert (await d.next_run("a1", 1, 30.0))[0].phase is Phase.ENDED
        while (kept := await d.outcome("a1")) is None:
            await asyncio.sleep(0.001)
        assert (kept.status, kept.net_runtime_ms, kept.accumulators) == ("FINISHED", 17.0, (part,))
        assert (await d.last_view("a1") or {})["status"] == "FINISHED"

    run(world, test)


def test_savepoints_of_a_coordinator_that_came_back_are_heard_of(world: World) -> None:
    """It counts from its own first; the last may be the one that the job was stopped with."""

    async def test() -> None:
        world.savepoints = [("/s/1", 5)]
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        (one,) = world.made
        while not one.followers:
            await asyncio.sleep(0.001)
        one.term, one.savepoints = 1, [("/s/2", 6)]
        one.ends.set_result(outcome(JobStatus.FINISHED))
        await phase(d, Phase.ENDED)
        record, _ = await d.job("a1")
        assert [taken.path for taken in record.savepoints] == ["/s/1", "/s/2"]

    run(world, test)


def test_savepoints_are_kept_with_their_job(world: World) -> None:
    async def test() -> None:
        world.savepoints = [("/s/1", 5), ("/s/2", 6)]
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        while len((await d.job("a1"))[0].savepoints) < 2:
            await asyncio.sleep(0.001)
        again = world.dispatcher()  # which is told of all of them once more
        await phase(again, Phase.RUNNING)
        world.made[0].ends.set_result(outcome(JobStatus.FINISHED))
        await phase(again, Phase.ENDED)
        while (kept := await again.archived("a1")) is None:
            await asyncio.sleep(0.001)
        found = JobRecord.from_json(kept["record"]).savepoints
        assert [(one.path, one.time_ms) for one in found] == world.savepoints

    run(world, test)


def test_a_job_that_ended_while_nobody_listened_is_not_started_again(world: World) -> None:
    """Its coordinator told the registry before it left."""

    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        await d.close()
        world.dispatchers.remove(d)
        world.made[0].farewell(outcome(JobStatus.CANCELED)[0])
        world.all_left = True
        again = world.dispatcher()
        record = await phase(again, Phase.ENDED)
        assert (record.status, record.run) == (JobStatus.CANCELED, 0)
        assert len(world.made) == 1
        while (await again.about())["ended"] != 1:
            await asyncio.sleep(0.001)
        kept = await again.archived("a1")
        assert kept is not None
        assert (kept["checkpoints"], kept["metrics"]) == (3, {"state": "CANCELED"})

    run(world, test)


def test_who_is_gone_when_all_was_said_leaves_no_job_to_be_started_again(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        world.made[0].farewell(outcome(JobStatus.FINISHED)[0])
        world.made[0].ends.set_exception(ActorDiedError())
        assert (await phase(d, Phase.ENDED)).status is JobStatus.FINISHED
        assert len(world.made) == 1

    run(world, test)


@pytest.mark.parametrize("coordinator", ["lives", "leaves", "is gone"])
def test_a_job_whose_dispatcher_dies_as_it_starts_it(world: World, coordinator: str) -> None:
    """The coordinator was made, and heard neither that its job is to begin nor that it is detached.
    It leaves after a while unless it is told the one, and would end with its client unless it is
    told the other."""

    async def test() -> None:
        world.deaf = {"start", "detach"}
        d = await world.submitted()
        while not world.made:
            await asyncio.sleep(0.001)
        assert (await d.job("a1"))[0].phase is Phase.STARTING
        world.kill(d)
        (first,) = world.made
        first.deaf, world.deaf = set(), set()
        world.all_left = coordinator == "is gone"
        again = world.dispatcher()
        record = await phase(again, Phase.RUNNING)
        if coordinator == "leaves":
            first.ends.set_exception(ActorDiedError())
        if coordinator != "lives":
            while len(world.made) < 2:
                await asyncio.sleep(0.001)
            record = await phase(again, Phase.RUNNING)
        assert (record.run, len(world.made)) == ((0, 1) if coordinator == "lives" else (1, 2))
        assert world.made[-1].told == ["detach"]
        world.made[-1].ends.set_result(outcome(JobStatus.FINISHED))
        assert (await phase(again, Phase.ENDED)).status is JobStatus.FINISHED

    run(world, test)


def test_slots_that_are_there_only_after_their_release_go_as_well(world: World) -> None:
    """A coordinator dies while it makes them, and Ray hears of them after that. Those of another
    registry's session stay: its jobs may run in them while it has no dispatcher."""
    foreign = f"{prefix_of('elsewhere')}c1-0-1"
    assert foreign.startswith(PREFIX)

    async def test() -> None:
        shaped = replace(RECORD, shape="two", checkpoints=None)
        d = world.dispatcher()
        for one in (shaped, replace(shaped, job_id="b1")):
            await d.submit(one, pickle.dumps(Submission(one.job_id, b"graph")))
        group = (await phase(d, Phase.RUNNING)).group
        while (other := (await d.job("b1"))[0]).phase is not Phase.RUNNING:
            await asyncio.sleep(0.001)
        assert group is not None
        assert other.group is not None
        world.slots += [other.group, foreign]
        world.made[0].ends.set_exception(ActorDiedError())
        await phase(d, Phase.ENDED)
        await d._agenda.done()
        world.slots.append(group)
        while group in world.slots:
            await asyncio.sleep(0.001)
        assert world.slots == [other.group, foreign]

    run(world, test)


def test_damage_of_one_job_is_not_that_of_the_session(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "b2"
    folder.mkdir(parents=True)
    (folder / "record.json").write_text('{"phase": "PAUSED"}')

    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        assert [one.job_id for one, _ in await d.jobs()] == ["a1"]
        assert (folder / "record.json").exists()

    run(world, test)


def test_answers_that_get_lost_are_asked_for_again(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        coordinator = world.made[0]
        while not coordinator.followers:
            await asyncio.sleep(0.001)
        lost, coordinator.ends = coordinator.ends, asyncio.get_running_loop().create_future()
        coordinator.ends.set_result(outcome(JobStatus.FINISHED))
        lost.set_exception(ObjectLostError("1f", None, ""))  # what it waits for now
        assert (await phase(d, Phase.ENDED)).status is JobStatus.FINISHED

    run(world, test)


def test_what_users_put_into_figures_is_no_end_of_the_session(world: World) -> None:
    """10 ** 5000 is none that Python writes as JSON."""

    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        last, view = outcome(JobStatus.FINISHED)
        last = replace(last, metrics={"gauge": 10**5000})
        world.made[0].ends.set_result((last, {**view, "gauge": 10**5000}))
        while (kept := await d.archived("a1")) is None:
            await asyncio.sleep(0.001)
        assert (kept["record"]["status"], "metrics" in kept) == ("FINISHED", False)
        await d.submit(replace(RECORD, job_id="b1"), pickle.dumps(Submission("b1", b"graph")))
        while (await d.job("b1"))[0].phase is not Phase.RUNNING:
            await asyncio.sleep(0.001)

    run(world, test)


def test_a_dispatcher_keeps_as_many_jobs_as_it_is_told(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "RECENT_S", 0.0)
    monkeypatch.setattr(ledger, "REMOVAL_S", 0.01)
    world.failure = SerializationError("no module named 'mine'")

    async def test() -> None:
        d = world.dispatcher(retained=2)
        assert (await d.about())["retained_jobs"] == 2
        for job_id in ("a1", "a2", "a3"):
            await d.submit(replace(RECORD, job_id=job_id), pickle.dumps(Submission("a", b"graph")))
            while (await d.job(job_id))[0].phase is not Phase.ENDED:
                await asyncio.sleep(0.001)
        old = tmp_path / "history" / "a1.json"
        while old.exists() or (await d.about())["ended"] != 2:
            await asyncio.sleep(0.001)
        assert [one.job_id for one, _ in await d.jobs()] == ["a3", "a2"]
        assert (await d.about())["ended"] == 2
        with pytest.raises(ConfigurationError, match="no job 'a1'"):
            await d.job("a1")

    run(world, test)


OVER = 4_000
"""Jobs that are over."""


def test_thousands_of_finished_jobs_slow_it_down_by_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is asked reads none of them, and a new job runs and ends as beside none."""
    history = tmp_path / "history"
    history.mkdir()
    for n in range(OVER):
        over = replace(RECORD, job_id=f"{n:016x}", phase=Phase.ENDED, ended_ms=n)
        (history / f"{over.job_id}.json").write_text(json.dumps({"record": over.to_json()}))
        os.utime(history / f"{over.job_id}.json", (n, n))
    reads: list[str] = []
    read = Registry.ended

    def counted(registry: Registry, job_id: str) -> Any:
        reads.append(job_id)
        return read(registry, job_id)

    monkeypatch.setattr(Registry, "ended", counted)

    async def test() -> None:
        d = world.dispatcher()
        while len(await d.jobs(ended=2_000)) < MOST_HISTORY:
            await asyncio.sleep(0.01)
        assert len(reads) == MOST_HISTORY, "the last ones, and no others"
        assert [one.ended_ms for one, _ in await d.jobs(3)] == [OVER - 1, OVER - 2, OVER - 3]
        reads.clear()
        began = time.perf_counter()
        for _ in range(200):
            assert (await d.about())["ended"] == OVER
            assert len(await d.jobs()) == 100
            assert (await d.job(f"{OVER - 1:016x}"))[0].ended_ms == OVER - 1
        took = (time.perf_counter() - began) / 600
        assert took < 0.005, f"{took * 1000:.2f} ms an answer"
        assert reads == []
        await d.submit(RECORD, pickle.dumps(Submission("a1", b"graph")))
        await phase(d, Phase.RUNNING)
        world.made[0].ends.set_result(outcome(JobStatus.FINISHED))
        while (await d.about())["ended"] != OVER + 1:
            await asyncio.sleep(0.001)
        assert reads == []
        assert (await d.job(f"{0:016x}"))[0].ended_ms == 0  # an old one is read when asked for
        assert reads == [f"{0:016x}"]

    run(world, test)


@pytest.mark.parametrize("late", [False, True])
def test_slots_are_not_lost_between_the_end_of_a_job_and_that_of_the_session(
    world: World, late: bool
) -> None:
    """Who lends them gives them back, whatever comes between. `late`: the job ends as the session
    does not listen any more, and so its coordinator keeps them."""

    async def test() -> None:
        d = world.dispatcher()
        record = replace(RECORD, shape="s")
        await d.submit(record, pickle.dumps(Submission("a1", b"graph")))
        group = (await phase(d, Phase.RUNNING)).group
        assert group is not None
        world.slots = [group]
        (coordinator,) = world.made
        while not coordinator.followers:
            await asyncio.sleep(0.001)
        coordinator.hears.clear()
        if not late:
            coordinator.ends.set_result(outcome(JobStatus.FINISHED))
            while not coordinator.hearing:
                await asyncio.sleep(0.001)
        closing = asyncio.ensure_future(d.close())
        for _ in range(10):
            await asyncio.sleep(0.001)
        if late:
            coordinator.ends.set_result(outcome(JobStatus.FINISHED))
        coordinator.hears.set()
        await closing
        await asyncio.sleep(0)
        world.dispatchers.remove(d)
        assert (world.slots, coordinator.heard) == (([group], False) if late else ([], True))

    run(world, test)

"""The dispatcher while coordinators, its registry, Ray or a dispatcher before it fail."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from dispatcher_kit import RECORD, World, outcome, phase, run
from ray.exceptions import ActorDiedError, ObjectLostError
from strom.cluster import dispatcher
from strom.cluster.records import JobRecord, Phase
from strom.cluster.runs import ATTEMPTS_OF_A_RUN
from strom.cluster.slot_pool import PREFIX, prefix_of
from strom.core.errors import CheckpointError, CorruptCheckpointError, SerializationError
from strom.core.job_status import JobStatus
from strom.engine.hosts.job_record import Begun
from strom.engine.hosts.job_record import JobRecord as Left
from strom.engine.hosts.launch import Submission

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
"""Coroutines that nobody awaits, above all."""


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


@pytest.mark.parametrize("attached", [True, False])
def test_what_a_lost_coordinator_left_stays_for_the_next_one_alone(
    world: World, attached: bool, tmp_path: Path
) -> None:
    """An attached job has none."""
    state = tmp_path / "state"
    Left(str(state), "a1").begin(Begun(b"graph"))

    async def test() -> None:
        d = world.dispatcher()
        record = replace(RECORD, attached=attached, checkpoints=str(state))
        await d.submit(record, pickle.dumps(Submission("a1", b"graph")))
        await phase(d, Phase.RUNNING)
        world.made[0].ends.set_exception(ActorDiedError())
        while len(world.made) < 2 and any(state.iterdir()):
            await asyncio.sleep(0.001)
        assert (await phase(d, Phase.ENDED if attached else Phase.RUNNING)).run == int(not attached)

    run(world, test)
    assert any(state.iterdir()) is not attached


def test_what_one_left_that_could_not_start_goes(world: World, tmp_path: Path) -> None:
    Left(str(tmp_path / "state"), "a1").begin(Begun(b"graph"))

    async def test() -> None:
        world.failure = SerializationError("no module named 'mine'")
        d = world.dispatcher()
        record = replace(RECORD, checkpoints=str(tmp_path / "state"))
        await d.submit(record, pickle.dumps(Submission("a1", b"graph")))
        await phase(d, Phase.ENDED)
        while any((tmp_path / "state").iterdir()):
            await asyncio.sleep(0.001)

    run(world, test)
    world.made.clear()
    world.failure = None
    gc.collect()

"""Jobs that take the place of others, as a dispatcher carries it out."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace

import pytest
from dispatcher_kit import NEXT, RECORD, World, outcome, phase, run
from ray.exceptions import ActorDiedError, ActorUnavailableError
from strom.cluster import runs
from strom.cluster.records import JobRecord, Phase
from strom.cluster.registry import Registry
from strom.core.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    JobFailedError,
    StromError,
)
from strom.core.job_status import JobStatus
from strom.engine.hosts.launch import Submission

GIVEN = pickle.dumps(Submission("a2", b"graph"))


def test_a_job_takes_the_place_of_one_that_is_stopped_for_it(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        given = pickle.dumps(Submission("a2", b"graph"))
        assert await d.take_place(NEXT, given, "/s") == "/s/1"
        assert await d.take_place(NEXT, given, "/s") == "/s/1"  # asked again by who was cut off
        while (found := await d.job("a2"))[0].phase is not Phase.RUNNING:
            await asyncio.sleep(0.001)
        old, new = world.made
        assert (old.told, new.claimed) == (["detach", "halt into /s"], "/s/1")
        assert (found[0].follows, found[0].claims) == (None, "/s/1")
        assert (await d.job("a1"))[0].status is JobStatus.FINISHED
        new.ends.set_exception(ActorDiedError())  # its next run starts from there, too
        while len(world.made) < 3 or world.made[2].first_attempt is None:
            await asyncio.sleep(0.001)
        assert world.made[2].claimed == "/s/1"

    run(world, test)


def test_a_job_that_is_not_stopped_goes_on_and_nothing_of_the_other_is_kept(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        world.made[0].answer = None, "the disk is full"
        with pytest.raises(JobFailedError, match="place of job a1: the disk is full"):
            await d.take_place(NEXT, b"", None)
        with pytest.raises(ConfigurationError, match="would need 5 CPUs"):
            await d.take_place(replace(NEXT, job_id="a3", cpus=5.0), b"", None)
        await d._agenda.done()
        assert [one.job_id for one in d._ledger._registry.records()] == ["a1"]
        (left,) = [one for one, _ in await d.jobs() if one.phase is Phase.ENDED]
        assert (left.job_id, left.status) == ("a2", JobStatus.FAILED)
        assert left.error == "it does not take the place of job a1: the disk is full"

    run(world, test)


def test_who_asks_twice_at_once_moves_a_job_once_and_a_rival_leaves_nothing(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        rival = replace(NEXT, job_id="a3")
        first, second, refused = await asyncio.gather(
            d.take_place(NEXT, GIVEN, "/s"),
            d.take_place(NEXT, GIVEN, "/s"),
            d.take_place(rival, GIVEN, "/s"),  # it looked free as this one was written down
            return_exceptions=True,
        )
        assert (first, second) == ("/s/1", "/s/1")
        assert isinstance(refused, ConfigurationError)
        assert str(refused).startswith("job 'a1' ")  # is being stopped already, or over
        while (await d.job("a2"))[0].phase is not Phase.RUNNING:
            await asyncio.sleep(0.001)
        assert [one.told for one in world.made] == [["detach", "halt into /s"], ["detach"]]
        assert [one.job_id for one in d._ledger._registry.records()] == ["a2"]
        with pytest.raises(ConfigurationError, match="no job 'a3'"):
            await d.job("a3")

    run(world, test)


def test_who_asks_twice_at_once_is_refused_twice(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        world.made[0].answer = None, "the disk is full"
        calls = [d.take_place(NEXT, GIVEN, None) for _ in range(2)]
        for why in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(why, JobFailedError)
            assert "the disk is full" in str(why)
        assert (await d.job("a1"))[0].phase is Phase.RUNNING

    run(world, test)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([CheckpointError("away"), CheckpointError("away"), "/s/1"], None),
        ([CheckpointError("away"), None], "where its savepoint is"),
        ([CorruptCheckpointError("torn")], "where its savepoint is"),
    ],
)
def test_a_storage_that_fails_while_it_is_looked_how_a_job_was_stopped(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[StromError | str | None],
    why: str | None,
) -> None:
    """One dispatcher asked for the stop, and the next one finds the job over: what does not answer
    now is asked again, and the other job starts from the savepoint, or not at all."""
    registry = Registry(world.folder)
    registry.submit(NEXT, GIVEN)
    over = replace(RECORD, phase=Phase.ENDED, status=JobStatus.FINISHED)
    registry.archive(over, {})
    left = list(answers)

    def state_of(successor: str, record: JobRecord) -> str | None:
        assert (successor, record) == ("a2", over)
        assert not world.made
        answer = left.pop(0)
        if isinstance(answer, StromError):
            raise answer
        return answer

    monkeypatch.setattr(runs, "state_left_to", state_of)

    async def test() -> None:
        d = world.dispatcher()
        wanted = Phase.RUNNING if why is None else Phase.ENDED
        while (found := await d.job("a2"))[0].phase is not wanted:
            await asyncio.sleep(0.001)
        assert left == []
        assert [one.claimed for one in world.made] == (["/s/1"] if why is None else [])
        assert (why or "") in (found[0].error or "")

    run(world, test)


def test_what_a_rival_leaves_goes_as_soon_as_the_registry_is_back(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        forget, failures = d._ledger._registry.forget, iter([CheckpointError("away")])

        def failing(job_id: str) -> None:
            for failure in failures:
                raise failure
            forget(job_id)

        d._ledger._registry.forget = failing  # type: ignore[method-assign]
        rival = replace(NEXT, job_id="a3")
        both = [d.take_place(one, GIVEN, "/s") for one in (NEXT, rival)]
        _, refused = await asyncio.gather(*both, return_exceptions=True)
        assert isinstance(refused, ConfigurationError)
        await d._agenda.done()
        assert "a3" not in {one.job_id for one in d._ledger._registry.records()}

    run(world, test)


@pytest.mark.parametrize("heard", [False, True])
def test_a_stop_that_may_have_been_heard_is_asked_for_again(
    world: World, monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    """One coordinator cannot be reached for a moment. If it is stopping already it refuses to be
    stopped once more, ends a little later, and what it left is what the other starts from."""
    monkeypatch.setattr(runs, "state_left_to", lambda successor, record: "/s/1")

    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        (old,) = world.made
        answer, asked = old._savepoint, 0

        async def savepoint(
            directory: str | None, stop: str, successor: str
        ) -> tuple[str | None, str | None]:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise ActorUnavailableError("for a while", None)
            if not heard:
                return await answer(directory, stop, successor)
            ends = old.ends.set_result
            asyncio.get_running_loop().call_later(0.1, ends, outcome(JobStatus.FINISHED))
            return None, "the job is stopped by another"

        old._savepoint = savepoint  # type: ignore[method-assign]
        assert await d.take_place(NEXT, GIVEN, "/s") == "/s/1"
        while (found := await d.job("a2"))[0].phase is not Phase.RUNNING:
            assert found[0].phase is not Phase.ENDED, found[0].error
            await asyncio.sleep(0.001)
        assert (asked, world.made[1].claimed) == (2, "/s/1")

    run(world, test)


def test_who_is_not_wanted_any_more_has_nobody_stopped(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        (old,) = world.made
        reached = asyncio.Event()

        async def savepoint(
            directory: str | None, stop: str, successor: str
        ) -> tuple[str | None, str | None]:
            assert not reached.is_set(), "it is asked again"
            reached.set()
            await d.cancel("a2")
            raise ActorUnavailableError("for a while", None)

        old._savepoint = savepoint  # type: ignore[method-assign]
        with pytest.raises(JobFailedError, match="CANCELED"):
            await d.take_place(NEXT, GIVEN, "/s")
        await asyncio.sleep(5 * runs.PAUSE_S)
        assert (await d.job("a1"))[0].phase is Phase.RUNNING

    run(world, test)


def test_who_cancels_a_job_cancels_who_waits_for_its_place(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        (old,) = world.made
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def savepoint(
            directory: str | None, stop: str, successor: str
        ) -> tuple[str | None, str | None]:
            asked.set_result(None)
            await asyncio.Event().wait()
            raise AssertionError

        old._savepoint = savepoint  # type: ignore[method-assign]
        moving = asyncio.create_task(d.take_place(NEXT, GIVEN, "/s"))
        await asyncio.wait_for(asked, 10)
        await d.cancel("a1")
        with pytest.raises(JobFailedError, match="'a2' is CANCELED"):
            await moving
        old.ends.set_result(outcome(JobStatus.CANCELED))
        await phase(d, Phase.ENDED)
        assert len(world.made) == 1

    run(world, test)


def test_who_cancels_a_job_whose_place_is_taken_is_told_by_whom(world: World) -> None:
    async def test() -> None:
        d = await world.submitted()
        await phase(d, Phase.RUNNING)
        await d.take_place(NEXT, GIVEN, "/s")
        while (await d.job("a2"))[0].phase is not Phase.RUNNING:
            await asyncio.sleep(0.001)
        with pytest.raises(
            ConfigurationError, match="'a1' is over, and goes on as job 'a2', which"
        ):
            await d.cancel("a1")
        await d.cancel("a2")
        world.made[1].ends.set_result(outcome(JobStatus.CANCELED))
        while (await d.job("a2"))[0].phase is not Phase.ENDED:
            await asyncio.sleep(0.001)
        await d.cancel("a1")

    run(world, test)

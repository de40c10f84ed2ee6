"""Jobs that take the place of others, as a dispatcher carries it out."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from dispatcher_kit import NEXT, World, phase, run
from ray.exceptions import ActorDiedError
from strom.cluster.records import Phase
from strom.core.errors import ConfigurationError, JobFailedError
from strom.core.job_status import JobStatus
from strom.engine.hosts.launch import Submission


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(monkeypatch, tmp_path)


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
        while len(world.made) < 3:
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

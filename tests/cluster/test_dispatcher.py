"""The dispatcher, with coordinators and a cluster that a test plays: jobs come, run and end."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dispatcher_kit import RECORD, Coordinator, World, outcome, phase, run
from ray.exceptions import ActorDiedError
from strom.cluster import ledger
from strom.cluster.ledger import MOST_HISTORY
from strom.cluster.records import JobRecord, Phase
from strom.cluster.registry import Registry
from strom.core.errors import ConfigurationError, SerializationError
from strom.core.job_status import JobStatus
from strom.engine.hosts.launch import Submission

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
"""Coroutines that nobody awaits, above all."""


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


def test_a_job_has_the_coordinator_that_is_ready(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its later runs have one that is made for them, if there is no other."""

    async def test() -> None:
        ready = [Coordinator(None)]

        async def appointed(submission: Submission, *arguments: Any) -> Coordinator | None:
            assert submission.job_id == "a1"
            return ready.pop() if ready else None

        (first,) = ready
        d = world.dispatcher()
        monkeypatch.setattr(d._coordinators, "appointed", appointed)
        await d.submit(RECORD, pickle.dumps(Submission("a1", b"graph")))
        await phase(d, Phase.RUNNING)
        assert (first.first_attempt, first.told, world.made) == (0, ["detach"], [])
        first.ends.set_exception(ActorDiedError())
        while not world.made or world.made[0].first_attempt is None:
            await asyncio.sleep(0.001)
        record = await phase(d, Phase.RUNNING)
        assert (record.run, len(world.made)) == (1, 1)

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

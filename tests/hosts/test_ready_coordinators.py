"""Coordinators that are ready before their jobs: who makes them, who gets one, and what becomes of
those that die. On fakes of Ray; on the real one: tests/cluster/test_ray_ready."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from named_actors import NamedActors
from ray.exceptions import ActorDiedError
from strom.core.errors import JobFailedError
from strom.engine.hosts import coordinator_life, ready_coordinators
from strom.engine.hosts.coordinator_names import Appointment, appoint, find_coordinator
from strom.engine.hosts.kept_slots import KeptSlots
from strom.engine.hosts.launch import Submission
from strom.engine.hosts.ready_coordinators import (
    PREFIX,
    ReadyCoordinator,
    ReadyCoordinators,
    end_ready_coordinators,
)
from strom.engine.hosts.ready_tasks import CALM_S

OURS = f"{PREFIX}env-"


def submission(job_id: str, packages: dict[str, Any] | None = None) -> Submission:
    return Submission(job_id, b"graph", packages=packages)


class Actor:
    """One that stands by, as its keeper sees it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.imported: Future[None] = Future()
        self.failure: BaseException | None = None
        """Of what it is asked for; CancelledError: it does not answer."""
        busy = SimpleNamespace(future=lambda: self.imported)
        self.stand_by = SimpleNamespace(remote=lambda keeper: busy)
        self.appoint = SimpleNamespace(remote=self._appoint)

    async def _appoint(self, job_id: str, *arguments: Any) -> None:
        appoint(Appointment(job_id, self.name), b"")
        if isinstance(self.failure, asyncio.CancelledError):
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure


class Cluster(NamedActors):
    """With one keeper at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.now = 0.0
        self.keeper = self.new_keeper()
        made = SimpleNamespace(options=self._options)
        monkeypatch.setattr(ready_coordinators, "_actor", lambda: made)
        monkeypatch.setattr(ready_coordinators, "coordinator_options", lambda name: {"name": name})
        monkeypatch.setattr(ready_coordinators, "environment", lambda: "env")
        monkeypatch.setattr(ready_coordinators, "APPOINTING_S", 0.01)

    def new_keeper(self) -> ReadyCoordinators:
        return ReadyCoordinators(lambda: self.now)

    def _options(self, name: str) -> Any:
        def remote(given: str) -> Actor:
            assert given == name
            self.actors[name] = Actor(name)
            return self.actors[name]

        return SimpleNamespace(remote=remote)

    def tend(self) -> list[Actor]:
        """Those that there are."""
        self.keeper.tend(None)
        return list(self.actors.values())

    def ready(self) -> Actor:
        """The only one there is."""
        (actor,) = self.tend()
        actor.imported.set_result(None)
        assert not self.keeper.is_ready
        assert self.tend() == [actor]
        assert self.keeper.is_ready
        return actor

    def given(self, *jobs: Submission) -> list[Any]:
        """What jobs get that start at once."""

        async def starts() -> list[Any]:
            return await asyncio.gather(*(self.keeper.appointed(one, None, None) for one in jobs))

        return asyncio.run(starts())


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


# --- the keeper ----------------------------------------------------------------------------------


def test_the_first_of_two_jobs_has_it_and_the_next_gets_another_a_while_later(
    cluster: Cluster,
) -> None:
    first = cluster.ready()
    assert first.name.startswith(OURS)
    assert cluster.given(submission("a"), submission("b")) == [first, None]
    assert find_coordinator("a") is first
    assert not cluster.keeper.is_ready
    cluster.now += CALM_S - 1
    assert cluster.tend() == [first]
    cluster.now += 1
    _, second = cluster.tend()
    second.imported.set_result(None)
    cluster.tend()
    assert cluster.given(submission("b")) == [second]
    assert not cluster.killed


def test_who_has_an_environment_of_its_own_gets_none(cluster: Cluster) -> None:
    cluster.ready()
    assert cluster.given(submission("a", {"env_vars": {}})) == [None]
    assert cluster.keeper.is_ready


def test_one_that_imports_still_is_left_alone(cluster: Cluster) -> None:
    cluster.tend()
    assert cluster.given(submission("a")) == [None]
    assert cluster.ready()


@pytest.mark.parametrize("failure", [ActorDiedError(), asyncio.CancelledError()])
def test_one_that_does_not_take_the_job_is_ended(cluster: Cluster, failure: BaseException) -> None:
    """Where it is not known whether it has: an ordinary one is made next."""
    actor = cluster.ready()
    actor.failure = failure
    assert cluster.given(submission("a")) == [None]
    assert cluster.killed == [actor.name]
    assert not cluster.entries
    cluster.now += CALM_S
    assert cluster.ready() is not actor


def test_one_that_has_another_job_keeps_it(cluster: Cluster) -> None:
    """The process before this had given it away, and died before it was told that it is."""
    actor = cluster.ready()
    appoint(Appointment("before", actor.name), b"")
    actor.failure = JobFailedError("it has another")
    assert cluster.given(submission("a")) == [None]
    assert not cluster.killed
    assert find_coordinator("before") is actor
    with pytest.raises(ValueError, match="strom-job-a"):
        find_coordinator("a")


def test_one_that_cannot_even_be_ended_holds_up_no_start(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(actor: Any, no_restart: bool) -> None:
        raise RuntimeError("Ray is away")

    cluster.ready().failure = ActorDiedError()
    monkeypatch.setattr(ray, "kill", fails)
    assert cluster.given(submission("a")) == [None]


def test_the_next_process_of_the_keeper_goes_on_with_what_is_there(cluster: Cluster) -> None:
    """With one of them, and none that has a job or another runtime environment."""
    busy = cluster.ready()
    assert cluster.given(submission("a")) == [busy]
    for name in (f"{OURS}1", f"{OURS}2", f"{PREFIX}other-3", "strom-ready-env-n-4"):
        cluster.actors[name] = Actor(name)
    cluster.keeper = cluster.new_keeper()
    cluster.tend()
    assert cluster.killed == [f"{OURS}2", f"{PREFIX}other-3"]
    actor = cluster.actors[f"{OURS}1"]
    actor.imported.set_result(None)
    cluster.tend()
    assert cluster.given(submission("b")) == [actor]


def test_one_that_is_given_away_while_the_keeper_looks_is_left_alone(cluster: Cluster) -> None:
    """A job starts on the keeper's loop while a thread looks who there is."""
    actor = cluster.ready()
    starts: list[threading.Thread] = []

    class Given(set[str]):
        """The job starts as soon as this was looked at."""

        def __rsub__(self, there: Any) -> Any:
            others = there.difference(self)
            starts.append(threading.Thread(target=cluster.keeper._take))
            starts[0].start()
            starts[0].join(0.2)
            return others

    cluster.keeper._given = Given()
    assert cluster.tend() == [actor]
    starts[0].join(60)
    assert not cluster.killed
    assert cluster.keeper._name is None, "it is given to nobody else"


def test_one_that_dies_before_it_has_a_job_is_replaced(cluster: Cluster) -> None:
    actor = cluster.ready()
    del cluster.actors[actor.name]
    (other,) = cluster.tend()
    assert other is not actor
    assert not cluster.keeper.is_ready
    assert cluster.ready() is other


def test_one_that_cannot_get_ready_is_replaced(cluster: Cluster) -> None:
    (actor,) = cluster.tend()
    actor.imported.set_exception(ActorDiedError())
    assert not cluster.tend()
    assert not cluster.keeper.is_ready
    assert cluster.killed == [actor.name]
    assert cluster.ready() is not actor


def test_entries_of_those_that_are_gone_are_removed(cluster: Cluster) -> None:
    actor = cluster.ready()
    assert cluster.given(submission("a")) == [actor]
    cluster.tend()
    assert cluster.keys == [f"a {actor.name}"]
    del cluster.actors[actor.name]
    cluster.tend()
    assert not cluster.entries


def test_the_end_of_the_session_ends_those_without_a_job(cluster: Cluster) -> None:
    busy = cluster.ready()
    cluster.given(submission("a"))
    cluster.now += CALM_S
    cluster.tend()
    end_ready_coordinators()
    assert list(cluster.actors.values()) == [busy]


# --- the coordinator -----------------------------------------------------------------------------


class Process:
    """Of an actor "ready-1", which is alone on the cluster."""

    def __init__(self, cluster: NamedActors, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.handle = cluster.actors["ready-1"] = object()
        self.came_back = False
        self.returned: list[str] = []
        here = SimpleNamespace(current_actor=self.handle)
        monkeypatch.setattr(ray, "get_runtime_context", lambda: here)
        for module in (coordinator_life, ready_coordinators):
            monkeypatch.setattr(module, "came_back", lambda: self.came_back)
        monkeypatch.setattr(ReadyCoordinator, "_come_back", self._come_back)

    async def _come_back(self) -> None:
        self.returned.append("came back")

    def run(self, test: Callable[[ReadyCoordinator], Awaitable[None]]) -> None:
        async def whole() -> None:
            made = ReadyCoordinator("ready-1")
            await test(made)
            await asyncio.sleep(0)
            if made._appointment is not None:
                made._records._writer.shutdown()

        asyncio.run(whole())


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(NamedActors(monkeypatch), monkeypatch)


def test_it_has_one_job_and_comes_back_as_its_coordinator(process: Process) -> None:
    async def first(coordinator: ReadyCoordinator) -> None:
        await coordinator.appoint("a", "/records", KeptSlots("slots", "keeper"), None)
        with pytest.raises(JobFailedError, match="job b: this coordinator has another"):
            await coordinator.appoint("b", None, None, None)

    async def second(coordinator: ReadyCoordinator) -> None:
        assert coordinator._job_id == "a"
        assert coordinator._slots == KeptSlots("slots", "keeper")
        assert not coordinator._records.of_machine

    process.run(first)
    assert process.cluster.keys == ["a ready-1"]
    assert find_coordinator("a") is process.handle
    assert not process.returned
    process.came_back = True
    process.run(second)
    assert process.returned == ["came back"]


def test_with_its_end_goes_the_entry(process: Process) -> None:
    async def leaves(coordinator: ReadyCoordinator) -> None:
        await coordinator.appoint("a", None, None, None)
        coordinator._leave_unless_started()

    process.run(leaves)
    assert process.cluster.killed == ["ready-1"]
    assert not process.cluster.entries


def test_one_that_died_before_it_had_a_job_takes_none(process: Process) -> None:
    """Nor the one that its keeper, who did not know, had just given to it."""

    async def ends(coordinator: ReadyCoordinator) -> None:
        with pytest.raises(JobFailedError, match="takes none"):
            await coordinator.appoint("a", None, None, None)

    process.came_back = True
    process.run(ends)
    assert process.cluster.killed == ["ready-1"]
    assert not process.cluster.entries
    assert not process.returned


@pytest.mark.parametrize("job", [False, True])
def test_it_ends_with_its_keeper_unless_it_has_a_job(
    process: Process, monkeypatch: pytest.MonkeyPatch, job: bool
) -> None:
    async def until_dead(keeper: asyncio.Event) -> None:
        await keeper.wait()

    monkeypatch.setattr(ready_coordinators, "until_dead", until_dead)
    monkeypatch.setattr(ready_coordinators, "_import_all", lambda: None)

    async def stands_by(coordinator: ReadyCoordinator) -> None:
        gone = asyncio.Event()
        await coordinator.stand_by(gone)
        coordinator._end_unless_used()
        if job:
            await coordinator.appoint("a", None, None, None)
        gone.set()
        assert coordinator._standing_by is not None
        await coordinator._standing_by
        assert process.cluster.killed == ([] if job else ["ready-1"])

    process.run(stands_by)


def test_one_of_which_nobody_hears_ends(process: Process) -> None:
    async def unused(coordinator: ReadyCoordinator) -> None:
        coordinator._end_unless_used()

    process.run(unused)
    assert process.cluster.killed == ["ready-1"]

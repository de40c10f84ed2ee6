"""The task actors of a job, on fakes of Ray: what becomes of those that die as they start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chaos_kit import config, environment, until
from ray.exceptions import ActorUnavailableError, RayActorError
from strom import DiscardSink
from strom.core.errors import FencedError, ResourceError
from strom.core.ids import Attempt, TaskId
from strom.engine.exchange.endpoint import Wiring
from strom.engine.hosts import ray_cluster, ray_task, task_maker
from strom.engine.hosts.cluster_events import TaskLost
from strom.engine.hosts.job_record import Begun, JobRecord
from strom.engine.hosts.last_words import Whereabouts
from strom.engine.hosts.ray_cluster import RayCluster
from strom.logs.scope import LogScope


class Ref:
    """Of a call, which a test answers."""

    def __init__(self) -> None:
        self.answer: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self.answer

    def __await__(self) -> Any:
        return asyncio.wrap_future(self.answer).__await__()


class Actor:
    """Its process is there until `die`; each of its calls has a reference."""

    def __init__(self, number: int) -> None:
        self._actor_id = SimpleNamespace(hex=lambda: f"{number:04x}")
        self.death = RayActorError(actor_id=f"{number:04x}", error_msg="a fake died")
        self.dead = False
        self.calls: dict[str, Ref] = {}
        self.told: dict[str, tuple[Any, ...]] = {}
        """What each was called with last."""
        for name in ("prepare", "hold", "deploy", "cancel"):
            setattr(self, name, SimpleNamespace(remote=partial(self._called, name)))

    def _called(self, name: str, *told: Any) -> Ref:
        self.told[name] = told
        ref = self.calls[name] = Ref()
        if self.dead:
            ref.answer.set_exception(self.death)
        return ref

    def started(self, address: str = "here:1") -> None:
        self.calls["prepare"].answer.set_result((address, Whereabouts("here", 17, None)))

    def die(self) -> None:
        self.dead = True
        for ref in self.calls.values():
            if not ref.answer.done():
                ref.answer.set_exception(self.death)


class World:
    """A cluster of two tasks, whose loop runs on a thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        env = environment(config())
        env.from_collection([1]).set_parallelism(1).sink_to(DiscardSink())
        self.vertex = env.get_job_graph("two").vertices[0]
        self.actors: list[Actor] = []
        self.heard: list[Any] = []
        self.nodes = {TaskId(self.vertex.id, n): f"node {n}" for n in range(2)}
        self.dead: set[str] = set()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        monkeypatch.setattr(task_maker, "_actor", lambda: self)
        monkeypatch.setattr(ray_cluster, "death_of", self.death_of)
        monkeypatch.setattr(ray_cluster.ray, "kill", lambda actor, no_restart: actor.die())
        slots = SimpleNamespace(
            reserve=lambda cancelled, down: None,
            lost=lambda down: False,
            nodes=lambda: self.nodes,
            options=lambda task: {},
            add_for=lambda job, cancelled: None,
            trim=lambda: None,
            on_several_machines=lambda: False,
            own_name="a name",
        )
        monkeypatch.setattr(ray_cluster, "slots_for", lambda *_: slots)
        self.cluster = RayCluster(
            env.get_job_graph("two"), b"", self.loop, self.heard.append, None, "a name"
        )

    def death_of(self, node: str) -> str | None:
        return f"its node died ({node})" if node in self.dead else None

    def options(self, **options: Any) -> World:
        return self

    def remote(self) -> Actor:
        self.actors.append(Actor(len(self.actors)))
        return self.actors[-1]

    def deployment(self, subtask: int, attempt: int, *sends_to: int) -> Any:
        targets = [TaskId(self.vertex.id, other) for other in sends_to]
        outputs: Any = tuple(SimpleNamespace(target=target) for target in targets)
        return SimpleNamespace(
            task=TaskId(self.vertex.id, subtask),
            attempt=Attempt(attempt),
            log_scope=LogScope("a1", "two"),
            outputs=outputs,
            wiring=lambda peers: Wiring(attempt, (), outputs, peers),
            deals={},
            shape="1,2",
            storage=None,
        )

    def deployed(self) -> None:
        """Both run, in attempt 0."""
        came = self.deploy(0)
        until(lambda: len(self.actors) == 2 and "prepare" in self.actors[1].calls, "its calls")
        for actor in self.actors:
            actor.started()
        until(lambda: all("deploy" in one.calls for one in self.actors), "its deployment")
        for actor in self.actors:
            actor.calls["deploy"].answer.set_result(None)
        came.result(60)

    def deploy(self, attempt: int) -> Future[None]:
        """On a thread of its own."""
        deployments = [self.deployment(subtask, attempt) for subtask in range(2)]
        came: Future[None] = Future()

        def run() -> None:
            try:
                self.cluster.deploy(deployments)
            except BaseException as error:
                came.set_exception(error)
            else:
                came.set_result(None)

        threading.Thread(target=run).start()
        return came

    def close(self) -> None:
        for actor in self.actors:
            actor.die()
        until(lambda: not self.cluster._actors, "their end")
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(monkeypatch)
    yield world
    world.close()


def test_who_dies_while_others_still_start_is_named(world: World) -> None:
    came = world.deploy(0)
    until(lambda: len(world.actors) == 2 and "prepare" in world.actors[1].calls, "its calls")
    first, second = world.actors
    first.started()
    first.die()
    until(lambda: world.heard, "the loss")
    second.started()
    with pytest.raises(ResourceError, match=r"subtask 0, could not start: its process died"):
        came.result(60)
    (lost,) = world.heard
    assert isinstance(lost, TaskLost)
    assert lost.task.subtask == 0


def test_who_dies_as_a_rescale_starts_it_is_named(world: World) -> None:
    """As Ray says it of a process that was killed a moment ago."""
    vertex = replace(world.vertex, parallelism=1)
    world.cluster.make_room(7, replace(world.cluster._job, vertices=(vertex,)))
    until(lambda: world.actors and "prepare" in world.actors[0].calls, "its call")
    away = ActorUnavailableError("socket closed", None)
    away.actor_id = "0000"
    world.actors[0].calls["prepare"].answer.set_exception(away)
    until(lambda: world.heard, "the answer")
    (made,) = world.heard
    assert made.request == 7
    name = vertex.name
    assert f"task {name}, subtask 0, could not start: its process died" in made.why
    assert "Unavailable" not in made.why


def test_what_is_known_of_actors_does_not_grow_with_their_deaths(world: World) -> None:
    for attempt in range(4):
        came = world.deploy(attempt)
        until(lambda n=2 * attempt + 2: len(world.actors) == n, "its actors")
        until(lambda: all("prepare" in one.calls for one in world.actors), "its calls")
        for actor in world.actors[-2:]:
            actor.die()
        with pytest.raises(ResourceError, match="could not start"):
            came.result(60)
        until(lambda: not world.cluster._actors, "their end")
    fields = [*vars(world.cluster).values(), *vars(world.cluster._to_come).values()]
    assert max(len(one) for one in fields if isinstance(one, dict)) == 2


def test_a_job_that_ends_before_it_knows_what_runs_ends_that(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled while the storage is away, for instance: its coordinator has not looked yet."""
    killed: list[Any] = []
    monkeypatch.setattr(ray_cluster.ray, "kill", lambda actor, no_restart: killed.append(actor))
    monkeypatch.setattr(ray_cluster, "tasks_of", lambda name: ["one"])
    monkeypatch.setattr(ray_cluster, "ask_all", lambda actors, *_: [(a, None) for a in actors])
    slots = SimpleNamespace(release=lambda: killed.append("slots"))
    monkeypatch.setattr(ray_cluster, "slots_for", lambda *_: slots)
    for term in range(2):
        cluster = RayCluster(
            world.cluster._job, b"", world.loop, world.heard.append, None, "a name", term=term
        )
        cluster.close()
    assert killed == ["slots", "one", "slots"]


def test_what_hears_a_later_coordinator_is_left_alone_with_its_slots(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one that was held up, and fails when it finds that it is not to go on."""
    killed: list[Any] = []
    refused, silent = Future[Any](), Future[Any]()
    refused.set_exception(FencedError("this coordinator's term, 1, is over"))
    silent.set_exception(OSError("gone"))

    def task(answer: Future[Any]) -> Any:
        asked = SimpleNamespace(future=lambda: answer)
        return SimpleNamespace(take_over=SimpleNamespace(remote=lambda *_: asked))

    tasks = [task(silent), task(refused)]
    monkeypatch.setattr(ray_cluster.ray, "kill", lambda actor, no_restart: killed.append(actor))
    monkeypatch.setattr(ray_cluster, "tasks_of", lambda name: tasks)
    slots = SimpleNamespace(release=lambda: killed.append("slots"))
    monkeypatch.setattr(ray_cluster, "slots_for", lambda *_: slots)
    job, heard = world.cluster._job, world.heard.append
    late = RayCluster(job, b"", world.loop, heard, None, "a name", term=1)
    with pytest.raises(FencedError):
        late.take_over()
    assert killed == []
    RayCluster(job, b"", world.loop, heard, None, "a name", term=1).close()
    assert killed == []
    tasks.pop()
    RayCluster(job, b"", world.loop, heard, None, "a name", term=1).close()
    assert killed == [*tasks, "slots"]


def test_a_deployment_that_another_coordinator_overtakes_does_not_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next one was told that nothing runs here, and may begin something else."""
    begun: list[Any] = []
    monkeypatch.setattr(ray_task.cloudpickle, "loads", lambda payload: payload)
    monkeypatch.setattr(ray_task, "TaskRunner", begun.append)
    monkeypatch.setattr(ray_task, "own_whereabouts", lambda: Whereabouts("here", 17, None))

    async def test() -> None:
        one: Any = ray_task.TaskActor()
        one._endpoint = SimpleNamespace(address="here:1")
        one._following = asyncio.current_task()

        async def copies(deployment: Any) -> Any:
            assert (await one.take_over(None, 1)).account is None
            return deployment

        one._with_copies = copies
        with pytest.raises(FencedError, match="term 1"):
            await one.deploy(b"", {}, None, 0)

    asyncio.run(test())
    assert begun == []


def test_a_task_without_a_coordinator_takes_what_that_left_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ahead of the slots, with which it ends; not what a session begins the job from again."""
    done: list[str] = []
    monkeypatch.setattr(ray_task, "give_back_added", done.append)
    monkeypatch.setattr(ray_task.os, "kill", lambda *_: done.append("killed"))
    for record in (None, JobRecord(str(tmp_path), "a1")):
        JobRecord(str(tmp_path), "a1").begin(Begun(b"graph"))
        one: Any = ray_task.TaskActor()
        one._record, one._coordinator_name = record, "a name"
        one._end()
        assert any(tmp_path.iterdir()) is (record is None)
    assert done == ["a name", "killed"] * 2


def test_who_asks_whether_a_process_stands_by_waits_for_what_it_imports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported = threading.Event()
    monkeypatch.setattr(ray_task, "_import_all", lambda: imported.wait(60))

    async def test() -> None:
        one: Any = ray_task.TaskActor()
        one._following = asyncio.current_task()
        standing = asyncio.ensure_future(one.stand_by(None))
        asked = asyncio.ensure_future(one.stands_by())
        await asyncio.sleep(0)
        assert not asked.done()
        imported.set()
        await asyncio.wait_for(asked, 60)
        await standing

    asyncio.run(test())


def test_who_dies_with_a_node_as_it_starts_starts_elsewhere(world: World) -> None:
    """Ray had placed it on a node of which it did not know yet that it was dead: nobody is told of
    a loss, and the task that has started is asked again with the new one."""
    came = world.deploy(0)
    until(lambda: len(world.actors) == 2 and "prepare" in world.actors[1].calls, "its calls")
    first, second = world.actors
    first.started()
    world.dead.add("node 1")
    world.nodes[TaskId(world.vertex.id, 1)] = "node 2"
    second.die()
    until(lambda: len(world.actors) == 3 and "prepare" in world.actors[2].calls, "another")
    third = world.actors[2]
    for actor in (first, third):
        actor.started()
    until(lambda: "deploy" in third.calls, "its deployment")
    for actor in (first, third):
        actor.calls["deploy"].answer.set_result(None)
    came.result(60)
    assert world.heard == []


def test_a_loss_tells_of_all_tasks_of_a_node_that_is_dead(world: World) -> None:
    """Those of which Ray does not say it yet, too: their processes may hang."""
    for task in world.nodes:
        world.nodes[task] = "node 0"
    world.deployed()
    world.dead.add("node 0")
    world.actors[0].die()
    until(lambda: len(world.heard) == 2, "both losses")
    assert {lost.task.subtask for lost in world.heard} == {0, 1}
    assert {lost.reason for lost in world.heard} == {"its node died (node 0)"}
    assert world.actors[1].dead


def test_who_cannot_be_reached_any_more_is_ended(world: World) -> None:
    """Its process may live, in the slot that whoever takes its place needs."""
    world.deployed()
    away = ActorUnavailableError("keepalive watchdog timeout", None)
    world.actors[0].calls["hold"].answer.set_exception(away)
    until(lambda: world.heard, "the loss")
    (lost,) = world.heard
    assert lost.task.subtask == 0
    assert world.actors[0].dead
    assert not world.actors[1].dead


def test_those_that_stay_are_told_once_the_others_have_begun(world: World) -> None:
    """In the attempt that they have: by the driver, in the order of what else they are told."""
    world.deployed()
    first, second = world.actors
    former = first.calls["deploy"]
    world.cluster.deploy_beside([world.deployment(1, 1)], [world.deployment(0, 1, 1)])
    for actor in world.actors:
        actor.started()
    until(lambda: not second.calls["deploy"].answer.done(), "its deployment")
    assert world.heard == []
    second.calls["deploy"].answer.set_result(None)
    until(lambda: world.heard, "what they are told")
    (reached,) = world.heard
    ((task, attempt, mail),) = reached.mails
    assert (task.subtask, attempt, mail.shape) == (0, 0, "1,2")
    assert (mail.wiring.attempt, list(mail.wiring.peers.values())) == (1, ["here:1"])
    assert first.calls["deploy"] is former


def test_whoever_stays_may_listen_elsewhere_from_then_on(world: World) -> None:
    """As with the first slot of the job on another machine: both sides get the new address."""
    world.deployed()
    first, second = world.actors
    world.cluster.deploy_beside([world.deployment(1, 1, 0)], [world.deployment(0, 1, 0, 1)])
    first.started("there:2")
    second.started("here:3")
    until(lambda: not second.calls["deploy"].answer.done(), "its deployment")
    stays, starts = (TaskId(world.vertex.id, subtask) for subtask in range(2))
    assert second.told["deploy"][1] == {stays: "there:2"}
    second.calls["deploy"].answer.set_result(None)
    until(lambda: world.heard, "what it is told")
    ((_, _, mail),) = world.heard[0].mails
    assert mail.wiring.peers == {stays: "there:2", starts: "here:3"}


@pytest.mark.parametrize("whole", [True, False])
def test_a_machine_may_go_away_with_one_that_stays_while_others_start(
    world: World, whole: bool
) -> None:
    """It is lost, and starts nowhere else; nor do others begin. `whole`: all are on that machine;
    of those that were to start there nobody hears, for they have not."""
    if whole:
        world.nodes.update(dict.fromkeys(world.nodes, "node 0"))
    world.deployed()
    first, second = world.actors
    begun = second.calls["deploy"]
    world.cluster.deploy_beside([world.deployment(1, 1)], [world.deployment(0, 1, 1)])
    if not whole:
        second.started()
    world.dead.add("node 0")
    first.die()
    until(lambda: world.heard, "the loss")
    until(lambda: not deploying(), "the end of the deployment")
    ((task, attempt, reason),) = [(one.task, one.attempt, one.reason) for one in world.heard]
    assert (task.subtask, attempt, reason) == (0, 0, "its node died (node 0)")
    assert second.calls["deploy"] is begun


def deploying() -> list[str]:
    """Threads that deploy tasks beside others."""
    return [one.name for one in threading.enumerate() if one.name.startswith("strom-deploy-")]


def test_where_one_that_was_to_stay_is_gone_nothing_begins(world: World) -> None:
    """The driver hears of the loss."""
    world.deployed()
    first, second = world.actors
    first.die()
    until(lambda: world.heard, "the loss")
    prepared = second.calls["prepare"]
    world.cluster.deploy_beside([world.deployment(1, 1)], [world.deployment(0, 1, 1)])
    assert second.calls["prepare"] is prepared
    assert [type(one) for one in world.heard] == [TaskLost]


def test_who_is_not_wanted_any_more_does_not_start_elsewhere(world: World) -> None:
    came = world.deploy(0)
    until(lambda: len(world.actors) == 2 and "prepare" in world.actors[1].calls, "its calls")
    world.dead.add("node 1")
    world.cluster.cancel_tasks([TaskId(world.vertex.id, 1)], Attempt(0))
    world.actors[1].die()
    with pytest.raises(ray_cluster._Superseded):
        came.result(60)
    assert len(world.actors) == 2

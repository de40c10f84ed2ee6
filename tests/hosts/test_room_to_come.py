"""Room for tasks that a job does not have yet, on fakes of its slots and of who makes processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from chaos_kit import config, environment, until
from strom import DiscardSink
from strom.core.errors import ResourceError
from strom.core.ids import TaskId
from strom.engine.graph.model import JobGraph
from strom.engine.hosts import room_to_come
from strom.engine.hosts.cluster_events import RoomMade
from strom.engine.hosts.room_to_come import RoomToCome


class World:
    """A job of one vertex, whose first subtask runs. Slots come when `placed` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        env = environment(config())
        env.from_collection([1]).set_parallelism(1).sink_to(DiscardSink())
        job = env.get_job_graph("one")
        self.one = replace(job, vertices=(replace(job.vertices[0], parallelism=1),))
        self.running = {TaskId(self.one.vertices[0].id, 0)}
        self.done: list[str] = []
        self.made: list[TaskId] = []
        self.killed: list[TaskId] = []
        self.heard: list[Any] = []
        self.placed = threading.Event()
        self.placed.set()
        self.late = False
        """Whether slots come although nobody waits for them any more."""
        self.warm = threading.Event()
        """Set while processes get ready."""
        self.warm.set()
        self.fails = ""
        """What does not come: slots, or processes."""
        slots = SimpleNamespace(
            add_for=self._add_for,
            adopt=lambda job: self.done.append("adopted"),
            trim=lambda: self.done.append("trimmed"),
            release=lambda: self.done.append("released"),
        )
        self.cancelled: Future[None] = Future()
        maker: Any = SimpleNamespace(
            slots=slots, make=self._make, warm_up=self._warm_up, cancelled=self.cancelled
        )
        monkeypatch.setattr(
            room_to_come.ray, "kill", lambda task, no_restart: self.killed.append(task)
        )
        self.changing = threading.Lock()
        self.room = RoomToCome(
            maker, self.changing, self.running.__contains__, lambda error: error, self.heard.append
        )

    def of(self, parallelism: int) -> JobGraph:
        """The job with so many subtasks."""
        (vertex,) = self.one.vertices
        return replace(self.one, vertices=(replace(vertex, parallelism=parallelism),))

    def task(self, subtask: int) -> TaskId:
        return TaskId(self.one.vertices[0].id, subtask)

    def spare(self) -> list[TaskId]:
        return [task for task, _ in self.room.spare()]

    def _add_for(self, job: JobGraph, cancelled: Future[None]) -> None:
        self.done.append("asked")
        while not self.placed.wait(0.01):
            if cancelled.done() and not self.late:
                cancelled.result()
        self._fail("slots")
        self.done.append("added")

    def _make(self, task: TaskId) -> TaskId:
        assert self.changing.locked()
        self.made.append(task)
        return task

    def _warm_up(self, job: JobGraph, actors: dict[TaskId, Any]) -> None:
        self.done.append(f"warmed {len(actors)}")
        assert self.warm.wait(60)
        self._fail("processes")

    def _fail(self, what: str) -> None:
        if self.fails == what:
            raise ResourceError(f"there are no {what}")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(monkeypatch)
    yield world
    world.placed.set()
    world.warm.set()
    own = ("strom-room-", "strom-trim")
    until(lambda: not any(t.name.startswith(own) for t in threading.enumerate()), "their end")


def test_slots_come_first_and_processes_for_tasks_that_do_not_run(world: World) -> None:
    world.placed.clear()
    world.room.make(1, world.of(3))
    until(lambda: world.done == ["asked"], "the request")
    assert world.room.seeks
    assert world.made == []
    world.placed.set()
    until(lambda: world.heard, "the answer")
    assert world.heard == [RoomMade(1, None)]
    assert not world.room.seeks
    assert world.done == ["asked", "added", "warmed 2"]
    assert world.spare() == [world.task(1), world.task(2)]
    with world.changing:
        assert [world.room.take(world.task(n)) for n in (1, 1)] == [world.task(1), None]
    world.room.adopt(world.of(3))
    until(lambda: world.done[-1] == "trimmed", "the trimming")
    assert world.done[-2:] == ["adopted", "trimmed"]
    assert (world.killed, world.spare()) == ([], [world.task(2)])


def test_what_is_not_wanted_any_more_is_given_back_when_it_comes(world: World) -> None:
    """The driver has been told that the job stays as it is while slots were waited for."""
    world.late = True
    world.placed.clear()
    world.room.make(1, world.of(2))
    until(lambda: world.done == ["asked"], "the request")
    world.room.adopt(world.one)  # waits for nobody
    assert world.done == ["asked", "adopted"]
    world.placed.set()
    until(lambda: world.heard and world.done.count("trimmed") == 2, "the answer")
    assert world.heard == [RoomMade(1, None)]
    assert world.made == []
    assert world.done.index("trimmed") > world.done.index("added")


def test_processes_of_tasks_that_do_not_come_end(world: World) -> None:
    world.room.make(1, world.of(3))
    until(lambda: world.heard, "the answer")
    world.room.adopt(world.of(2))
    assert world.killed == [world.task(2)]
    assert world.spare() == [world.task(1)]


def test_a_request_that_another_follows_asks_for_nothing(world: World) -> None:
    world.late = True
    world.placed.clear()
    world.room.make(1, world.of(2))
    until(lambda: world.done == ["asked"], "the first")
    world.room.make(2, world.of(3))
    world.room.make(3, world.of(2))
    world.placed.set()
    until(lambda: len(world.heard) == 3, "all answers")
    assert {made.request for made in world.heard} == {1, 2, 3}
    assert world.done.count("asked") == 2, "the second is over before it began"
    assert world.made == [world.task(1)]


def test_slots_that_nobody_waits_for_any_more_hold_up_no_other_request(world: World) -> None:
    """One of the job's own gives way to somebody's, whose room is there."""
    world.placed.clear()
    world.room.make(1, world.of(3))
    until(lambda: world.done == ["asked"], "the first")
    world.room.adopt(world.one)
    world.room.make(2, world.of(2))
    until(lambda: world.done.count("asked") == 2, "the second")
    assert not world.placed.is_set()
    world.placed.set()
    until(lambda: len(world.heard) == 2, "both answers")
    assert {made.request: made.why is None for made in world.heard} == {1: False, 2: True}
    assert world.spare() == [world.task(1)]


def test_a_request_that_is_over_takes_nothing_from_the_next(world: World) -> None:
    """Its processes were still getting ready when it gave way."""
    world.warm.clear()
    world.room.make(1, world.of(2))
    until(lambda: "warmed 1" in world.done, "processes of the first")
    world.room.adopt(world.one)
    world.room.make(2, world.of(3))
    until(lambda: "warmed 2" in world.done, "processes of the second")
    world.done.clear()
    world.warm.set()
    until(lambda: len(world.heard) == 2, "both answers")
    assert world.done == []
    assert world.spare() == [world.task(1), world.task(2)]
    world.room.adopt(world.of(2))
    until(lambda: world.done == ["adopted", "trimmed"], "the trimming of what both have left")


def test_a_job_that_is_cancelled_waits_for_no_room(world: World) -> None:
    world.placed.clear()
    world.room.make(1, world.of(2))
    until(lambda: world.done == ["asked"], "the request")
    world.cancelled.set_exception(ResourceError("it is over"))
    until(lambda: world.heard, "the answer")
    world.room.make(2, world.of(2))
    until(lambda: len(world.heard) == 2, "an answer at once")
    assert not world.placed.is_set()
    assert all(made.why for made in world.heard)


@pytest.mark.parametrize("what", ["slots", "processes"])
def test_why_there_is_no_room_is_told(world: World, what: str) -> None:
    world.fails = what
    world.room.make(1, world.of(2))
    until(lambda: world.heard, "the answer")
    (made,) = world.heard
    assert made.request == 1
    assert f"there are no {what}" in made.why
    assert not world.room.seeks


def test_none_is_made_once_it_is_closed_and_slots_go_behind_who_adds_some(world: World) -> None:
    world.room.make(1, world.of(2))
    until(lambda: world.heard, "the answer")
    world.room.close()
    assert world.killed == [world.task(1)]
    world.placed.clear()
    world.room.make(2, world.of(3))
    until(lambda: world.done.count("asked") == 2, "the request")
    releasing = threading.Thread(target=world.room.release, name="strom-releasing")
    releasing.start()
    releasing.join(0.05)
    assert "released" not in world.done
    world.placed.set()
    until(lambda: len(world.heard) == 2, "the answer")
    releasing.join(60)
    assert world.done.index("released") > len(world.done) - 1 - world.done[::-1].index("added")
    assert (world.made, world.spare()) == ([world.task(1)], [])

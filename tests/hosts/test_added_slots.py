"""Slots that a job gets while it runs, on a fake of Ray: several threads have some at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from chaos_kit import until
from strom.engine.graph.slots import SlotKey
from strom.engine.hosts import added_slots
from strom.engine.hosts.added_slots import AddedSlots

ONE, TWO, THREE = (("default", n) for n in (1, 2, 3))
CPU = {"CPU": 1.0}


class FakeRay:
    """Groups by name, each of which is there once it has a place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: dict[str, str] = {}
        self.placed: set[str] = set()
        self.turned = threading.Condition()
        self.waiting = 0
        """So many calls have begun to wait."""
        patch = monkeypatch.setattr
        patch(added_slots, "get_placement_group", self._get)
        patch(added_slots, "placement_group", self._make)
        patch(added_slots, "await_placed", self._await)
        patch(added_slots, "give_back", self._give_back)
        patch(added_slots, "_named", lambda prefix: list(self.groups))
        self.slots = AddedSlots("job", "PACK")

    def place(self, *keys: SlotKey) -> None:
        with self.turned:
            self.placed.update(self.slots.name(key) for key in keys)
            self.turned.notify_all()

    def has(self, *keys: SlotKey) -> bool:
        return sorted(self.groups) == sorted(map(self.slots.name, keys))

    def knows(self, *keys: SlotKey) -> bool:
        """Whether tasks can be put into these, and into no others."""
        return [key for key in (ONE, TWO, THREE) if self.slots.of(key) is not None] == [*keys]

    def _get(self, name: str) -> str:
        if name not in self.groups:
            raise ValueError(name)
        return self.groups[name]

    def _make(self, bundles: Any, strategy: str, name: str, lifetime: str) -> str:
        assert name not in self.groups, "Ray has a group of this name"
        self.groups[name] = name
        return name

    def _give_back(self, name: str) -> None:
        del self.groups[name]

    def _await(self, groups: Sequence[str], timeout: float, cancelled: Future[None]) -> None:
        def over() -> bool:
            return cancelled.done() or self.placed.issuperset(groups)

        with self.turned:
            self.waiting += 1
            assert self.turned.wait_for(over, 60)
        if cancelled.done():
            cancelled.result()


class Call:
    """`make` on a thread of its own."""

    def __init__(self, ray: FakeRay, *keys: SlotKey) -> None:
        self._ray = ray
        self._cancelled: Future[None] = Future()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(dict.fromkeys(keys, CPU),))
        before = ray.waiting
        self._thread.start()
        until(lambda: ray.waiting > before, "the request")

    def _run(self, wanted: Any) -> None:
        try:
            self._ray.slots.make(wanted, 60, self._cancelled)
        except TimeoutError as error:
            self.error = error

    def ends(self) -> bool:
        """Whether they are there."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.error is None

    def times_out(self) -> None:
        self._cancelled.set_exception(TimeoutError())
        with self._ray.turned:
            self._ray.turned.notify_all()
        assert not self.ends()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    return FakeRay(monkeypatch)


@pytest.mark.parametrize("first", [True, False])
def test_whoever_is_done_last_forgets_nothing_of_others(ray: FakeRay, first: bool) -> None:
    """A rescale waits for its slots while a part of the job starts in those that it has."""
    rescale, deployment = Call(ray, ONE, TWO), Call(ray, THREE)
    for call, keys in ((rescale, (ONE, TWO)), (deployment, (THREE,)))[:: 1 if first else -1]:
        ray.place(*keys)
        assert call.ends()
    assert ray.knows(ONE, TWO, THREE)


def test_what_was_asked_for_at_once_is_there_beside_the_rest(ray: FakeRay) -> None:
    """As an adaptive job does whenever it starts tasks."""
    rescale = Call(ray, ONE, TWO)
    ray.slots.ask({THREE: CPU})
    ray.place(ONE, TWO)
    assert rescale.ends()
    ray.slots.ask({THREE: CPU})
    assert ray.knows(ONE, TWO, THREE)


@pytest.mark.parametrize("made", [True, False])
def test_what_somebody_else_waits_for_is_not_given_back(ray: FakeRay, made: bool) -> None:
    """Whether the one who gives up has made it or the other."""
    calls = [Call(ray, ONE, TWO), Call(ray, TWO)]
    patient, impatient = calls[::-1] if made else calls
    impatient.times_out()
    assert ray.has(TWO) if made else ray.has(ONE, TWO)
    ray.place(ONE, TWO)
    assert patient.ends()
    assert ray.knows(TWO) if made else ray.knows(ONE, TWO)


def test_the_last_one_who_gives_up_leaves_nothing(ray: FakeRay) -> None:
    for call in (Call(ray, ONE, TWO), Call(ray, TWO)):
        call.times_out()
    assert ray.has()
    assert ray.knows()
    again = Call(ray, TWO)
    ray.place(TWO)
    assert again.ends()
    assert ray.knows(TWO)


def test_what_was_there_stays_when_more_does_not_come(ray: FakeRay) -> None:
    ray.slots.ask({ONE: CPU})
    Call(ray, ONE, TWO).times_out()
    assert ray.has(ONE)
    assert ray.knows(ONE)


def test_what_a_coordinator_before_has_made_is_used_and_not_given_back(ray: FakeRay) -> None:
    theirs = ray.slots.name(ONE)
    ray.groups[theirs] = theirs
    Call(ray, ONE, TWO).times_out()
    assert ray.has(ONE)
    ray.slots.find([ONE, TWO])
    assert ray.slots.of(ONE) == theirs
    ray.slots.trim([])
    assert ray.has()
    assert ray.knows()

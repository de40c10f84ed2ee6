"""State under RocksDB keeps in memory what it may, and nothing of what is gone; and what it cannot
write it does not lose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from backends import close_all, make_backend
from strom import StateTtlConfig
from strom.core.clock import VirtualClock
from strom.core.errors import StateError
from strom.core.ids import KeyGroupRange
from strom.core.state_config import StateConfig
from strom.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from strom.state.keyed_state import KeyedStates
from strom.state.rocks.values import elements

GROUPS = KeyGroupRange(0, 7)
LIST, MAP, VALUE = ListStateDescriptor("l"), MapStateDescriptor("m"), ValueStateDescriptor("v")


@dataclass(frozen=True)
class Own:
    """A key that has no bytes in RocksDB."""

    number: int


@pytest.fixture(scope="module", autouse=True)
def _databases() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture(name="backend")
def _backend() -> Any:
    return make_backend("rocksdb", GROUPS, 8)


@pytest.fixture(name="roomy")
def _roomy() -> Iterator[Any]:
    """16 MB of caches."""
    states = KeyedStates(StateConfig("rocksdb", memory=32 << 20, rocksdb_share=0.5))
    yield states.make(GROUPS, 8)
    states.close()


def lasting(descriptor: Any, ttl: timedelta = timedelta(milliseconds=10)) -> Any:
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(ttl).build())
    return descriptor


def state_of(backend: Any, name: str) -> Any:
    return next(state for state in backend._cold if getattr(state, "name", None) == name)


def test_large_elements_count_as_large(roomy: Any) -> None:
    for key in range(40):
        roomy.time.begin(1)
        roomy.set_current_key(key)
        roomy.get_list_state(LIST).add("x" * (1 << 20))
        roomy.get_map_state(MAP).put(key, "y" * (1 << 20))
    assert state_of(roomy, "l").elements < 20
    assert state_of(roomy, "m").elements < 20


@pytest.mark.parametrize("make", [ListStateDescriptor, MapStateDescriptor])
def test_many_elements_of_few_keys_that_expire_count(make: Any, roomy: Any) -> None:
    descriptor = lasting(make("e"), timedelta(days=1))
    for key in range(30):
        roomy.time.begin(1)
        roomy.set_current_key(key)
        state = roomy._row(descriptor, False)
        if make is ListStateDescriptor:
            state.add_all(range(20_000))
        else:
            state.put_all(dict.fromkeys(range(10_000), key))
    assert len(state_of(roomy, "e").spaces[None]) < 20
    for key in range(30):
        roomy.set_current_key(key)
        state = roomy._row(descriptor, False)
        some = list(state.get()) if make is ListStateDescriptor else list(state.keys())
        assert some == list(range(len(some)))
        assert len(some) in (10_000, 20_000)


def test_keys_that_were_only_asked_for_are_forgotten(backend: Any) -> None:
    for number in range(500):
        backend.set_current_key(Own(number))
        assert list(backend.get_list_state(LIST).get()) == []
        assert backend.get_map_state(MAP).get(1) is None
    backend.time.begin(1)
    for name in ("l", "m"):
        state = state_of(backend, name)
        assert not state.hot
        assert not state.old
        assert not state.kept


def test_what_was_removed_from_a_map_is_not_noted_for_ever(
    roomy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The map stays in memory, and no snapshot asks for it to be written."""
    monkeypatch.setattr(elements, "LOADED", 100)
    roomy.set_current_key(1)
    state = roomy.get_map_state(MAP)
    state.put(-1, 0)
    state_of(roomy, "m").write()
    for number in range(1000):
        roomy.time.begin(1)
        state.put(number, number)
        state.remove(number)
    (owned,) = state_of(roomy, "m").hot.values()
    assert len(owned._gone) <= 101
    assert list(state.items()) == [(-1, 0)]


def test_expired_keys_without_a_place_are_forgotten() -> None:
    clock = VirtualClock()
    backend: Any = make_backend("rocksdb", GROUPS, 8, clock)
    descriptor = lasting(ValueStateDescriptor("e"))
    for number in range(600):
        backend.set_current_key(Own(number))
        backend.get_state(descriptor).update(number)
        clock.advance_ms(1)
    state = state_of(backend, "e")
    assert len(state.spaces[None]) <= 20
    assert len(state._kept) <= 100


def twice(sweep: Any) -> None:
    """What is in use only gets old at first."""
    sweep(1)
    sweep(1)


class Unwritable:
    """Not to be pickled while somebody says so."""

    refused = True

    def __reduce__(self) -> Any:
        if self.refused:
            raise RuntimeError("refused")
        return (Unwritable, ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unwritable)

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("expires", [False, True])
def test_nothing_is_lost_where_one_value_cannot_be_written(
    expires: bool, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    some: list[Any] = [ListStateDescriptor("l"), MapStateDescriptor("m"), ValueStateDescriptor("v")]
    if expires:
        some = [lasting(descriptor, timedelta(days=1)) for descriptor in some]

    def states() -> tuple[Any, Any, Any]:
        return tuple(backend._row(descriptor, False) for descriptor in some)  # type: ignore[return-value]

    for key in range(20):
        backend.set_current_key(key)
        items, entries, value = states()
        items.add_all([key, "first"])
        entries.put_all({key: "first", "gone": 1})
        value.update(key)
    for key in range(20):
        backend.set_current_key(key)
        items, entries, value = states()
        items.add("second")
        entries.remove("gone")
        entries.put("own", "second")
        backend.current.key = 20  # no batch comes between
        states()[2].update(1)
        backend.current.key = key
        if key % 2:
            value.clear()
    bad = Unwritable()
    backend.current.key = 19
    items, entries, value = states()
    items.add(bad)
    entries.put("bad", bad)
    value.update(bad)
    for state in backend._cold:
        with pytest.raises(StateError, match=f"state '{state.name}'.*cannot be pickled"):
            twice(state.sweep)
        if hasattr(state, "validate"):
            state.validate()
    monkeypatch.setattr(Unwritable, "refused", False)
    for _ in range(2):
        backend.time.begin(1)
    for key in range(20):
        backend.set_current_key(key)
        items, entries, value = states()
        last = [bad] if key == 19 else []
        assert list(items.get()) == [key, "first", "second", *last]
        assert list(entries.keys()) == [key, "own", *["bad"][: len(last)]]
        assert value.value() == (bad if last else None if key % 2 else key)


def test_an_empty_map_is_told_without_reading_it(backend: Any) -> None:
    backend.set_current_key(1)
    backend.get_map_state(MAP).put_all(dict.fromkeys(range(1000)))
    backend.set_current_key(1)
    state = backend.get_map_state(MAP)
    assert not state.is_empty()
    assert state_of(backend, "m").elements == 0
    for number in range(1000):
        state.remove(number)
    assert state.is_empty()

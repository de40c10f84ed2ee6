"""State that expires and of which parts lie in RocksDB, against the memory backend: the same calls
at the same times are answered alike, whatever has left memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from amounts import seeds
from backends import close_all, make_backend
from strom import StateTtlConfig
from strom.core.clock import VirtualClock
from strom.core.ids import KeyGroupRange
from strom.core.key_kinds import held_key
from strom.core.keys import findable
from strom.state.backend import KEY_GROUP, StateTable
from strom.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from strom.state.key_groups import key_group, range_for

GROUPS = 8
KEYS: list[Any] = [1, True, 1.0, "a", "b", None, (1, "x"), b"", 7, 8, 9]
SPACES: list[Any] = [None, None, 5, (0, 10)]


class Last:
    """An AggregateFunction: the last two values."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        return [*accumulator[-1:], value]

    def get_result(self, accumulator: list[int]) -> tuple[int, ...]:
        return tuple(accumulator)


@pytest.fixture(scope="module", autouse=True)
def _databases() -> Iterator[None]:
    yield
    close_all()


def config_of(draw: random.Random) -> StateTtlConfig:
    builder = StateTtlConfig.new_builder(timedelta(milliseconds=draw.choice([5, 40])))
    if draw.random() < 0.5:
        builder.use_event_time()
    if draw.random() < 0.4:
        builder.update_ttl_on_read_and_write()
    if draw.random() < 0.2:
        # when it is cleaned up is seen then, so only by who asks for it
        builder.return_expired_if_not_cleaned_up().disable_cleanup_in_background()
    return builder.build()


def as_held(key: Any) -> Any:
    return held_key(findable([key])[0])


class Pair:
    """Both backends, and one clock."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.clock = VirtualClock()
        self.config = config_of(draw)
        self.value = ValueStateDescriptor("v")
        self.sum = ReducingStateDescriptor("r", lambda a, b: a + b)
        self.last = AggregatingStateDescriptor("a", Last())
        self.items = ListStateDescriptor("l")
        self.map = MapStateDescriptor("m")
        self.all = (self.value, self.sum, self.last, self.items, self.map)
        for descriptor in self.all:
            descriptor.enable_time_to_live(self.config)
        self.watermark = 0
        self.stamp: int | None = None
        self.cold = [self.made("rocksdb")]
        self.plain = self.made("memory")
        for one in (*self.cold, self.plain):
            for descriptor in self.all:
                one.namespaced(descriptor)
        self.frozen: Any = None

    def made(self, kind: str, subtask: int = 0, parallelism: int = 1) -> Any:
        made = make_backend(kind, range_for(subtask, parallelism, GROUPS), GROUPS, self.clock)
        made.time.stamp_of = lambda: self.stamp
        return made

    def both(self, descriptor: Any, key: Any, space: Any, call: Any) -> None:
        group = key_group(key, GROUPS)
        (owner,) = [one for one in self.cold if group in one.key_groups]
        found = []
        for one in (owner, self.plain):
            one.current.key = as_held(key)
            found.append(call(one.namespaced(descriptor).of(space)))
        assert repr(found[0]) == repr(found[1])

    def step(self) -> None:
        draw = self.draw
        key, space = draw.choice(KEYS), draw.choice(SPACES)
        some = draw.choices(range(100), k=draw.randrange(4))
        own = draw.choice([0, 1, 2, True, "a", None])
        self.stamp = self.watermark + draw.randrange(8)
        match draw.randrange(22):
            case 0 | 1:
                self.both(self.value, key, space, lambda s: s.update(some))
            case 2 | 3:
                self.both(self.value, key, space, lambda s: s.value())
            case 4:
                self.both(self.sum, key, space, lambda s: (s.add(len(some)), s.get()))
            case 5:
                self.both(self.last, key, space, lambda s: (s.add(len(some)), s.get()))
            case 6:
                self.both(self.items, key, space, lambda s: s.add(len(some)))
            case 7:
                self.both(self.items, key, space, lambda s: s.add_all(some))
            case 8:
                self.both(self.items, key, space, lambda s: list(s.get()))
            case 9:
                self.both(self.items, key, space, lambda s: s.update(some))
            case 10 | 11:
                self.both(self.map, key, space, lambda s: s.put(own, some))
            case 12:
                self.both(self.map, key, space, lambda s: (s.get(own), s.contains(own)))
            case 13:
                self.both(self.map, key, space, lambda s: (s.is_empty(), list(s.items())))
            case 14:
                self.both(self.map, key, space, lambda s: s.remove(own))
            case 15:
                self.both(draw.choice(self.all), key, space, lambda s: s.clear())
            case 16:
                self.clock.advance_ms(draw.choice([1, 3, 30]))
                self.watermark += draw.choice([1, 3, 30])
                for one in [*self.cold, self.plain]:
                    one.time.passed(self.watermark)
            case 17 | 18:
                for one in [*self.cold, self.plain]:
                    one.time.begin(draw.choice([1, 100]))
            case 19:
                self.frozen = [one.snapshot() for one in self.cold], self.plain.snapshot()
            case 20 if self.frozen is not None:
                self.restore(*self.frozen)
                self.frozen = None
            case 21:
                self.bulk(draw.sample(KEYS, k=3))

    def bulk(self, keys: list[Any]) -> None:
        """Under several keys at a time, of one key group each."""
        for key in keys:
            held, found = as_held(key), []
            (owner,) = [one for one in self.cold if key_group(key, GROUPS) in one.key_groups]
            for one in (owner, self.plain):
                state = one.get_bulk_state(self.value)
                times = [self.stamp] if self.config_is_event else None
                fetched = state.fetch([held], times)
                found.append(repr(fetched.get(held)))
                fetched[held] = [self.stamp]
                state.commit()
            assert found[0] == found[1]

    @property
    def config_is_event(self) -> bool:
        kind = StateTtlConfig.TtlTimeCharacteristic
        return self.config.get_ttl_time_characteristic() is kind.EventTime

    def restore(self, cold: list[Any], plain: Any) -> None:
        tables = [table for frozen in cold for table in frozen.tables()]
        parallelism = self.draw.randint(1, 3)
        kind = self.draw.choice(["memory", "rocksdb", "rocksdb"])
        self.cold = []
        for subtask in range(parallelism):
            new = self.made(kind, subtask, parallelism)
            new.restore(cut(tables, new.key_groups))
            self.cold.append(new)
        self.plain = self.made("memory")
        self.plain.restore(list(plain.tables()))
        for one in [*self.cold, self.plain]:
            one.time.passed(self.watermark)
            for descriptor in self.all:  # what nobody asks for is carried on as it is
                one.namespaced(descriptor)

    def check(self) -> None:
        self.stamp = self.watermark
        for descriptor in self.all:
            keys = [key for one in self.cold for key in one.keys_of(descriptor)]
            assert sorted(map(repr, keys)) == sorted(map(repr, self.plain.keys_of(descriptor)))
        for key in KEYS:
            for space in SPACES:
                self.both(self.value, key, space, lambda s: s.value())
                self.both(self.sum, key, space, lambda s: s.get())
                self.both(self.last, key, space, lambda s: s.get())
                self.both(self.items, key, space, lambda s: list(s.get()))
                self.both(self.map, key, space, lambda s: list(s.items()))


def cut(tables: list[StateTable], groups: KeyGroupRange) -> list[StateTable]:
    found = []
    for table in tables:
        column = table.data.column(KEY_GROUP).to_numpy()
        assert (column[1:] >= column[:-1]).all()
        data = table.data.filter((column >= groups.first) & (column <= groups.last))
        found.append(StateTable(table.name, table.kind, data, table.metadata))
    return found


@pytest.mark.parametrize("seed", seeds(24, least=8))
def test_what_has_left_memory_expires_as_it_would_in_memory(seed: int) -> None:
    draw = random.Random(seed)
    pair = Pair(draw)
    for _ in range(draw.choice([30, 150, 400])):
        pair.step()
    pair.check()


class Late:
    """One key's state by event time, in both backends."""

    def __init__(self, descriptor: Any) -> None:
        builder = StateTtlConfig.new_builder(timedelta(milliseconds=100)).use_event_time()
        descriptor.enable_time_to_live(builder.build())
        self.descriptor = descriptor
        self.stamp: int | None = None
        self.both = [make_backend(kind, range_for(0, 1, 8), 8) for kind in ("memory", "rocksdb")]
        for one in self.both:
            one.time.stamp_of = lambda: self.stamp

    def at(self, stamp: int | None, call: Any) -> Any:
        """What both answer alike."""
        self.stamp = stamp
        found = []
        for one in self.both:
            one.current.key = "k"
            found.append(call(one.namespaced(self.descriptor).of(None)))
        assert found[0] == found[1]
        return found[0]

    def pass_by(self, watermark: int) -> None:
        for one in self.both:
            one.time.passed(watermark)

    def leave(self) -> None:
        """RocksDB has it, and memory has not."""
        self.both[1].time.begin(100)


@pytest.mark.parametrize("kind", ["list", "map"])
def test_a_late_element_does_not_take_along_those_before(kind: str) -> None:
    """RocksDB is swept by the latest stamp, which need not be the last one."""
    late = Late(ListStateDescriptor("l") if kind == "list" else MapStateDescriptor("m"))
    late.pass_by(0)
    for stamp, value in ((500, "long"), (10, "late")):
        late.at(stamp, lambda s, v=value: s.add(v) if kind == "list" else s.put(v, v))
    late.leave()
    late.pass_by(300)
    late.leave()
    late.leave()
    assert [one.keys_of(late.descriptor) for one in late.both] == [["k"], ["k"]]
    assert late.at(None, lambda s: list(s.get() if kind == "list" else s.keys())) == ["long"]


@pytest.mark.parametrize("kind", ["list", "map"])
def test_what_was_overwritten_does_not_come_back(kind: str) -> None:
    """In RocksDB is what would live longer than what was written over it."""
    late = Late(ListStateDescriptor("l") if kind == "list" else MapStateDescriptor("m"))
    late.pass_by(0)
    late.at(500, lambda s: s.add("old") if kind == "list" else s.put("old", 1))
    late.leave()

    def overwrite(state: Any) -> None:
        if kind == "list":
            state.update(["new"])
        else:
            state.put("new", 1)
            state.remove("old")

    late.at(10, overwrite)
    late.pass_by(300)
    assert late.at(None, lambda s: list(s.get() if kind == "list" else s.keys())) == []


def test_what_no_watermark_had_passed_lives_as_long_after_a_restore() -> None:
    late = Late(ValueStateDescriptor("v"))
    late.at(None, lambda s: s.update(1))
    late.leave()
    late.pass_by(1000)
    tables = [list(one.snapshot().tables()) for one in late.both]
    late = Late(ValueStateDescriptor("v"))
    for one, some in zip(late.both, tables, strict=True):
        one.restore(some)
        one.namespaced(late.descriptor)
    late.pass_by(1050)
    assert late.at(None, lambda s: s.value()) == 1
    late.pass_by(1101)
    assert late.at(None, lambda s: s.value()) is None

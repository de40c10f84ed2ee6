"""Snapshots of the row face that continue others: whatever is read, written, changed in place,
removed, or expires in between, and whichever snapshots fail, the layers of the newest complete one
are what a whole snapshot was then, in the same order, at any parallelism."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pytest
from strom.checkpoint.increments import Increments
from strom.checkpoint.layers import flattened
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.snapshot_io import read_operator, write_subtask
from strom.checkpoint.storage import open_storage
from strom.core.clock import VirtualClock
from strom.core.errors import CorruptCheckpointError
from strom.core.ids import KeyGroupRange, TaskId
from strom.core.key_kinds import held_key
from strom.state.backend import KeyedSnapshot, StateTable
from strom.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from strom.state.encoding import decode
from strom.state.exact_keys import NotExactError, equal_bytes, exact_bytes
from strom.state.increments import Since
from strom.state.key_groups import range_for
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.ttl import StateTtlConfig

MAX = 8
TTL = 40

KEYS: dict[str, Callable[[int], Any]] = {
    "int": lambda n: n,
    "text": lambda n: f"k{n}",
    "pair": lambda n: (f"k{n % 7}", n),
    "mixed": lambda n: [n, float(n), n % 2 == 1, f"k{n}", (n, n + 0.5), dt.date.fromordinal(n + 1)][
        n % 6
    ],
}
VALUES: dict[str, Callable[[random.Random], Any]] = {
    "numbers": lambda rng: rng.randrange(1000),
    "any": lambda rng: rng.choice([rng.randrange(9), "text", 1.5, (1, "x"), b"b"]),
    "lists": lambda rng: [rng.randrange(9)],
    "few lists": lambda rng: [rng.randrange(9)] if rng.random() < 0.05 else rng.randrange(9),
}


class Pair(NamedTuple):
    first: int
    second: int


class Color(Enum):
    RED = 1


class Gathered:
    """Its accumulator is a list, or a tuple; the result may be the accumulator itself."""

    def __init__(self, mutable: bool) -> None:
        self._mutable = mutable

    def create_accumulator(self) -> Any:
        return [] if self._mutable else ()

    def add(self, value: Any, accumulator: Any) -> Any:
        if self._mutable:
            accumulator.append(str(value))
            return accumulator
        return (*accumulator[-3:], str(value))

    def get_result(self, accumulator: Any) -> Any:
        return accumulator


def joined(a: Any, b: Any) -> Any:
    if isinstance(a, list):
        a.append(str(b))
        return a
    return b


def descriptor_of(kind: str, mutable: bool, ttl: StateTtlConfig | None) -> Any:
    made: Any = {
        "value": lambda: ValueStateDescriptor("s"),
        "list": lambda: ListStateDescriptor("s"),
        "map": lambda: MapStateDescriptor("s"),
        "reducing": lambda: ReducingStateDescriptor("s", joined),
        "aggregating": lambda: AggregatingStateDescriptor("s", Gathered(mutable)),
    }[kind]()
    if ttl is not None:
        made.enable_time_to_live(ttl)
    return made


def ttl_of(rng: random.Random) -> StateTtlConfig | None:
    if rng.random() < 0.4:
        return None
    made = StateTtlConfig.new_builder(dt.timedelta(milliseconds=TTL))
    if rng.random() < 0.5:
        made = made.update_ttl_on_read_and_write()
    if rng.random() < 0.5:
        made = made.return_expired_if_not_cleaned_up()
    if rng.random() < 0.5:
        made = made.use_event_time()
    return made.build()


def contents(snapshot: KeyedSnapshot) -> dict[Any, list[Any]]:
    """By namespace and key what is stored, in its order."""
    found: dict[Any, list[Any]] = {}
    for table in snapshot.tables():
        if table.name != "s":
            continue
        assert table.layer == "whole"
        columns = {n: decode(table.data.column(n), e, n) for n, e in table.metadata.items()}
        rest = [n for n in columns if n not in ("namespace", "key")]
        assert {*table.data.column_names} == {"__key_group", *columns}
        for row, (space, key) in enumerate(zip(columns["namespace"], columns["key"], strict=True)):
            entry = tuple(columns[name][row] for name in rest)
            found.setdefault((space, held_key(key)), []).append(entry)
    return found


class Run:
    """A state, and its snapshots as a task and a coordinator take them."""

    def __init__(self, kind: str, seed: int, folder: str) -> None:
        self.rng = rng = random.Random(f"{kind} {seed}")
        self.kind = kind
        self.clock = VirtualClock()
        self.key = KEYS[rng.choice(list(KEYS))]
        self.value = VALUES[rng.choice(list(VALUES))]
        self.spread = rng.choice([3, 60, 60, 400])
        self.descriptor = descriptor_of(kind, rng.random() < 0.5, ttl_of(rng))
        self.storage = open_storage(folder, "job")
        self.state = self.backend()
        self.spaces = rng.choice([[None], [None], [(0, 10), (10, 20), (20, 30)]])
        self.increments = Increments()
        self.n = self.base = 0
        self.manifest: Manifest | None = None
        self.expected: dict[Any, Any] = {}
        self.layers: set[str] = set()

    def backend(self, subtask: int = 0, parallelism: int = 1) -> MemoryKeyedStateBackend:
        return MemoryKeyedStateBackend(range_for(subtask, parallelism, MAX), MAX, self.clock)

    def view(self) -> Any:
        self.state.set_current_key(self.key(self.rng.randrange(self.spread)))
        space = self.rng.choice(self.spaces)
        if space is None:
            getter = getattr(self.state, f"get_{self.kind}_state".replace("value_", ""))
            return getter(self.descriptor)
        return self.state.namespaced(self.descriptor).of(space)

    def access(self) -> None:
        for _ in range(self.rng.choice([1, 2, 30])):
            self.once(self.view())

    def once(self, state: Any) -> None:
        rng = self.rng
        match self.kind:
            case "value":
                actions: list[Any] = [lambda: state.update(self.value(rng))] * 2
                actions += [lambda: self.change(state.value()), state.clear]
            case "list":
                actions = [lambda: state.add(self.value(rng))] * 4
                actions += [lambda: state.add_all([self.value(rng) for _ in range(3)])]
                actions += [lambda: state.update([self.value(rng)])]
                actions += [lambda: [self.change(one) for one in state.get()], state.clear]
            case "map":
                entry = rng.choice([rng.randrange(9), float(rng.randrange(3)), "x", True])
                actions = [lambda: state.put(entry, self.value(rng))] * 4
                actions += [lambda: state.put_all({entry: 1, "y": self.value(rng)})]
                actions += [lambda: self.change(state.get(entry)), lambda: state.remove(entry)] * 2
                actions += [lambda: [self.change(one) for one in state.values()]]
                actions += [lambda: [self.change(one) for _, one in state.items()]]
                actions += [lambda: (state.contains(entry), state.is_empty(), state.keys())]
                actions += [state.clear]
            case _:
                actions = [lambda: state.add(self.value(rng))] * 2
                actions += [lambda: self.change(state.get()), state.clear]
        rng.choice(actions)()

    def change(self, value: Any) -> None:
        """As functions may do with what they have read."""
        if isinstance(value, list) and self.rng.random() < 0.7:
            value.append("changed")

    def fire(self) -> None:
        """A window is over: nothing is left in its namespace."""
        if None in self.spaces:
            return
        space = self.rng.choice(self.spaces)
        view = self.state.namespaced(self.descriptor)
        for number in range(self.spread):
            self.state.set_current_key(self.key(number))
            view.of(space).clear()

    def bulk(self) -> None:
        if self.kind != "value" or None not in self.spaces:
            return
        keys = [held_key(self.key(self.rng.randrange(self.spread))) for _ in range(5)]
        by_event = self.state.time.by_event
        bulk = self.state.get_bulk_state(self.descriptor)
        held = bulk.fetch(keys, [self.state.time.watermark + 5] * 5 if by_event else None)
        for key in keys:
            held[key] = self.value(self.rng)
        bulk.commit()

    def later(self) -> None:
        self.clock.advance_ms(self.rng.choice([1, 5, 20]))
        if self.rng.random() < 0.5:
            self.state.time.passed(self.clock.now_ms())
        else:
            self.state.time.begin(self.rng.choice([1, 3]))

    def whole(self) -> Any:
        return contents(self.state.snapshot())

    def savepoint(self) -> None:
        self.whole()

    def snapshot(self) -> None:
        self.n += 1
        increment = self.increments.begin(self.n, self.base)
        whole = self.whole()
        frozen = self.state.snapshot(increment.since("op"))
        self.access()  # while it is being encoded
        if self.rng.random() < 0.2:
            return  # it failed before it was written
        part = write_subtask(
            self.storage, self.n, TaskId("v", 0), [("op", frozen, None)], layers=increment.layers
        )
        self.increments.written(self.n, part)
        if self.rng.random() < 0.3:
            return  # another task failed
        self.base, self.expected = self.n, whole
        shape = OperatorShape("op", "Op", 1, MAX)
        self.manifest = Manifest("job", "Job", self.n, 0, (shape,), (part,))
        self.layers |= {h.layer for h in part.operators[0].keyed if h.name == "s"}
        self.check()

    def check(self) -> None:
        """What the newest complete snapshot restores to."""
        assert self.manifest is not None
        parallelism = self.rng.choice([1, 2, 3])
        found: dict[Any, Any] = {}
        for subtask in range(parallelism):
            tables, _ = read_operator(self.storage, self.manifest, "op", subtask, parallelism, MAX)
            carried = self.backend(subtask, parallelism)
            carried.restore(tables)
            mine = contents(carried.snapshot())
            state = self.backend(subtask, parallelism)
            state.restore(tables)
            state.namespaced(self.descriptor)
            used = contents(state.snapshot())
            if self.descriptor.ttl_config is None:
                assert mine == used
            assert not used.keys() & found.keys()
            found |= used
        assert found == self.expected

    def go(self, steps: int) -> None:
        actions = [self.access] * 8 + [self.snapshot] * 5
        actions += [self.later, self.later, self.savepoint, self.bulk, self.fire]
        for _ in range(steps):
            self.rng.choice(actions)()


KINDS = ("value", "list", "map", "reducing", "aggregating")


@pytest.mark.parametrize("kind", KINDS)
def test_any_course_of_events(kind: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    for seed in range(SEEDS):
        with monkeypatch.context() as patched:
            patched.setattr("strom.state.row_changes.FEWEST", random.Random(seed).choice([5, 4096]))
            run = Run(kind, seed, str(tmp_path / str(seed)))
            run.go(60)
            seen |= run.layers
    assert seen == {"base", "delta"}


def filled_with(kind: str, keys: int) -> tuple[MemoryKeyedStateBackend, Any]:
    """A state of so many keys, of which a complete snapshot, the first, was taken."""
    state = MemoryKeyedStateBackend(KeyGroupRange(0, MAX - 1), MAX)
    view = state.namespaced(descriptor_of(kind, False, None))
    for number in range(keys):
        state.set_current_key(number)
        write(kind, view.of(None))
    (base,) = state.snapshot(Since(1, 0)).tables()
    assert (base.layer, base.data.num_rows) == ("base", keys)
    return state, view


def write(kind: str, state: Any, value: int = 1) -> None:
    match kind:
        case "map":
            state.put(f"entry {value}", value)
        case "value":
            state.update(value)
        case _:
            state.add(value)


def rows_of(snapshot: KeyedSnapshot) -> list[tuple[bool, Any]]:
    """Of a delta: whether something is removed, and the value that is there."""
    assert set(snapshot.continued) == {"s"}
    tables = list(snapshot.tables())
    return [(row["__removed"], row["value"]) for table in tables for row in table.data.to_pylist()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_delta_holds_what_changed_and_nothing_else(kind: str) -> None:
    state, view = filled_with(kind, 100)
    state.set_current_key(5)
    write(kind, view.of(None), 2)
    state.set_current_key(7)
    view.of(None).clear()
    found = rows_of(state.snapshot(Since(2, 1)))
    (there,) = [value for removed, value in found if not removed]
    if kind == "aggregating":
        assert pickle.loads(there) == ("1", "2")
    else:
        assert there == 2
    assert sorted(removed for removed, _ in found) == [False, True]
    assert rows_of(state.snapshot(Since(3, 2))) == []


def test_reading_is_no_change_unless_values_may_be_changed_in_place() -> None:
    state, view = filled_with("value", 100)
    for number in range(50):
        state.set_current_key(number)
        view.of(None).value()
    assert rows_of(state.snapshot(Since(2, 1))) == []
    view.of(None).update([1])
    assert len(rows_of(state.snapshot(Since(3, 2)))) == 1
    view.of(None).value().append(2)
    assert len(rows_of(state.snapshot(Since(4, 3)))) == 1


def test_a_namespace_that_went_before_a_snapshot_failed_is_gone() -> None:
    state, view = filled_with("value", 100)
    for number in range(10):
        state.set_current_key(number)
        view.of((0, 10)).update(number)
    state.snapshot(Since(2, 1))
    for number in range(10):
        state.set_current_key(number)
        view.of((0, 10)).clear()
    state.snapshot(Since(3, 2))  # fails
    assert rows_of(state.snapshot(Since(4, 2))) == [(True, None)] * 10
    # One that came and went since is in no layer.
    view.of((10, 20)).update(1)
    view.of((10, 20)).clear()
    assert rows_of(state.snapshot(Since(5, 4))) == []


@pytest.mark.parametrize("ttl", [False, True])
@pytest.mark.parametrize(
    "keys", [[(True, 1)], [(1, 1.0), ("x", "x")], [(0.0, -0.0)], [((1,), (True,))]]
)
def test_an_entry_that_is_written_again_keeps_its_key(keys: list[Any], ttl: bool) -> None:
    """To a dict 1 and True are one key: the one that came first."""
    state = MemoryKeyedStateBackend(KeyGroupRange(0, MAX - 1), MAX)
    descriptor = MapStateDescriptor("s")
    if ttl:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(10**9).build())
    view = state.get_map_state(descriptor)
    for number in range(20):
        state.set_current_key(number)
        view.put_all({first: number for first, _ in keys})
    layers = list(state.snapshot(Since(1, 0)).tables())
    state.set_current_key(3)
    view.put_all({second: 100 for _, second in keys})
    layers += state.snapshot(Since(2, 1)).tables()
    assert [layer.layer for layer in layers] == ["base", "delta"]
    other = MemoryKeyedStateBackend(KeyGroupRange(0, MAX - 1), MAX)
    other.restore(flattened(layers))
    other.set_current_key(3)
    found = repr(list(other.get_map_state(descriptor).items()))
    assert found == repr(list(view.items())) == repr([(first, 100) for first, _ in keys])


def test_keys_without_exact_bytes_are_written_whole() -> None:
    state, view = filled_with("value", 100)
    state.set_current_key(Color.RED)
    view.of(None).update(1)
    frozen = state.snapshot(Since(2, 1))
    assert not frozen.continued
    assert [table.layer for table in frozen.tables()] == ["whole"]
    assert [table.layer for table in state.snapshot(Since(3, 2)).tables()] == ["whole"]
    other = MemoryKeyedStateBackend(KeyGroupRange(0, MAX - 1), MAX)
    other.set_current_key(Color.RED)
    other.get_state(ValueStateDescriptor("s")).update(1)
    assert [table.layer for table in other.snapshot(Since(1, 0)).tables()] == ["whole"]
    assert [table.layer for table in other.snapshot(Since(2, 1)).tables()] == ["whole"]


TEXT = "".join(["te", "xt"])

ONE = [
    [(0.0,), (-0.0,)],
    [Decimal("1.5"), Decimal("1.50")],
    [("text", "text"), (TEXT, "text")],
    [(1, 2), Pair(1, 2)],
]
OTHERS = [1, 1.0, True, "1", b"1", None, (1,), (True,), ((1,),), 2**70, 0.5, UUID(int=1), ()]
OTHERS += [dt.date(1, 1, 1), dt.datetime(1, 1, 1), dt.timedelta(1), dt.time(1), ("a", "b")]


def test_bytes_are_equal_if_keys_are_one() -> None:
    for first, second in ONE:
        assert held_key(first) == held_key(second)
        assert exact_bytes([None], [first]) == exact_bytes([None], [held_key(second)])
    keys = [*OTHERS, *(first for first, _ in ONE)]
    assert len(set(exact_bytes([None] * len(keys), keys))) == len(keys)
    assert len(set(exact_bytes([None, (0, 1), (0, 2)], [1, 1, 1]))) == 3
    assert len(set(equal_bytes([1, 1.0, True]))) == 1
    assert len(set(equal_bytes([(1, "a"), (1.0, "a"), (True, "a")]))) == 1
    assert len(set(equal_bytes(OTHERS))) == len(set(OTHERS))
    for odd in (np.int64(1), Color.RED, frozenset(), dt.datetime(1, 1, 1, tzinfo=dt.UTC)):
        with pytest.raises(NotExactError):
            exact_bytes([None], [odd])
    for odd in (float("nan"), Decimal(1)):
        with pytest.raises(NotExactError):
            equal_bytes([odd])


def test_layers_of_maps_that_say_nothing_of_their_rows_are_refused() -> None:
    state, view = filled_with("map", 100)
    state.set_current_key(5)
    write("map", view.of(None), 2)
    base = next(iter(state.snapshot(Since(9, 0)).tables()))
    write("map", view.of(None), 3)
    delta = next(iter(state.snapshot(Since(10, 9)).tables()))
    assert sum(table.data.num_rows for table in flattened([base, delta])) == 102
    bare = replace(base, data=base.data.drop_columns(["__part"]))
    with pytest.raises(CorruptCheckpointError, match="__part"):
        flattened([bare, delta])


class TimerRun(Run):
    """The same of a timer queue: its timers by key group, in order of registration."""

    def __init__(self, seed: int, folder: str) -> None:
        super().__init__("value", seed, folder)
        self.now = 0

    def timer(self) -> tuple[int, Any, Any]:
        return (
            self.now + self.rng.randrange(self.rng.choice([3, 200])),
            held_key(self.key(self.rng.randrange(self.spread))),
            self.rng.choice(self.spaces),
        )

    def access(self) -> None:
        queue = self.state.timers("s")
        for _ in range(self.rng.choice([1, 2, 30])):
            if self.rng.random() < 0.7:
                queue.register(*self.timer())
            else:
                queue.delete(*self.rng.choice([self.timer(), *self.waiting[-20:]]))

    @property
    def waiting(self) -> list[Any]:
        return [timer[:3] for timer in self.state.timers("s").freeze_all("s").timers()]

    def later(self) -> None:
        queue = self.state.timers("s")
        self.now += self.rng.choice([1, 10])
        for _ in range(self.rng.choice([1, 3, 100])):
            if queue.pop_due(self.now) is None:
                break

    def bulk(self) -> None:
        self.state.validate()

    fire = later

    def rows(self, snapshot: KeyedSnapshot) -> list[Any]:
        return [row for table in snapshot.tables() for row in timers_of(table)]

    def whole(self) -> Any:
        return self.rows(self.state.snapshot())

    def check(self) -> None:
        assert self.manifest is not None
        parallelism = self.rng.choice([1, 2, 3])
        found: list[Any] = []
        for subtask in range(parallelism):
            tables, _ = read_operator(self.storage, self.manifest, "op", subtask, parallelism, MAX)
            state = self.backend(subtask, parallelism)
            state.restore(tables)
            state.timers("s")
            state.validate()
            found += self.rows(state.snapshot())
        assert found == self.expected


def timers_of(table: StateTable) -> list[Any]:
    columns = [table.data.column("timestamp").to_pylist()]
    for name in ("key", "namespace"):
        columns.append(decode(table.data.column(name), table.metadata[name], name))
    return [(at, held_key(key), space) for at, key, space in zip(*columns, strict=True)]


def test_any_course_of_events_of_timers(tmp_path: Any) -> None:
    seen: set[str] = set()
    for seed in range(2 * SEEDS):
        run = TimerRun(seed, str(tmp_path / str(seed)))
        run.go(60)
        seen |= run.layers
    assert seen == {"base", "delta"}


SEEDS = 6

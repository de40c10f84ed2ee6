"""A state of the row face through random courses of events, and its snapshots as a task and a
coordinator take them."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

from strom.checkpoint.increments import Increments
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.snapshot_io import read_operator, write_subtask
from strom.checkpoint.storage import open_storage
from strom.core.clock import VirtualClock
from strom.core.ids import TaskId
from strom.core.key_kinds import held_key
from strom.state.backend import KeyedSnapshot
from strom.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from strom.state.encoding import decode
from strom.state.key_groups import range_for
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.ttl import StateTtlConfig

MAX = 8
TTL = 40
SEEDS = 6
"""So many courses of each kind."""

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
        self.written: list[tuple[int, Any, Any]] = []
        """Those of which it is not known whether they are complete, with what they hold."""

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
        full = self.rng.random() < 0.1
        increment = self.increments.begin(self.n, 0 if full else self.base)
        whole = self.whole()
        frozen = self.state.snapshot(increment.since("op"))
        self.access()  # while it is being encoded
        if self.rng.random() < 0.2:
            return  # it failed before it was written
        part = write_subtask(
            self.storage, self.n, TaskId("v", 0), [("op", frozen, None)], layers=increment.layers
        )
        self.increments.written(self.n, part)
        self.written.append((self.n, part, whole))
        if self.rng.random() < 0.7 or self.descriptor.ttl_config is not None:
            self.settle()  # else others are taken while it is on its way, and what is in it expires

    def settle(self) -> None:
        """It becomes known of one that is written whether it is complete; those before it fail."""
        if not self.written:
            return
        n, part, whole = self.written.pop(self.rng.randrange(len(self.written)))
        if self.rng.random() < 0.3:
            return  # another task failed
        self.written = [one for one in self.written if one[0] > n]
        self.base, self.expected = n, whole
        shape = OperatorShape("op", "Op", 1, MAX)
        self.manifest = Manifest("job", "Job", n, 0, (shape,), (part,))
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
        actions += [self.later, self.later, self.savepoint, self.bulk, self.fire, self.settle]
        for _ in range(steps):
            self.rng.choice(actions)()

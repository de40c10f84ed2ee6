"""Golden checkpoints of the row face: states and timers per key, in memory and in RocksDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
from backends import TINY
from golden_case import MAX_PARALLELISM, NOW_MS, WRITTEN_BY, Restored
from golden_classes import Place, Reading, Visit
from strom import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Row,
    StateTtlConfig,
    Types,
    ValueStateDescriptor,
)
from strom.core.clock import VirtualClock
from strom.core.ids import CheckpointId
from strom.state.backend import AccColumn, KeyedSnapshot
from strom.state.hashing import stable_hash
from strom.state.increments import Since
from strom.state.key_groups import key_groups_of, range_for
from strom.state.keyed_state import KeyedStates
from strom.state.memory import MemoryKeyedStateBackend


class Spread(AggregateFunction):
    """The least and the greatest: an accumulator that is a tuple."""

    def create_accumulator(self) -> Any:
        return None

    def add(self, value: int, accumulator: Any) -> Any:
        low, high = accumulator or (value, value)
        return min(low, value), max(high, value)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return min(acc_a[0], acc_b[0]), max(acc_a[1], acc_b[1])


def _larger(one: int, other: int) -> int:
    return max(one, other)


DECLARED = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])

_KEYS: dict[str, Sequence[Any]] = {
    "int": [1, 2, 3, 2**40],
    "text": ["a", "b", "", "ü"],
    "pair": [(1, "a"), (2, "b"), (3, None)],
    "row": [Row(a=1, b="x"), Row(a=2, b="y")],
}

_NAMESPACES = [None, (0, 10), "named"]


def _descriptors(ttl: str) -> list[Any]:
    made = [
        ValueStateDescriptor("value", Types.LONG()),
        ValueStateDescriptor("objects"),
        ValueStateDescriptor("rows", DECLARED),
        ListStateDescriptor("list"),
        MapStateDescriptor("map", Types.STRING(), Types.DOUBLE()),
        ReducingStateDescriptor("reducing", _larger),
        AggregatingStateDescriptor("aggregating", Spread()),
    ]
    if ttl:
        config = StateTtlConfig.new_builder(timedelta(days=1))
        if ttl == "event":
            config.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.EventTime)
        for descriptor in made:
            descriptor.enable_time_to_live(config.build())
    return made


@dataclass(frozen=True)
class RowCase:
    """The five kinds of state, each outside namespaces and in two, and timers."""

    keys: str
    ttl: str

    def backend(self, subtask: int, parallelism: int) -> MemoryKeyedStateBackend:
        groups = range_for(subtask, parallelism, MAX_PARALLELISM)
        backend = MemoryKeyedStateBackend(groups, MAX_PARALLELISM, VirtualClock(NOW_MS))
        return backend

    def writer(self, subtask: int) -> MemoryKeyedStateBackend:
        return self.backend(subtask, WRITTEN_BY)

    def snapshot(self, subtask: int) -> KeyedSnapshot:
        return self.fill(subtask).snapshot()

    def fill(self, subtask: int) -> MemoryKeyedStateBackend:
        backend = self.writer(subtask)
        for at, key in enumerate(_KEYS[self.keys]):
            if stable_hash(key) % MAX_PARALLELISM not in backend.key_groups:
                continue
            backend.time.begin(1)
            backend.set_current_key(key)
            for space, namespace in enumerate(_NAMESPACES):
                states = [backend.namespaced(d).of(namespace) for d in _descriptors(self.ttl)]
                value, objects, rows, listed, mapped, reducing, aggregating = states
                number = 10 * at + space
                value.update(number)
                objects.update({"n": number, "more": [number, None, 1.5]})
                rows.update(Row(n=number, text=f"t{number}"))
                listed.add_all([number, str(number)])
                mapped.put_all({"x": number / 4, "y": 0.5})
                reducing.add(number)
                aggregating.add(number)
                aggregating.add(-number)
            backend.timers("timers").register(100 + at, backend.current.key, None)
            backend.timers("timers").register(50, backend.current.key, (0, 10))
        return backend

    def read(self, shares_: Sequence[Restored]) -> list[str]:
        from strom.core.key_kinds import given

        found = []
        for share in shares_:
            backend = self.backend(share.subtask, share.parallelism)
            backend.restore(share.tables.keyed)
            for key in _KEYS[self.keys]:
                if stable_hash(key) % MAX_PARALLELISM not in backend.key_groups:
                    continue
                backend.set_current_key(key)
                for namespace in _NAMESPACES:
                    states = [backend.namespaced(d).of(namespace) for d in _descriptors(self.ttl)]
                    value, objects, rows, listed, mapped, reducing, aggregating = states
                    rows.value().text.upper()
                    seen = (
                        value.value(),
                        objects.value(),
                        rows.value(),
                        list(listed.get()),
                        sorted(mapped.items()),
                        reducing.get(),
                        aggregating.get(),
                    )
                    found.append(f"{key!r} {namespace!r}: {seen!r}")
            timers = backend.timers("timers")
            while (due := timers.pop_due(1000)) is not None:
                found.append(f"timer {due[0]} {given(due[1])!r} {due[2]!r}")
        return sorted(found)


_COLD_KEYS = pa.schema([("k", pa.int64()), ("text", pa.string())])
_COLD_COLUMNS = (AccColumn("n", "int64"), AccColumn("x", "float64", 0.5))


class ColdCase(RowCase):
    """The same in RocksDB, of which the checkpoint has the files, and a table of numbers; some keys
    of both are in memory, too. It is read into memory."""

    def writer(self, subtask: int) -> MemoryKeyedStateBackend:
        groups = range_for(subtask, WRITTEN_BY, MAX_PARALLELISM)
        made = KeyedStates(TINY).make(groups, MAX_PARALLELISM, VirtualClock(NOW_MS))
        assert isinstance(made, MemoryKeyedStateBackend)
        return made

    def read(self, shares_: Sequence[Restored]) -> list[str]:
        found = super().read(shares_)
        for share in shares_:
            backend = self.backend(share.subtask, share.parallelism)
            backend.restore(share.tables.keyed)
            table = backend.table("table", _COLD_KEYS, _COLD_COLUMNS).table()
            keys = table.keys()
            numbers = [table.column(c.name)[table.find(keys)].tolist() for c in _COLD_COLUMNS]
            found += [f"table {row!r}" for row in zip(keys.to_pylist(), *numbers, strict=True)]
        return sorted(found)

    def snapshot(self, subtask: int) -> KeyedSnapshot:
        backend = self.fill(subtask)
        schema, columns = _COLD_KEYS, _COLD_COLUMNS
        keys = pa.RecordBatch.from_pydict(
            {"k": [1, 2, None, 2**40, -5, 6], "text": ["a", None, "", "ü", "e", "f"]}, schema
        )
        mine = key_groups_of(keys, MAX_PARALLELISM)
        own = (mine >= backend.key_groups.first) & (mine <= backend.key_groups.last)
        keys = keys.filter(pa.array(own))
        for _ in range(2):
            table = backend.table("table", schema, columns, cold=True).table()
            slots = table.slots(keys)
            table.column("n")[slots] += 1 + slots
            backend.time.begin(1)
        slots = table.slots(keys.slice(0, 1))
        table.column("n")[slots] += 100
        if backend.get_current_key() is not None:
            value = backend.get_state(_descriptors(self.ttl)[0])
            value.update((value.value() or 0) + 1)
        snapshot = backend.snapshot(Since(CheckpointId(1)))
        assert snapshot.database is not None
        return snapshot


class FieldsCase(RowCase):
    """Objects of dataclasses and named tuples, whose pickles hold the names of their fields."""

    def fill(self, subtask: int) -> MemoryKeyedStateBackend:
        backend = self.writer(subtask)
        for at, key in enumerate(_KEYS[self.keys]):
            if stable_hash(key) % MAX_PARALLELISM not in backend.key_groups:
                continue
            backend.time.begin(1)
            backend.set_current_key(key)
            value, listed, mapped = self._states(backend)
            value.update(Reading(f"s{at}", at / 4))
            listed.add_all([Visit(Place(at, -at), at), Visit(Place(0, at)), at])
            mapped.put(Place(at, 1), {"all": [Reading("last", 1.0)]})
        return backend

    def read(self, shares_: Sequence[Restored]) -> list[str]:
        found = []
        for share in shares_:
            backend = self.backend(share.subtask, share.parallelism)
            backend.restore(share.tables.keyed)
            for key in _KEYS[self.keys]:
                if stable_hash(key) % MAX_PARALLELISM not in backend.key_groups:
                    continue
                backend.set_current_key(key)
                value, listed, mapped = self._states(backend)
                seen = value.value(), list(listed.get()), list(mapped.items())
                assert type(seen[0]) is Reading
                assert type(seen[1][0]) is Visit
                found.append(f"{key!r}: {seen!r}")
        return sorted(found)

    def _states(self, backend: MemoryKeyedStateBackend) -> list[Any]:
        return [
            backend.get_state(ValueStateDescriptor("value")),
            backend.get_list_state(ListStateDescriptor("list")),
            backend.get_map_state(MapStateDescriptor("map")),
        ]


ROW_CASES: dict[str, RowCase] = {
    **{f"rows_{keys}": RowCase(keys, "") for keys in _KEYS},
    "rows_ttl": RowCase("int", "processing"),
    "rows_event_ttl": RowCase("text", "event"),
    "rows_rocksdb": ColdCase("int", ""),
    "rows_rocksdb_objects": ColdCase("pair", ""),
    "rows_rocksdb_ttl": ColdCase("int", "processing"),
    "rows_rocksdb_event_ttl": ColdCase("text", "event"),
    "rows_fields": FieldsCase("text", ""),
}

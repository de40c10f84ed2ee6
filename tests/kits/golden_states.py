"""Golden checkpoints: what is in one, how it is written, and what a restored one holds and emits.

A set is a folder `tests/golden/v<format>` with `checkpoint.zip`, a checkpoint's folder whose
operators are the cases below, and `expected.json`: for each what it holds, and what it emits when
it goes on. The set of the present version is written by `python tests/golden/make.py`; those of
earlier versions are only read.
"""

from __future__ import annotations

import hashlib
import pickle
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
from backends import TINY
from golden_classes import Place, Reading, Visit
from strom import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ColumnBatch,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Row,
    StateTtlConfig,
    Types,
    ValueStateDescriptor,
)
from strom.api.connectors.base import EnumeratorContext, Source
from strom.api.connectors.collection import CollectionSource
from strom.benchmarks.states import STATES, State, records
from strom.checkpoint.folder_storage import open_folder
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.snapshot_io import read_operator, write_subtask
from strom.checkpoint.storage import CheckpointStorage
from strom.connectors.datagen import DataGenSource, NumberSequenceSource
from strom.core.clock import VirtualClock
from strom.core.ids import CheckpointId, OperatorId, TaskId, VertexId
from strom.state.backend import AccColumn, KeyedSnapshot, StateTable
from strom.state.encoding import PICKLE, decode
from strom.state.increments import Since
from strom.state.key_groups import key_groups_of, range_for
from strom.state.keyed_state import KeyedStates
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.operator_state import OperatorStateBackend
from strom.testing import OperatorHarness
from strom.testing.operator_harness import OperatorSnapshotTables

GOLDEN = Path(__file__).parent.parent / "golden"
MAX_PARALLELISM = 16
WRITTEN_BY = 2
"""Subtasks that a set's operators had."""

KEYS = 6
NOW_MS = 1_000


def sets() -> list[Path]:
    """The folders of all versions' sets."""
    return sorted(path for path in GOLDEN.glob("v*") if path.is_dir())


def checkpoint_of(folder: Path, scratch: Path) -> tuple[CheckpointStorage, Manifest]:
    """The checkpoint of a set, unpacked under `scratch` and verified."""
    with zipfile.ZipFile(folder / "checkpoint.zip") as packed:
        packed.extractall(scratch)
    (found,) = scratch.glob("*/chk-*")
    return open_folder(str(found), validate=True)


@dataclass(frozen=True)
class Restored:
    """One subtask's share of an operator's state, as read from a checkpoint."""

    subtask: int
    parallelism: int
    tables: OperatorSnapshotTables


def shares(
    storage: CheckpointStorage, manifest: Manifest, case: str, parallelism: int
) -> list[Restored]:
    made = []
    for subtask in range(parallelism):
        keyed, operator = read_operator(
            storage, manifest, OperatorId(case), subtask, parallelism, MAX_PARALLELISM
        )
        tables = OperatorSnapshotTables(tuple(keyed), tuple(operator), NOW_MS)
        made.append(Restored(subtask, parallelism, tables))
    return made


# --- operators ------------------------------------------------------------------------------------


def _harness(state: State, subtask: int, parallelism: int, restored: Any) -> OperatorHarness:
    groups = range_for(subtask, parallelism, MAX_PARALLELISM)
    return OperatorHarness.of(
        state.stream(),
        max_parallelism=MAX_PARALLELISM,
        key_groups=groups,
        start_ms=NOW_MS,
        restored=restored,
    )


def _push(harness: OperatorHarness, state: State, data: pa.RecordBatch, port: int) -> None:
    """What is the subtask's; of a broadcast input all."""
    groups = key_groups_of(data.select(["k"]), MAX_PARALLELISM)
    own = harness.context.key_groups
    mine = pa.array((groups >= own.first) & (groups <= own.last))
    if "broadcast" not in _name(state) or port == 0:
        data = data.filter(mine)
    if data.num_rows:
        harness.push(ColumnBatch(data, data.column("t").to_numpy()), port=port)


def _name(state: State) -> str:
    return next(name for name, one in STATES.items() if one is state)


def _filled(state: State, subtask: int) -> OperatorHarness:
    harness = _harness(state, subtask, WRITTEN_BY, None)
    for port in state.ports:
        _push(harness, state, records(0, KEYS), port)
    for port in state.ended:
        harness.end_input(port)
    harness.output.elements.clear()
    return harness


def _emitted(state: State, share: Restored) -> list[str]:
    """What comes when it goes on: known keys and new ones, and then the end."""
    harness = _harness(state, share.subtask, share.parallelism, share.tables)
    ports = [port for port in (0, 1) if port not in state.ended]
    for port in ports[: len(signature(state.build).parameters)]:
        if "broadcast" in _name(state) and port == 1:
            continue
        _push(harness, state, records(KEYS - 3, 5), port)
    harness.finish(len(signature(state.build).parameters))
    rows = [repr(row) for row in harness.outputs()]
    harness.close()
    return rows


def _restored_again(state: State, share: Restored) -> OperatorSnapshotTables:
    """The state of an operator that has started from it, as its next checkpoint holds it."""
    harness = _harness(state, share.subtask, share.parallelism, share.tables)
    tables = harness.snapshot()
    harness.close()
    return tables


def held(shares_: Sequence[OperatorSnapshotTables]) -> dict[str, list[str]]:
    """All rows of all states, as text in an order that does not depend on the subtasks."""
    found: dict[str, list[str]] = {}
    for one in shares_:
        for table in one.keyed:
            found.setdefault(f"{table.kind} {table.name}", []).extend(_rows(table))
        for state in one.operator:
            name = f"{state.mode} {state.name}"
            items = [repr(pickle.loads(item)) for item in state.items]
            if state.mode == "split":
                found.setdefault(name, []).extend(items)
            elif items:
                found[name] = items
    return {name: sorted(rows) for name, rows in sorted(found.items()) if rows}


_OF_ONE_SUBTASK = ("sequence",)
"""Columns whose numbers start anew in each subtask."""


def _rows(table: StateTable) -> Iterator[str]:
    names = [name for name in table.data.column_names if name not in _OF_ONE_SUBTASK]
    columns = []
    for name in names:
        column = table.data.column(name)
        if table.metadata.get(name) == PICKLE:
            columns.append(decode(column, PICKLE, name))
        else:
            columns.append(column.to_pylist())
    for row in zip(*columns, strict=True):
        yield repr(dict(zip(names, map(_shown, row), strict=True)))


def _shown(value: Any) -> Any:
    """A value for people: schemas in full, for their bytes may differ from one Arrow to another."""
    if isinstance(value, bytes) and value.startswith(b"\xff\xff\xff\xff"):
        schema = pa.ipc.read_schema(pa.py_buffer(value))
        return ", ".join(f"{field.name}: {field.type}" for field in schema)
    return value


_MOST_SHOWN = 12


def short(rows: list[str]) -> list[str]:
    """Rows as they are recorded: of very many the first few, their number and a digest of all."""
    if len(rows) <= 3 * _MOST_SHOWN:
        return rows
    digest = hashlib.sha256("\n".join(rows).encode()).hexdigest()
    return [*rows[:_MOST_SHOWN], f"{len(rows)} rows, {digest}"]


# --- the row face ---------------------------------------------------------------------------------


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
        from strom.state.hashing import stable_hash

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
        from strom.state.hashing import stable_hash

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
        from strom.state.hashing import stable_hash

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
        from strom.state.hashing import stable_hash

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

OPERATOR_STATE = "operator_state"


def _filled_operator_state(subtask: int) -> OperatorStateBackend:
    backend = OperatorStateBackend(subtask)
    for at in range(3):
        backend.get_list_state(ListStateDescriptor("split")).add((subtask, at))
        backend.get_union_list_state(ListStateDescriptor("union")).add({"of": subtask, "at": at})
    rules = backend.get_broadcast_state(MapStateDescriptor("rules"))
    rules.put("limit", [1, 2, 3])
    rules.put(("pair", 1), Row(a=1, b="x"))
    return backend


# --- enumerators ----------------------------------------------------------------------------------


def _numbers(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


ENUMERATORS: dict[str, Callable[[], Source]] = {
    "enumerator_datagen": lambda: DataGenSource(_numbers, 40),
    "enumerator_sequence": lambda: NumberSequenceSource(1, 50),
    "enumerator_collection": lambda: CollectionSource(list(range(30))),
}


def _enumerator(name: str, state: Any) -> Any:
    return ENUMERATORS[name]().create_enumerator(EnumeratorContext(name, WRITTEN_BY, "job"), state)


def splits_left(name: str, pickled: bytes) -> list[str]:
    """What an enumerator that starts from this still gives away."""
    enumerator = _enumerator(name, pickle.loads(pickled))
    found = []
    for subtask in range(WRITTEN_BY):
        while splits := enumerator.next_splits(subtask):
            found += [repr(split) for split in splits]
    return sorted(found)


# --- a set ----------------------------------------------------------------------------------------


def write(storage: CheckpointStorage) -> Manifest:
    """Write the checkpoint of a set."""
    checkpoint_id = CheckpointId(1)
    subtasks: list[SubtaskSnapshot] = []
    for subtask in range(WRITTEN_BY):
        parts: list[Any] = []
        for name, state in STATES.items():
            harness = _filled(state, subtask)
            harness.operator.prepare_snapshot(1)
            operator_state = harness.operator_state
            operator_state._stores_broadcast = subtask == 0
            parts.append(
                (OperatorId(name), harness.keyed_state.snapshot(), operator_state.snapshot())
            )
        for name, case in ROW_CASES.items():
            parts.append((OperatorId(name), case.snapshot(subtask), None))
        backend = _filled_operator_state(subtask)
        parts.append((OperatorId(OPERATOR_STATE), None, backend.snapshot()))
        task = TaskId(VertexId("golden"), subtask)
        subtasks.append(write_subtask(storage, checkpoint_id, task, parts))
    enumerators = {}
    for name in ENUMERATORS:
        enumerator = _enumerator(name, None)
        enumerator.next_splits(0)
        enumerators[OperatorId(name)] = pickle.dumps(enumerator.snapshot())
    operators = [*STATES, *ROW_CASES, OPERATOR_STATE, *ENUMERATORS]
    shapes = [OperatorShape(OperatorId(o), o, WRITTEN_BY, MAX_PARALLELISM) for o in operators]
    manifest = Manifest(
        "golden", "golden", checkpoint_id, 0, tuple(shapes), tuple(subtasks), enumerators
    )
    storage.publish(manifest)
    return manifest


def cases(manifest: Manifest) -> list[str]:
    """The operators of a checkpoint that are states."""
    return [one.operator for one in manifest.operators if one.operator not in ENUMERATORS]


def observed(
    storage: CheckpointStorage, manifest: Manifest, case: str, parallelism: int
) -> dict[str, Any]:
    """What the operators of one case hold and emit that start from a checkpoint."""
    restored = shares(storage, manifest, case, parallelism)
    if case in ROW_CASES:
        return {"holds": ROW_CASES[case].read(restored)}
    if case == OPERATOR_STATE:
        return {"holds": held([one.tables for one in restored])}
    state = STATES[case]
    again = [_restored_again(state, one) for one in restored]
    emitted = [row for one in restored for row in _emitted(state, one)]
    return {"holds": held(again), "emits": short(sorted(emitted))}

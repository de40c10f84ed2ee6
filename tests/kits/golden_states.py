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
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from backends import TINY
from golden_case import KEYS, MAX_PARALLELISM, NOW_MS, WRITTEN_BY, Restored
from golden_rows import ROW_CASES
from strom import (
    ColumnBatch,
    EventTimeSessionWindows,
    ListStateDescriptor,
    MapStateDescriptor,
    Row,
    TumblingEventTimeWindows,
    collect,
    count,
    count_distinct,
)
from strom.api.connectors.base import EnumeratorContext, Source
from strom.api.connectors.collection import CollectionSource
from strom.benchmarks.states import HOUR, STATES, State, records
from strom.checkpoint.folder_storage import open_folder
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.snapshot_io import read_operator, write_subtask
from strom.checkpoint.storage import CheckpointStorage
from strom.connectors.datagen import DataGenSource, NumberSequenceSource
from strom.core.config import JobConfig
from strom.core.ids import CheckpointId, OperatorId, TaskId, VertexId
from strom.core.keys import ExpressionKey
from strom.core.state_config import StateConfig
from strom.state.backend import KeyedSnapshot, StateTable
from strom.state.encoding import PICKLE, decode
from strom.state.hashing import stable_hash
from strom.state.increments import Since
from strom.state.key_groups import key_groups_of, range_for
from strom.state.operator_state import OperatorStateBackend
from strom.testing import OperatorHarness
from strom.testing.operator_harness import OperatorSnapshotTables

GOLDEN = Path(__file__).parent.parent / "golden"


def sets() -> list[Path]:
    """The folders of all versions' sets."""
    return sorted(path for path in GOLDEN.glob("v*") if path.is_dir())


def checkpoint_of(folder: Path, scratch: Path) -> tuple[CheckpointStorage, Manifest]:
    """The checkpoint of a set, unpacked under `scratch` and verified."""
    with zipfile.ZipFile(folder / "checkpoint.zip") as packed:
        packed.extractall(scratch)
    (found,) = scratch.glob("*/chk-*")
    return open_folder(str(found), validate=True)


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


def _tumbling(stream: Any) -> Any:
    return stream.window(TumblingEventTimeWindows.of(HOUR * 24 * 365))


def _session(stream: Any, gap: int = HOUR * 1000) -> Any:
    return stream.window(EventTimeSessionWindows.with_gap(gap))


def _name_of(record: Any) -> str:
    return f"{record.k % 3} {record.v}"


def _few_of(record: Any) -> tuple[str, str]:
    return (f"key {record.k % 5}", "of few")


TYPED = (
    pl.col("k").cast(pl.Float64).sqrt().alias("x"),
    pl.col("t").cast(pl.Datetime("us")).alias("at"),
    pl.col("v").cast(pl.Decimal(10, 2)).alias("d"),
    pl.concat_list("v", pl.lit(None, pl.Int64)).alias("l"),
)
"""Keys that only their types tell; of half of the records the first part is NaN."""

DATABASE_CASES: dict[str, State] = {
    "rocksdb_sessions": STATES["sessions"],
    "rocksdb_sessions_of_objects": State(
        lambda a: _session(a.key_by(_name_of)).aggregate(n=count()), numeric=False
    ),
    "rocksdb_sessions_with_values": State(
        lambda a: _session(a.key_by("k")).aggregate(values=count_distinct("v"), all=collect("v")),
        numeric=False,
    ),
    "rocksdb_sessions_with_values_of_objects": State(
        lambda a: _session(a.key_by(_few_of), 1).aggregate(n=count(), all=collect("v")),
        numeric=False,
    ),
    "rocksdb_slices": STATES["slices"],
    "rocksdb_slices_distinct": STATES["slices_distinct"],
    "rocksdb_slices_of_objects": State(
        lambda a: _tumbling(a.key_by(_name_of)).aggregate(n=count(), values=count_distinct("v")),
        numeric=False,
    ),
    "rocksdb_counted_windows": STATES["counted_windows"],
    "rocksdb_groups_distinct": STATES["aggregate_distinct"],
    "rocksdb_sessions_of_typed_keys": State(
        lambda a: _session(a.key_by(*TYPED)).aggregate(n=count()), numeric=False
    ),
    "rocksdb_sessions_with_values_of_typed_keys": State(
        lambda a: _session(a.key_by(*TYPED)).aggregate(n=count(), all=collect("v")), numeric=False
    ),
    "rocksdb_slices_of_typed_keys": State(
        lambda a: _tumbling(a.key_by(*TYPED)).aggregate(n=count()), numeric=False
    ),
    "rocksdb_slices_distinct_of_typed_keys": State(
        lambda a: _tumbling(a.key_by(*TYPED)).aggregate(values=count_distinct("v")), numeric=False
    ),
}
"""Operators whose state lies in RocksDB where they are written, all but what came last, and of
which the checkpoint has the files. They are read into memory."""

OBJECTS: dict[str, Callable[[Any], Any]] = {
    "rocksdb_sessions_of_objects": _name_of,
    "rocksdb_sessions_with_values_of_objects": _few_of,
    "rocksdb_slices_of_objects": _name_of,
}
"""What makes the keys of cases whose keys are objects."""

OPERATORS = STATES | DATABASE_CASES


def _harness(
    state: State, subtask: int, parallelism: int, restored: Any, config: StateConfig | None = None
) -> OperatorHarness:
    groups = range_for(subtask, parallelism, MAX_PARALLELISM)
    return OperatorHarness.of(
        state.stream(),
        config=JobConfig(max_parallelism=MAX_PARALLELISM, state=config or StateConfig()),
        max_parallelism=MAX_PARALLELISM,
        key_groups=groups,
        start_ms=NOW_MS,
        restored=restored,
    )


def _push(harness: OperatorHarness, state: State, data: pa.RecordBatch, port: int) -> None:
    """What is the subtask's; of a broadcast input all."""
    if (key_of := OBJECTS.get(_name(state))) is not None:
        keys = [key_of(row) for row in ColumnBatch(data, data.column("t").to_numpy()).rows()]
        groups = np.array([stable_hash(key) % MAX_PARALLELISM for key in keys])
    elif "typed" in _name(state):
        batch = ColumnBatch(data, data.column("t").to_numpy())
        groups = key_groups_of(ExpressionKey(TYPED).key_columns(batch), MAX_PARALLELISM)
    else:
        groups = key_groups_of(data.select(["k"]), MAX_PARALLELISM)
    own = harness.context.key_groups
    mine = pa.array((groups >= own.first) & (groups <= own.last))
    if "broadcast" not in _name(state) or port == 0:
        data = data.filter(mine)
    if data.num_rows:
        harness.push(ColumnBatch(data, data.column("t").to_numpy()), port=port)


def _name(state: State) -> str:
    return next(name for name, one in OPERATORS.items() if one is state)


def _filled(state: State, subtask: int) -> OperatorHarness:
    harness = _harness(state, subtask, WRITTEN_BY, None)
    for port in state.ports:
        _push(harness, state, records(0, KEYS), port)
    for port in state.ended:
        harness.end_input(port)
    harness.output.elements.clear()
    return harness


def _in_database(state: State, subtask: int) -> tuple[KeyedSnapshot, OperatorHarness]:
    """Of a subtask of a DATABASE_CASE, and whose files they are, until it is closed."""
    harness = _harness(state, subtask, WRITTEN_BY, None, TINY)
    for start in range(0, 3 * KEYS, 2):
        _push(harness, state, records(start, 2), 0)
    _push(harness, state, records(0, 1), 0)
    harness.operator.prepare_snapshot(1)
    snapshot = harness.keyed_state.snapshot(Since(CheckpointId(1)))
    assert snapshot.database is not None
    return snapshot, harness


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
        owners: list[OperatorHarness] = []
        for name, state in STATES.items():
            harness = _filled(state, subtask)
            harness.operator.prepare_snapshot(1)
            operator_state = harness.operator_state
            operator_state._stores_broadcast = subtask == 0
            parts.append(
                (OperatorId(name), harness.keyed_state.snapshot(), operator_state.snapshot())
            )
        for name, state in DATABASE_CASES.items():
            snapshot, owner = _in_database(state, subtask)
            owners.append(owner)
            parts.append((OperatorId(name), snapshot, None))
        for name, case in ROW_CASES.items():
            parts.append((OperatorId(name), case.snapshot(subtask), None))
        backend = _filled_operator_state(subtask)
        parts.append((OperatorId(OPERATOR_STATE), None, backend.snapshot()))
        task = TaskId(VertexId("golden"), subtask)
        subtasks.append(write_subtask(storage, checkpoint_id, task, parts))
        for owner in owners:
            owner.close()
    enumerators = {}
    for name in ENUMERATORS:
        enumerator = _enumerator(name, None)
        enumerator.next_splits(0)
        enumerators[OperatorId(name)] = pickle.dumps(enumerator.snapshot())
    operators = [*OPERATORS, *ROW_CASES, OPERATOR_STATE, *ENUMERATORS]
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
    state = OPERATORS[case]
    again = [_restored_again(state, one) for one in restored]
    emitted = [row for one in restored for row in _emitted(state, one)]
    return {"holds": held(again), "emits": short(sorted(emitted))}

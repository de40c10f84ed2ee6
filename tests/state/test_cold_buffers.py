"""`ColdBufferState` against the buffer in memory: rows that leave and come back, whole namespaces
that go or are filled anew, and snapshots taken meanwhile, whole and continued."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import seeds
from strom.checkpoint.layers import flattened
from strom.core.errors import StateError
from strom.core.ids import NO_CHECKPOINT, KeyGroupRange
from strom.core.value_types import BigDecimal
from strom.state.backend import StateTable
from strom.state.buffer_changes import BufferRecord
from strom.state.buffers import MemoryBufferState
from strom.state.increments import Since
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.rocks.backend import RocksKeyedStateBackend
from strom.state.rocks.database.rows_database import RowsDatabase
from strom.state.rocks.database.task_database import TaskDatabase
from strom.state.rocks.kept import buffer_freeze, row_buffer
from strom.state.rocks.kept.row_buffer import ColdBufferState
from strom.testing.backends import spilling

GROUPS = 8
TEXTS = pa.dictionary(pa.int16(), pa.string())
SCHEMA = pa.schema(
    {
        "k": pa.int64(),
        "s": pa.string(),
        "v": pa.string_view(),
        "d": pa.dictionary(pa.int32(), pa.string()),
        "l": pa.list_(pa.struct({"x": pa.int8(), "t": pa.string()})),
        "m": pa.map_(pa.string(), pa.float64()),
        "b": BigDecimal(),
        "n": pa.null(),
        "views": pa.list_(pa.string_view()),
        "own": pa.struct({"v": pa.binary_view(), "d": TEXTS}),
        "coded": pa.list_view(TEXTS),
    }
)


def batch(keys: list[int], size: int = 1) -> pa.RecordBatch:
    """Some rows of a longer batch."""
    keys = [0, *keys, 1]
    texts = [None if k % 5 == 4 else f"{k} " * size * (k % 3) for k in keys]
    lists = [None if k % 7 == 3 else [{"x": k % 9, "t": None}] * (k % 4) for k in keys]
    own = pa.array([f"{k}" for k in keys]).dictionary_encode().cast(TEXTS)
    ends = pa.array(range(len(keys) + 1), pa.int32())
    ones = pa.array([k % 2 for k in keys], pa.int32())
    views = pa.array(texts, pa.string_view())
    parts = [pa.array([f"{k}".encode() * 9 for k in keys], pa.binary_view()), own]
    columns = [
        pa.array(keys),
        pa.array(texts, pa.string()),
        pa.array(texts, pa.string()).cast(pa.string_view()),
        pa.array([None if k % 11 == 3 else f"d{k % 3}" for k in keys]).dictionary_encode(),
        pa.array(lists, SCHEMA.field("l").type),
        pa.array([[(f"{k}", k / 2)] for k in keys], SCHEMA.field("m").type),
        BigDecimal().array([None if k % 6 == 2 else Decimal(k) / 4 for k in keys]),
        pa.nulls(len(keys)),
        pa.ListArray.from_arrays(ends, views),
        pa.StructArray.from_arrays(parts, fields=list(SCHEMA.field("own").type)),
        pa.ListViewArray.from_arrays(ends[:-1], ones, own),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA).slice(1, len(keys) - 2)


@pytest.fixture(scope="module")
def database() -> Iterator[RowsDatabase]:
    made = RowsDatabase(spilling(8))
    yield made
    made.close()


def shown(tables: list[StateTable]) -> list[Any]:
    """The rows of each key group and namespace, in their order."""
    found = []
    for table in tables:
        assert table.kind == "buffer"
        groups = table.data.column("__key_group").to_pylist()
        assert groups == sorted(groups)
        found += table.data.to_pylist()
    return sorted(found, key=lambda row: (row["__key_group"], row["namespace"]))


def tables_of(frozen: Any) -> list[StateTable]:
    if hasattr(frozen, "tables"):
        return list(frozen.tables(GROUPS))
    table = frozen.table(GROUPS)
    return [] if table is None else [table]


class Checkpoints:
    """What snapshots of one buffer leave in files: layers of the newest complete one."""

    def __init__(self, buffer: MemoryBufferState) -> None:
        self.buffer = buffer
        self.layers: list[StateTable] = []
        self.base, self.last = NO_CHECKPOINT, 0

    def taken(self, completes: bool, whole: bool) -> tuple[list[StateTable], bool]:
        """The rows that a restore would read, and whether it was a delta."""
        self.last += 1
        since = Since(self.last, self.base, ("r",) if whole else ())
        frozen, continued = self.buffer.freeze_since("r", since)
        layers = [*(self.layers if continued else []), *tables_of(frozen)]
        assert {layer.layer for layer in layers} <= {"base", "delta"}
        if completes:
            self.layers, self.base = layers, self.last
        return flattened(layers) if layers else [], continued


@pytest.mark.parametrize("seed", seeds(12, least=4))
def test_any_order_of_steps_and_freezes(
    database: RowsDatabase, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer_freeze, "TABLE", 3000)
    monkeypatch.setattr(row_buffer, "PIECE", 6000)
    random = np.random.default_rng(seed)
    cold = ColdBufferState("r", SCHEMA, database)
    plain = MemoryBufferState("r", SCHEMA, BufferRecord())
    both = (cold, plain)
    checkpoints = [Checkpoints(cold), Checkpoints(plain)]
    frozen: list[Any] = []
    deltas = 0
    for _ in range(80):
        ns = int(random.integers(-2, 3))
        steps = ("append", "append", "append", "get", "replace", "drop", "room", "freeze", "encode")
        match str(random.choice([*steps, "forget", "checkpoint", "checkpoint"])):
            case "append":
                rows = batch(random.integers(0, 50, 12).tolist(), int(random.integers(1, 50)))
                for buffer in both:
                    buffer.append(ns, rows, (np.arange(12) * 5 % GROUPS).astype(np.int32))
            case "get":
                found, groups = cold.get(ns)
                want, wanted = plain.get(ns)
                assert found.schema == SCHEMA
                assert found.to_pylist() == want.to_pylist()
                assert groups.dtype == np.int32
                assert groups.tolist() == wanted.tolist()
            case "replace":
                rows, groups = plain.get(ns)
                half = len(groups) // 2
                for buffer in both:
                    buffer.replace(ns, rows.slice(half), groups[half:])
            case "drop" if random.random() < 0.5:
                for buffer in both:
                    buffer.drop(ns)
            case "room":
                cold.make_room()
            case "freeze":
                frozen.append([buffer.freeze("r") for buffer in both])
            case "encode" if frozen:
                check(frozen.pop(int(random.integers(len(frozen)))))
            case "forget" if frozen:
                frozen.pop(int(random.integers(len(frozen))))
            case "checkpoint":
                completes, whole = random.random(2) < (0.7, 0.1)
                taken = [one.taken(bool(completes), bool(whole)) for one in checkpoints]
                now = shown(tables_of(plain.freeze("r")))
                assert [shown(rows) for rows, _ in taken] == [now, now]
                assert taken[0][1] == taken[1][1]
                deltas += taken[0][1]
        cold.validate()
        assert cold.namespaces() == plain.namespaces()
        assert [cold.count(n) for n in range(-3, 4)] == [plain.count(n) for n in range(-3, 4)]
    while frozen:
        check(frozen.pop())
    assert deltas
    for ns in cold.namespaces():
        cold.drop(ns)
    cold.make_room()
    assert cold.used == 0
    assert cold.spilled > 0 < cold.loaded
    assert not list(database.scan(cold._prefix)), "what is dropped leaves nothing there"
    cold.close()


def check(frozen: list[Any]) -> None:
    found, want = map(tables_of, frozen)
    assert shown(found) == shown(want)
    assert {table.data.schema for table in found} <= {table.data.schema for table in want}


def test_namespaces_that_are_due_last_leave_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was written once is not written again."""
    own = RowsDatabase(spilling(40_000))
    cold = ColdBufferState("r", SCHEMA, own)
    rows = batch([1] * 100, 10)
    groups = np.zeros(100, np.int32)
    for ns in (5, 1, 4, 2, 3):
        cold.append(ns, rows, groups)
        cold.make_room()
    assert cold.used <= 40_000
    here = {ns: [piece.rows is not None for piece in cold._held[ns].pieces] for ns in range(1, 6)}
    assert all(here[1])
    assert not any(here[5])
    cold.drop(1)
    cold.drop(2)
    spilled = cold.spilled
    assert cold.get(5)[0].to_pylist() == rows.to_pylist() * 1
    assert cold._held[5].pieces[0].rows is not None, "there was room for it"
    monkeypatch.setattr(type(own.budget), "limit", lambda *_: 1)
    cold.make_room()
    assert cold.used == 0
    assert cold.spilled - spilled <= 200
    cold.close()
    own.close()


def test_small_pieces_leave_as_large_ones(database: RowsDatabase) -> None:
    cold = ColdBufferState("r", SCHEMA, database)
    cold._enough = cold._limit = 1 << 30
    for number in range(400):
        cold.append(number % 2, batch([number]), np.zeros(1, np.int32))
    assert sum(len(space.pieces) for space in cold._held.values()) < 40
    cold.make_room()
    assert [len(space.pieces) for space in cold._held.values()] == [1, 1]
    assert cold.used == 0
    assert cold.get(1)[0].column(0).to_pylist() == list(range(1, 400, 2))
    cold.close()


def test_backends_take_up_where_the_other_left_off() -> None:
    groups = KeyGroupRange(0, GROUPS - 1)

    def memory() -> MemoryKeyedStateBackend:
        return MemoryKeyedStateBackend(groups, GROUPS)

    def rocks() -> RocksKeyedStateBackend:
        return RocksKeyedStateBackend(groups, GROUPS, TaskDatabase(spilling(8)))

    state: MemoryKeyedStateBackend = rocks()
    buffer = state.buffer("r", SCHEMA, cold=True)
    assert isinstance(buffer, ColdBufferState)
    assert type(state.buffer("small", SCHEMA)) is MemoryBufferState
    encoded = pa.schema({"r": pa.run_end_encoded(pa.int32(), pa.int64())})
    assert type(state.buffer("encoded", encoded, cold=True)) is MemoryBufferState
    rows = batch(list(range(300)))
    for ns in (10, 20):
        buffer.append(ns, rows, (np.arange(300) % GROUPS).astype(np.int32))
    for make in (memory, rocks, rocks, memory):
        state.time.begin(1)
        tables = [table for table in state.snapshot().tables() if table.name == "r"]
        state.close()
        state = make()
        state.restore(tables)
        buffer = state.buffer("r", SCHEMA, cold=True)
        state.time.begin(1)
        found, their = buffer.get(20)
        assert np.array_equal(np.sort(their), np.sort(np.arange(300) % GROUPS))
        by_key = sorted(found.to_pylist(), key=lambda row: row["k"])
        assert by_key == rows.to_pylist()
    state.close()


def test_codes_of_objects_in_rows_that_left_are_held() -> None:
    state = RocksKeyedStateBackend(KeyGroupRange(0, GROUPS - 1), GROUPS, TaskDatabase(spilling(8)))
    keys = state.object_keys("operator")
    kept = [("a", number) for number in range(20)]
    column = keys.column(kept)
    schema = pa.schema([pa.field("k", column.type), pa.field("v", pa.int64())])
    buffer = state.buffer("r", schema, cold=True)
    assert isinstance(buffer, ColdBufferState)
    rows = pa.RecordBatch.from_arrays([column, pa.array(range(20))], schema=schema)
    buffer.append(1, rows, np.zeros(20, np.int32))
    state.time.begin(1)
    assert buffer.used == 0
    for number in range(9000):
        keys.column([("b", number)])
    state.forget_object_keys()
    found, _ = buffer.get(1)
    assert found.column(0).combine_chunks().equals(column)
    (table,) = state.snapshot().tables()
    restored = MemoryKeyedStateBackend(KeyGroupRange(0, GROUPS - 1), GROUPS)
    restored.restore([table])
    other = restored.object_keys("operator")
    schema = pa.schema([pa.field("k", other.column([]).type), pa.field("v", pa.int64())])
    again, _ = restored.buffer("r", schema, cold=True).get(1)
    assert other.objects(again.column(0).combine_chunks()) == kept
    state.close()


def test_rows_that_somebody_else_changed_are_named() -> None:
    own = RowsDatabase(spilling(8))
    cold = ColdBufferState("r", SCHEMA, own)
    cold.append(1, batch([1, 2]), np.zeros(2, np.int32))
    cold.make_room()
    place = cold._held[1].pieces[0].place
    assert place is not None
    frozen = cold.freeze("r")
    own.write([], [(place, b"damaged")])
    with pytest.raises(StateError, match=r"'r'.*changed by somebody else"):
        cold.get(1)
    own.write([place], [])
    with pytest.raises(StateError, match=r"'r'.*nothing is there"):
        list(frozen.tables(GROUPS))
    cold.close()
    own.close()

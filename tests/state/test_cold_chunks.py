"""`ColdRowChunks` against the chunks in memory: rows that leave and come back, are marked, expire,
and are in snapshots taken meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import seeds
from strom.core.ids import KeyGroupRange
from strom.state.backend import StateTable
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.rocks.backend import RocksKeyedStateBackend
from strom.state.rocks.database.rows_database import RowsDatabase
from strom.state.rocks.database.task_database import TaskDatabase
from strom.state.rocks.kept import row_cache, row_log
from strom.state.rocks.kept.row_chunks import ColdRowChunks
from strom.state.rows.chunks import RowChunks
from strom.testing.backends import spilling

GROUPS = 8
SCHEMA = pa.schema(
    {
        "k": pa.int64(),
        "s": pa.string(),
        "d": pa.dictionary(pa.int32(), pa.string()),
        "l": pa.struct({"a": pa.list_(pa.string()), "b": pa.null()}),
    }
)


def keys_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select([0])


def batch(keys: list[int], size: int = 1) -> pa.RecordBatch:
    columns = [
        pa.array(keys),
        pa.array([None if k % 5 == 4 else f"{k} " * size * (k % 3) for k in keys], pa.string()),
        pa.array([None if k % 11 == 3 else f"d{k % 3}" for k in keys]).dictionary_encode(),
        pa.array(
            [None if k % 7 == 3 else {"a": [f"{k}"] * (k % 4)} for k in keys], SCHEMA.types[3]
        ),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def database() -> Iterator[RowsDatabase]:
    made = RowsDatabase(spilling(8))
    yield made
    made.close()


def stored(tables: list[StateTable]) -> list[tuple[Any, ...]]:
    """The rows in order of their key groups."""
    found = []
    for table in tables:
        groups = table.data.column("__key_group").to_pylist()
        assert groups == sorted(groups)
        found += [tuple(map(repr, row.values())) for row in table.data.to_pylist()]
    return sorted(found, key=lambda row: int(row[0]))


def shown(found: Any) -> list[Any]:
    """What was gathered, in its order."""
    order = range(len(found.at)) if found.order is None else found.order.tolist()
    rows, keys = found.rows.to_pylist(), found.keys.column(0).to_pylist()
    parts = [(rows[at], keys[at], int(found.stamps[at])) for at in found.at.tolist()]
    assert found.rows.schema == SCHEMA
    return [part for _, part in sorted(zip(order, parts, strict=True), key=lambda pair: pair[0])]


@pytest.mark.parametrize("seed", seeds(16, least=6))
def test_any_order_of_steps_and_freezes(
    database: RowsDatabase, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_log, "PIECE", 7)
    monkeypatch.setattr(row_cache, "READ", 5)
    random = np.random.default_rng(seed)
    cold = ColdRowChunks("left", SCHEMA, keys_of, GROUPS, database)
    plain = RowChunks("left", SCHEMA, keys_of, GROUPS)
    frozen: list[tuple[Any, Any]] = []
    until = 0
    for _ in range(60):
        numbers = np.concatenate(
            [np.empty(0, np.int64), *(np.arange(c.first, c.first + len(c)) for c in plain.chunks)]
        )
        some = random.choice(numbers, 9) if len(numbers) else numbers
        steps = ("append", "append", "gather", "mark", "expire", "room", "freeze", "encode", "drop")
        match str(random.choice(steps)):
            case "append":
                rows = batch(random.integers(0, 50, 12).tolist(), int(random.integers(1, 50)))
                stamps = until + random.integers(1, 30, 12)
                matched = random.random(12) < 0.2
                first = {
                    chunks.append(rows, keys_of(rows), stamps, matched.copy())
                    for chunks in (cold, plain)
                }
                assert len(first) == 1
            case "gather" if len(some):
                assert shown(cold.gather(some)) == shown(plain.gather(some))
            case "mark" if len(some):
                assert sorted(cold.mark(some)) == sorted(plain.mark(some))
            case "expire":
                until += int(random.integers(0, 12))
                tracked = bool(random.random() < 0.7)
                alone = [
                    [
                        (chunk.rows.slice(row, 1).to_pylist(), int(chunk.stamps[row]))
                        for chunk, rows in chunks.expire(until, tracked)
                        for row in rows.tolist()
                    ]
                    for chunks in (cold, plain)
                ]
                assert alone[0] == alone[1]
            case "room":
                cold.cache.make_room()
            case "freeze":
                frozen.append((cold.freeze("left"), plain.freeze("left")))
            case "encode" if frozen:
                check(*frozen.pop(int(random.integers(len(frozen)))))
            case "drop" if frozen:
                frozen.pop(int(random.integers(len(frozen))))
        cold.validate()
        assert len(cold) == len(plain)
    while frozen:
        check(*frozen.pop())
    cold.expire(until + 100, False)
    rows = batch([1])
    cold.append(rows, keys_of(rows), np.array([until + 101]), np.array([False]))
    cold.expire(until + 200, False)
    cold.cache.make_room()
    assert not list(database.scan(cold.cache._prefix)), "what has expired leaves nothing there"
    cold.cache.close()


def check(cold: Any, plain: Any) -> None:
    found, want = list(cold.tables(GROUPS)), plain.table(GROUPS)
    assert stored(found) == stored([] if want is None else [want])
    assert all(want is not None and table.data.schema == want.data.schema for table in found)
    assert all(table.data.num_rows <= 7 for table in found)


def test_backends_take_up_where_the_other_left_off() -> None:
    groups = KeyGroupRange(0, GROUPS - 1)

    def memory() -> MemoryKeyedStateBackend:
        return MemoryKeyedStateBackend(groups, GROUPS)

    def rocks() -> RocksKeyedStateBackend:
        return RocksKeyedStateBackend(groups, GROUPS, TaskDatabase(spilling(8)))

    state: MemoryKeyedStateBackend = rocks()
    chunks = state.chunks("left", SCHEMA, keys_of)
    assert isinstance(chunks, ColdRowChunks)
    encoded = pa.schema({"k": pa.int64(), "r": pa.run_end_encoded(pa.int32(), pa.int8())})
    assert type(state.chunks("encoded", encoded, keys_of)) is RowChunks
    rows = batch(list(range(300)))
    chunks.append(rows, keys_of(rows), np.arange(300) % 50, np.arange(300) % 2 == 0)
    for make in (memory, rocks, rocks, memory):
        state.time.begin(1)
        tables = [table for table in state.snapshot().tables() if table.name == "left"]
        before = stored(tables)
        assert len(before) == 300
        state.close()
        state = make()
        state.restore(tables)
        chunks = state.chunks("left", SCHEMA, keys_of)
        state.time.begin(1)
        found = shown(chunks.gather(np.arange(300)))
        assert sorted(found, key=lambda part: part[1]) == [
            (row, k, k % 50) for k, row in enumerate(rows.to_pylist())
        ]
    state.close()

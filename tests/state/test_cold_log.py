"""`ColdRowLog` against the log in memory: rows that leave and come back, are marked, removed,
forgotten and numbered anew, and snapshots of them, whole and of what changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import seeds
from strom.checkpoint.layers import flattened
from strom.core.errors import StateError
from strom.core.ids import KeyGroupRange
from strom.core.value_types import BigDecimal
from strom.state.backend import AccColumn, StateTable
from strom.state.increments import Since
from strom.state.key_groups import key_groups_of
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.rocks.backend import RocksKeyedStateBackend
from strom.state.rocks.database.rows_database import RowsDatabase
from strom.state.rocks.database.task_database import TaskDatabase
from strom.state.rocks.kept import row_cache, row_log
from strom.state.rocks.kept.row_log import ColdRowLog
from strom.state.rows.log import RowLog
from strom.testing.backends import spilling

GROUPS = 8
NUMBERS, MARKS = [AccColumn("seen", "int64")], [AccColumn("matches", "int64", 0)]
SCHEMA = pa.schema(
    {
        "k": pa.int64(),
        "s": pa.string(),
        "d": pa.dictionary(pa.int32(), pa.string()),
        "w": pa.decimal128(25, 2),
        "v": pa.string_view(),
        "l": pa.list_(pa.struct({"x": pa.int8(), "t": pa.string()})),
        "m": pa.map_(pa.string(), pa.float64()),
        "b": BigDecimal(),
    }
)


LISTS = SCHEMA.field("l").type


def by_key(rows: pa.RecordBatch) -> np.ndarray:
    return key_groups_of(rows.select([0]), GROUPS)


def batch(keys: list[int], size: int = 1) -> pa.RecordBatch:
    texts = [None if k % 5 == 4 else f"{k} " * (size + k % 7) * (k % 3 > 0) for k in keys]
    columns = [
        pa.array(keys),
        pa.array(texts, pa.string()),
        pa.array([None if k % 11 == 3 else f"d{k % 3}" for k in keys]).dictionary_encode(),
        pa.array([None if k % 7 == 2 else k for k in keys]).cast(pa.decimal128(25, 2)),
        pa.array(texts, pa.string_view()),
        pa.array(
            [None if k % 7 == 3 else [{"x": k % 9, "t": None}] * (k % 4) for k in keys], LISTS
        ),
        pa.array([[(f"{k}", k / 2)] for k in keys], SCHEMA.field("m").type),
        BigDecimal().array([None if k % 6 == 2 else Decimal(k) / 4 for k in keys]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def database() -> Iterator[RowsDatabase]:
    made = RowsDatabase(spilling(8))
    yield made
    made.close()


def cold(database: RowsDatabase) -> ColdRowLog:
    return ColdRowLog("left", SCHEMA, by_key, NUMBERS, MARKS, database)


def stored(tables: list[StateTable]) -> list[tuple[Any, ...]]:
    """The rows in order of their key groups."""
    found = []
    for table in tables:
        groups = table.data.column("__key_group").to_pylist()
        assert groups == sorted(groups)
        found += [tuple(map(repr, row.values())) for row in table.data.to_pylist()]
    return sorted(found, key=lambda row: int(row[0]))


class Model:
    def __init__(self, database: RowsDatabase) -> None:
        self.log = cold(database)
        self.plain = RowLog("left", SCHEMA, by_key, NUMBERS, MARKS)
        self.came = 0

    def some(self, random: np.random.Generator, most: int) -> np.ndarray:
        rows = self.plain.rows()
        return random.permutation(rows)[: random.integers(0, min(len(rows), most) + 1)]

    def step(self, what: str, random: np.random.Generator) -> None:
        both, cache = (self.log, self.plain), self.log.cache
        some = self.some(random, 5)
        match what:
            case "append":
                count = int(random.integers(1, 20))
                rows = batch(random.integers(0, 50, count).tolist(), int(random.integers(1, 90)))
                seen = np.arange(self.came, self.came + count)
                self.came += count
                first = {log.append(rows.slice(1), {"seen": seen[1:]}) for log in both}
                assert len(first) == 1
            case "mark":
                for log in both:
                    log.touch(np.append(some, -1))
                    log.number("matches")[some] += 3
            case "remove":
                for log in both:
                    log.remove(some)
            case "forget":
                end = int(random.integers(0, len(self.plain) // 4 + 1))
                for log in both:
                    log.forget(end)
            case "keep":
                rows = self.plain.rows()
                if random.random() < 0.5:
                    rows = random.permutation(rows)[1:]
                for log in both:
                    log.keep(rows)
            case "read":
                rows = np.append(some, np.full(random.integers(0, 3), -1))
                rows = np.concatenate([rows, rows[::2]])
                pairs = zip(self.log.gather(rows), self.plain.gather(rows), strict=True)
                for found, want in pairs:
                    assert found.type == want.type
                    assert found.to_pylist() == want.to_pylist()
                chosen = self.log.gather(rows, [3, 1])
                assert [c.to_pylist() for c in chosen] == [
                    c.to_pylist() for c in self.plain.gather(rows, [3, 1])
                ]
            case "room":
                cache.make_room()
            case "evict":
                cache._evict(int(random.integers(1, 30)))
        self.log.validate()
        assert self.log.rows().tolist() == self.plain.rows().tolist()
        assert (len(self.log), self.log.live) == (len(self.plain), self.plain.live)


STEPS = ("append", "append", "mark", "remove", "forget", "keep", "read", "room", "evict")


@pytest.mark.parametrize("seed", seeds(20, least=6))
def test_any_order_of_steps_and_freezes(
    database: RowsDatabase, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_log, "PIECE", 7)
    monkeypatch.setattr(row_cache, "READ", 5)
    random, model = np.random.default_rng(seed), Model(database)
    frozen: list[tuple[Any, Any]] = []
    for _ in range(70):
        what = str(random.choice([*STEPS, "freeze", "encode", "drop"]))
        if what == "freeze":
            frozen.append((model.log.freeze("left"), model.plain.freeze("left")))
        elif what == "encode" and frozen:
            check(*frozen.pop(int(random.integers(len(frozen)))), random)
        elif what == "drop" and frozen:
            frozen.pop(int(random.integers(len(frozen))))
        else:
            model.step(what, random)
    while frozen:
        check(*frozen.pop(), random)
    model.log.keep(model.log.rows()[:0])
    model.log.append(batch([1]), {"seen": np.arange(1)})
    model.log.keep(model.log.rows()[:0])
    model.log.cache.make_room()
    left = list(database.scan(model.log.cache._prefix))
    assert not left, "what is numbered no more leaves nothing in RocksDB"
    model.log.cache.close()


def check(frozen: Any, plain: Any, random: np.random.Generator) -> None:
    want = plain.table(GROUPS)
    wanted = stored([] if want is None else [want])
    if random.random() < 0.3:
        whole = frozen.table(GROUPS)
        assert stored([] if whole is None else [whole]) == wanted
        return
    found = list(frozen.tables(GROUPS))
    assert all(table.data.num_rows <= 7 for table in found)
    assert stored(found) == wanted
    assert all(want is not None and table.data.schema == want.data.schema for table in found)


@pytest.mark.parametrize("seed", seeds(12, least=4))
def test_layers_make_what_a_whole_snapshot_has(
    database: RowsDatabase, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bases and deltas, some of them of failed checkpoints."""
    monkeypatch.setattr(row_log, "PIECE", 7)
    random, model = np.random.default_rng(seed), Model(database)
    for _ in range(8):
        model.step("append", random)
    base, layers, kinds = 0, {0: []}, set()
    for checkpoint in range(1, 14):
        for _ in range(3):
            what = str(random.choice(STEPS))
            model.step("mark" if what == "keep" and random.random() < 0.7 else what, random)
        since = Since(checkpoint, base) if base else Since(checkpoint)
        frozen, continued = model.log.freeze_since("left", since)
        want = model.plain.freeze("left").table(GROUPS)
        model.step(str(random.choice(["evict", "keep", "append"])), random)
        found = list(frozen.tables(GROUPS))
        kinds.update(table.layer for table in found)
        mine = [*(layers[base] if continued else []), *found]
        assert stored(flattened(mine)) == stored([] if want is None else [want])
        if random.random() < 0.7:
            base, layers = checkpoint, {checkpoint: mine}
    assert kinds >= {"base"}
    model.log.cache.close()


def test_deltas_are_of_what_changed(database: RowsDatabase) -> None:
    log = cold(database)
    log.append(batch(list(range(1000))), {"seen": np.arange(1000)})
    log.cache.make_room()
    frozen, _ = log.freeze_since("left", Since(1))
    assert [t.layer for t in frozen.tables(GROUPS)] == ["base"]
    log.append(batch([5, 6]), {"seen": np.arange(2)})
    log.cache.make_room()
    frozen, continued = log.freeze_since("left", Since(2, 1))
    assert continued
    (delta,) = frozen.tables(GROUPS)
    assert (delta.layer, delta.data.num_rows) == ("delta", 2)
    log.remove(np.array([3, 4]))
    frozen, continued = log.freeze_since("left", Since(3, 2))
    (delta,) = frozen.tables(GROUPS)
    assert (delta.layer, delta.data.num_rows) == ("delta", 2), "no rows, but two that are gone"
    log.cache.close()


@pytest.mark.parametrize("seed", seeds(3))
def test_another_thread_encodes_while_rows_leave_and_come_back(seed: int) -> None:
    random, database = np.random.default_rng(seed), RowsDatabase(spilling(64 << 10))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_cache, "READ", 256)
        patch.setattr(row_log, "PIECE", 512)
        log = cold(database)
        log.append(batch(list(range(5000))), {"seen": np.arange(5000)})
        for turn in range(3):
            plain = RowLog("left", SCHEMA, by_key, NUMBERS, MARKS)
            rows = log.rows()
            known = {name: log.number(name)[rows] for name in ("seen", "matches")}
            plain.append(log.take(rows), known)
            want, frozen, found = plain.freeze("left").table(GROUPS), log.freeze("left"), []
            reader = threading.Thread(
                target=lambda f=frozen, to=found: to.extend(f.tables(GROUPS)), daemon=True
            )
            reader.start()
            for step in range(40):
                some = random.permutation(log.rows())[:300]
                log.touch(some)
                log.number("matches")[some] = turn * 100 + step
                log.gather(some)
                log.remove(some[:200])
                keys = random.integers(0, 10**6, 190).tolist()
                log.append(batch(keys, int(random.integers(1, 30))), {"seen": np.arange(190)})
                log.cache.make_room()
                if step % 10 == 5:
                    log.keep(log.rows())
            reader.join()
            assert want is not None
            assert stored(found) == stored([want])
            log.validate()
    assert log.cache.spilled
    database.close()


def test_a_snapshot_of_a_task_that_is_over_is_refused() -> None:
    database = RowsDatabase(spilling(8))
    log = cold(database)
    log.append(batch([1, 2, 3]), {"seen": np.arange(3)})
    log.cache.make_room()
    frozen = log.freeze("left")
    database.close()
    with pytest.raises(StateError, match="the task is over"):
        list(frozen.tables(GROUPS))


def test_backends_take_up_where_the_other_left_off() -> None:
    groups = KeyGroupRange(0, GROUPS - 1)

    def memory() -> MemoryKeyedStateBackend:
        return MemoryKeyedStateBackend(groups, GROUPS)

    def rocks() -> RocksKeyedStateBackend:
        return RocksKeyedStateBackend(groups, GROUPS, TaskDatabase(spilling(8)))

    state: MemoryKeyedStateBackend = rocks()
    log = state.log("left", SCHEMA, by_key, NUMBERS, MARKS)
    assert isinstance(log, ColdRowLog)
    encoded = pa.schema({"r": pa.run_end_encoded(pa.int32(), pa.int8())})
    assert type(state.log("encoded", encoded, by_key)) is RowLog
    log.append(batch(list(range(300))), {"seen": np.arange(300), "matches": np.arange(300)})
    log.remove(np.array([7, 8]))
    for make in (memory, rocks, rocks, memory):
        state.time.begin(1)
        tables = [table for table in state.snapshot().tables() if table.name == "left"]
        before = stored(tables)
        assert len(before) == 298
        state.close()
        state = make()
        state.restore(tables)
        log = state.log("left", SCHEMA, by_key, NUMBERS, MARKS)
        state.time.begin(1)
        rows = log.take(log.rows())
        assert rows.column(0).to_pylist() == log.number("seen")[: len(log)].tolist()
        assert rows.column(0).to_pylist() == log.number("matches")[: len(log)].tolist()
        want = batch([k for k in range(300) if k not in (7, 8)])
        assert sorted(rows.to_pylist(), key=lambda row: row["k"]) == want.to_pylist()
    state.close()

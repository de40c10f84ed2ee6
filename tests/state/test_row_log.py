"""Rows numbered as they arrive: read back, marked, gone, numbered anew; a freeze shows what was."""

from __future__ import annotations

import datetime
import decimal
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.errors import StateError
from strom.core.ids import KeyGroupRange
from strom.state.backend import AccColumn, StateTable
from strom.state.key_groups import key_groups_of
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.rows.arena import BLOCK_ROWS, Arena
from strom.state.rows.log import RowLog

COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "int8": (pa.int8(), lambda i: i % 100),
    "int64": (pa.int64(), lambda i: i),
    "float": (pa.float32(), lambda i: i / 4),
    "bool": (pa.bool_(), lambda i: i % 3 == 0),
    "string": (pa.string(), lambda i: "é" * (i % 20)),
    "view": (pa.string_view(), lambda i: f"text of more than twelve bytes {i}"),
    "coded": (pa.dictionary(pa.int32(), pa.string()), lambda i: f"code {i % 4}"),
    "binary": (pa.binary(), lambda i: bytes([i % 256])),
    "fixed": (pa.binary(3), lambda i: b"abc"),
    "decimal": (pa.decimal128(20, 2), lambda i: decimal.Decimal(i) / 4),
    "timestamp": (pa.timestamp("us"), lambda i: datetime.datetime(2020, 1, 1, 0, 0, i % 60)),
    "list": (pa.list_(pa.int64()), lambda i: [i] * (i % 3)),
    "struct": (pa.struct([("a", pa.int64())]), lambda i: {"a": i}),
    "null": (pa.null(), lambda i: None),
}

MAX_PARALLELISM = 128
NUMBERS, MARKS = [AccColumn("seen", "int64")], [AccColumn("matches", "int64", 7)]


def ints(values: Any) -> Any:
    return np.array(values, dtype=np.int64)


def by_key(rows: pa.RecordBatch) -> Any:
    return key_groups_of(rows.select(["k"]), MAX_PARALLELISM)


def make_log(kind: pa.DataType, name: str = "left") -> RowLog:
    schema = pa.schema([("k", pa.int64()), ("v", kind)])
    return RowLog(name, schema, by_key, NUMBERS, MARKS)


def batch(log: RowLog, keys: list[int], values: list[Any]) -> pa.RecordBatch:
    column = pa.array([None, *values], log.schema.field("v").type).slice(1)  # with an offset
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.int64()), column], schema=log.schema)


Held = tuple[int, Any, int, int]
"""Key, value, seen, matches."""


def contents(log: RowLog) -> list[Held]:
    """What is not gone, in order of arrival."""
    rows = log.rows()
    columns = [array.to_pylist() for array in log.gather(rows)]
    known = [log.number(name)[rows].tolist() for name in ("seen", "matches")]
    return list(zip(*columns, *known, strict=True))


def by_group(held: list[Held]) -> list[Held]:
    """Sorted by key group, those of a group in order."""
    keys = pa.record_batch({"k": pa.array([row[0] for row in held], pa.int64())})
    groups = key_groups_of(keys, MAX_PARALLELISM).tolist() if held else []
    return [held[i] for i in sorted(range(len(held)), key=groups.__getitem__)]


def restored(kind: pa.DataType, table: StateTable | None) -> list[Held]:
    """What a new log has of a snapshot."""
    log = make_log(kind)
    log.restore([] if table is None else [table])
    log.validate()
    return contents(log)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "mark", "remove", "forget", "keep", "freeze", "read"]),
        st.integers(0, 2**31),
    ),
    max_size=25,
)


@pytest.mark.parametrize("name", COLUMNS)
@given(STEPS)
@settings(max_examples=examples(25), deadline=None)
def test_any_order_of_steps(name: str, steps: list[tuple[str, int]]) -> None:
    """Against a list of rows; freezes are read at any time after, and once more at the end."""
    kind, make = COLUMNS[name]
    log, model, frozen, came = make_log(kind), [], [], 0
    for step, seed in steps:
        random = np.random.default_rng(seed)
        numbers = log.rows()
        if step == "append":
            count = int(random.integers(0, 40))
            keys = random.integers(0, 5, count).tolist()
            drawn = random.integers(0, 300, count).tolist()
            values = [None if i % 7 == 3 else make(i) for i in drawn]
            seen = ints(range(came, came + count))
            came += count
            first = log.append(batch(log, keys, values), {"seen": seen})
            assert first == len(log) - count
            plain = pa.array(values, kind).to_pylist()
            model += [
                list(row) for row in zip(keys, plain, seen.tolist(), [7] * count, strict=True)
            ]
        elif step == "mark" and len(numbers):
            at = random.integers(0, len(numbers), 5)
            log.touch(numbers[at])
            log.number("matches")[numbers[at]] = seed
            for i in at.tolist():
                model[i][3] = seed
        elif step == "remove" and len(numbers):
            at = np.unique(random.integers(0, len(numbers), 5))
            log.remove(numbers[at])
            model = [row for i, row in enumerate(model) if i not in at]
        elif step == "forget" and len(numbers):
            at = int(random.integers(0, len(numbers)))
            log.forget(int(numbers[at]))
            model = model[at:]
        elif step == "keep":
            at = random.permutation(len(numbers))[: int(random.integers(0, 60))]
            log.keep(numbers[at])
            model = [model[i] for i in at.tolist()]
        elif step == "freeze":
            frozen.append((log.freeze("left"), [tuple(row) for row in model]))
        elif step == "read" and frozen:
            view, expected = frozen[int(random.integers(len(frozen)))]
            assert restored(kind, view.table(MAX_PARALLELISM)) == by_group(expected)
        log.validate()
        assert contents(log) == [tuple(row) for row in model]
    for view, expected in frozen:
        assert restored(kind, view.table(MAX_PARALLELISM)) == by_group(expected)


def test_a_freeze_keeps_the_block_of_texts_that_is_filled_behind_it() -> None:
    """Also when the block is completed, moved to a longer one, and numbered anew."""
    log = make_log(pa.string())
    texts = [f"text {i}" for i in range(BLOCK_ROWS - 10)]
    log.append(batch(log, [1] * len(texts), texts), {"seen": np.zeros(len(texts), np.int64)})
    frozen = [log.freeze("left")]
    for more in (5, 5, BLOCK_ROWS, 3 * BLOCK_ROWS):
        log.append(batch(log, [1] * more, ["x" * 50] * more), {"seen": np.ones(more, np.int64)})
        frozen.append(log.freeze("left"))
    log.keep(log.rows()[-5:])
    counts = [len(texts) + n for n in (0, 5, 10, 10 + BLOCK_ROWS, 10 + 4 * BLOCK_ROWS)]
    for view, count in zip(frozen, counts, strict=True):
        table = view.table(MAX_PARALLELISM)
        assert table is not None
        found = table.data.column("row.v").to_pylist()
        assert len(found) == count
        assert found[: len(texts)] == texts
        assert set(found[len(texts) :]) <= {"x" * 50}


@pytest.mark.parametrize("seed", range(2))
def test_another_thread_reads_while_this_one_goes_on(seed: int) -> None:
    random = np.random.default_rng(seed)
    log = make_log(pa.string())

    def append(count: int) -> None:
        keys = random.integers(0, 1000, count).tolist()
        log.append(batch(log, keys, [f"value {k}" * 3 for k in keys]), {"seen": ints(keys)})

    append(100_000)
    for turn in range(3):
        expected = by_group(contents(log))
        frozen, found = log.freeze("left"), []
        reader = threading.Thread(
            target=lambda f=frozen, to=found: to.append(f.table(MAX_PARALLELISM))
        )
        reader.start()
        for step in range(30):
            rows = random.choice(log.rows(), 500, replace=False)
            log.touch(rows)
            log.number("matches")[rows] = -turn - step
            log.remove(rows[:100])
            append(2000)
            if step == 20:
                log.keep(log.rows())
        reader.join()
        assert restored(pa.string(), found[0]) == expected


def test_freezing_and_what_is_done_next_copies_nothing() -> None:
    """The arrays that a freeze shows are the log's own, and stay so while there is room."""
    log = make_log(pa.int64())
    count = 100_000
    log.append(batch(log, [1] * count, list(range(count))), {"seen": np.arange(count)})
    rows, numbers = log.freeze("left").read()
    assert np.shares_memory(numbers["seen"], log.number("seen"))
    later, _ = log.freeze("left").read()
    assert rows.column("v").buffers()[1].address == later.column("v").buffers()[1].address


def test_a_backend_keeps_it_and_gives_back_what_several_subtasks_had() -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.string_view())])
    tables: list[StateTable] = []
    for value in ("a", "b"):
        backend = MemoryKeyedStateBackend(KeyGroupRange(0, 127), MAX_PARALLELISM)
        log = backend.log("left", schema, by_key, NUMBERS, MARKS)
        rows = pa.RecordBatch.from_arrays(
            [pa.array([1, 2, 3]), pa.array([value * 20] * 3, pa.string_view())], schema=schema
        )
        log.append(rows, {"seen": np.arange(3), "matches": np.arange(3)})
        log.remove(ints([1]))
        tables += backend.snapshot().tables()
    backend = MemoryKeyedStateBackend(KeyGroupRange(0, 127), MAX_PARALLELISM)
    backend.restore(tables)
    log = backend.log("left", schema, by_key, NUMBERS, MARKS)
    assert log is backend.log("left", schema, by_key, NUMBERS, MARKS)
    expected = [(k, value * 20, k - 1, k - 1) for value in "ab" for k in (1, 3)]
    assert sorted(contents(log)) == sorted(expected)
    with pytest.raises(StateError, match="asked for"):
        backend.log("left", schema, by_key, NUMBERS)
    other = MemoryKeyedStateBackend(KeyGroupRange(0, 127), MAX_PARALLELISM)
    other.restore(tables)
    with pytest.raises(StateError, match="stored with columns"):
        other.log("left", pa.schema([("k", pa.int64())]), by_key, NUMBERS, MARKS)


def test_bytes_are_known() -> None:
    log = make_log(pa.string())
    log.append(batch(log, [1] * 5000, ["x" * 100] * 5000), {"seen": np.zeros(5000, np.int64)})
    assert 5000 * (100 + 8 + 8 + 8 + 8) <= log.nbytes <= 4 * 5000 * 132


@pytest.mark.parametrize("name", COLUMNS)
@given(st.lists(st.lists(st.none() | st.integers(0, 300), max_size=5), max_size=6), st.randoms())
@settings(max_examples=15, deadline=None)
def test_an_arena_gives_back_what_it_was_given(name: str, batches: Any, random: Any) -> None:
    kind, make = COLUMNS[name]
    arena, values = Arena(pa.schema([("a", kind), ("n", pa.int64())])), []
    for numbers in batches:
        made = [None if n is None else make(n) for n in numbers]
        column = pa.array([None, *made], kind).slice(1)  # with an offset
        order = pa.array(range(len(values), len(values) + len(made)), pa.int64())
        arena.append(pa.RecordBatch.from_arrays([column, order], schema=arena.schema))
        values += made
        frozen = arena.freeze()()
        assert frozen.schema == arena.stored_schema
        frozen.validate(full=True)
        assert frozen.column(0).to_pylist() == pa.array(values, kind).to_pylist()
        assert frozen.column(1).to_pylist() == list(range(len(values)))
    rows = [random.randrange(-1, len(values)) for _ in range(10)] if values else [-1, -1]
    found = arena.gather(ints(rows))
    assert found[0].type == kind
    expected = pa.array([None if row < 0 else values[row] for row in rows], kind)
    found[0].validate(full=True)
    assert found[0].to_pylist() == expected.to_pylist()
    assert found[1].to_pylist() == [None if row < 0 else row for row in rows]


def test_frozen_rows_stay_while_the_arena_grows() -> None:
    arena = Arena(pa.schema([("t", pa.string())]))
    arena.append(pa.record_batch({"t": ["a", "b"]}))
    frozen = arena.freeze()
    for _ in range(5):
        arena.append(pa.record_batch({"t": ["c" * 1000] * 1000}))
    assert frozen().column(0).to_pylist() == ["a", "b"]

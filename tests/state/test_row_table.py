"""`RowTable` against a dictionary of rows, for every type of column; freezes while it changes."""

from __future__ import annotations

import datetime as dt
import threading
from decimal import Decimal
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
from strom.state.rows import texts
from strom.state.rows.slab import FrozenTable, RowTable

GROUPS = 8

COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [1, -(2**63), None]),
    (pa.int8(), [1, -128, None]),
    (pa.uint64(), [2**64 - 1, 0, None]),
    (pa.float16(), [0.5, None]),
    (pa.float32(), [0.5, None]),
    (pa.bool_(), [True, False, None]),
    (pa.date32(), [dt.date(2026, 1, 2), None]),
    (pa.time32("s"), [dt.time(1, 2, 3), None]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 2, tzinfo=dt.UTC), None]),
    (pa.string(), ["", "text", "a longer text, beyond twelve bytes", None]),
    (pa.large_string(), ["x", None]),
    (pa.string_view(), ["a longer text, beyond twelve bytes", "y", None]),
    (pa.binary(), [b"", b"\x00\xff", None]),
    (pa.binary_view(), [b"\x00", None]),
    (pa.binary(3), [b"abc", None]),
    (pa.dictionary(pa.int32(), pa.string()), ["u", "v", None]),
    (pa.dictionary(pa.int8(), pa.int64()), [5, 6, None]),
    (pa.decimal128(5, 2), [Decimal("1.25"), None]),
    (pa.decimal256(50, 2), [Decimal("12345678901234567890123456789012345.25"), None]),
    (pa.month_day_nano_interval(), [pa.MonthDayNano([1, 2, 3]), None]),
    (pa.list_(pa.int64()), [[1, 2], [], None]),
    (pa.struct({"a": pa.int64()}), [{"a": 1}, None]),
    (pa.null(), [None]),
]
SCHEMA = pa.schema([pa.field(f"c{i}", kind) for i, (kind, _) in enumerate(COLUMNS)])
row = st.tuples(*[st.sampled_from(values) for _, values in COLUMNS])

SMALL = pa.schema({"k": pa.int64(), "s": pa.string(), "l": pa.list_(pa.int64())})
NUMBERS = [AccColumn("n", "int64", -1)]


def groups_of(rows: pa.RecordBatch) -> np.ndarray:
    return key_groups_of(rows.select([0]), GROUPS)


def small(keys: list[int], size: int = 1) -> pa.RecordBatch:
    """Rows of these keys; texts and lists depend on the key."""
    columns = [keys, [f"{k} " * (size + k % 7) for k in keys], [[k] * (k % 3) for k in keys]]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, kind) for c, kind in zip(columns, SMALL.types, strict=True)], schema=SMALL
    )


def stored(frozen: FrozenTable) -> list[tuple[Any, ...]]:
    table = frozen.table(GROUPS)
    if table is None:
        return []
    rows = table.data.drop_columns("__key_group").to_pylist()
    return [tuple(map(repr, one.values())) for one in rows]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.lists(row, min_size=1, max_size=6), st.integers(0, 6)), max_size=8))
def test_rows_come_back(steps: Any) -> None:
    table, held = RowTable("t", SCHEMA, [0]), {}
    for rows, leave in steps:
        arrays = [
            pa.array(column, type=field.type)
            for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
        ]
        padded = pa.RecordBatch.from_arrays(
            [pa.concat_arrays([a, a]) for a in arrays], SCHEMA.names
        )
        positions = table.add(padded.slice(len(rows)))
        assert not set(positions.tolist()) & set(held)
        held.update(zip(positions.tolist(), rows, strict=True))
        gone = sorted(held)[:leave]
        table.release(np.array(gone, dtype=np.int64))
        for position in gone:
            del held[position]
        found = table.read(np.array(list(held), dtype=np.int64))
        assert found.schema == SCHEMA
        assert [tuple(r.values()) for r in found.to_pylist()] == list(held.values())
        assert len(table) == len(held)
        assert table.positions().tolist() == list(held)
        table.validate()
    again = RowTable("t", SCHEMA, [0])
    frozen = table.freeze("t").table(GROUPS)
    again.restore([] if frozen is None else [frozen])
    found = again.read(again.positions())
    assert sorted(map(repr, found.to_pylist())) == sorted(
        map(repr, table.read(table.positions()).to_pylist())
    )


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_long_texts_grow_the_arena_and_are_packed(kind: Any) -> None:
    table = RowTable("t", pa.schema({"s": kind}), [0])
    kept = table.add(pa.record_batch({"s": pa.array(["kept" * 100] * 10, kind)}))
    for number in range(200):
        some = pa.array([f"{number:05}" * 200] * 10, kind)
        positions = table.add(pa.record_batch({"s": some}))
        assert table.column(0, positions).to_pylist() == some.to_pylist()
        table.release(positions)
    assert table.column(0, kept).cast(pa.string()).to_pylist() == ["kept" * 100] * 10
    assert table.nbytes < 200_000
    table.validate()


def test_what_is_replaced_takes_no_more_room() -> None:
    table = RowTable("t", SMALL, [0])
    held = table.add(small(list(range(100))))
    for _ in range(50):
        table.release(held)
        held = table.add(small(list(range(100))))
    assert table._pool.end == 100


@settings(max_examples=examples(150), deadline=None)
@given(
    st.booleans(),
    st.lists(
        st.tuples(
            st.sampled_from(
                ["add", "add", "long", "release", "release", "freeze", "encode", "drop", "write"]
            ),
            st.integers(0, 2**31),
        ),
        max_size=40,
    ),
)
def test_any_order_of_adds_releases_and_freezes(
    ordered: bool, steps: list[tuple[str, int]]
) -> None:
    """A freeze shows what was there, whatever happens before it is encoded; after it nothing is
    held back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "_SPARE", 1)
        table, held, frozen = RowTable("t", SMALL, [0], NUMBERS, ordered), {}, []
        for step, seed in steps:
            random = np.random.default_rng(seed)
            if step in ("add", "long"):
                keys = random.integers(0, 50, random.integers(1, 20)).tolist()
                rows = small(keys, 200 if step == "long" else 1)
                numbers = random.integers(0, 9, len(keys))
                at = table.add(rows, {"n": numbers} if seed % 2 else None).tolist()
                assert not set(at) & set(held)
                found = numbers.tolist() if seed % 2 else [-1] * len(keys)
                held.update(zip(at, zip(rows.to_pylist(), found, strict=True), strict=True))
            elif step == "release" and held:
                gone = random.permutation(list(held))[: random.integers(1, len(held) + 1)]
                table.release(gone)
                for position in gone.tolist():
                    del held[position]
            elif step == "write" and held:
                some = random.permutation(list(held))[: random.integers(1, len(held) + 1)]
                table.touch(some)
                table.number("n")[some] = seed
                for position in some.tolist():
                    held[position] = (held[position][0], seed)
            elif step == "freeze":
                frozen.append((table.freeze("t"), dict(held)))
            elif step == "encode" and frozen:
                check(*frozen.pop(int(random.integers(len(frozen)))), ordered)
            elif step == "drop" and frozen:
                frozen.pop(int(random.integers(len(frozen))))
            table.validate()
            found = table.read(table.positions()).to_pylist()
            want = [one for one, _ in held.values()]
            assert found == want if ordered else sorted(map(str, found)) == sorted(map(str, want))
        while frozen:
            check(*frozen.pop(), ordered)
        table.release(np.array(list(held), dtype=np.int64))
        table.add(small([1]))
        table.release(table.positions())
        table.validate()
        assert len(table._pool.take(table._pool.end)) == table._pool.end == len(table._pool)


def check(frozen: FrozenTable, expected: dict[int, Any], ordered: bool) -> None:
    found = stored(frozen)
    want = [(*one.values(), number) for one, number in expected.values()]
    groups = groups_of(small([one[0] for one in want])).tolist()
    want = [one for _, one in sorted(zip(groups, want, strict=True), key=lambda pair: pair[0])]
    want = [tuple(map(repr, one)) for one in want]
    assert found == want if ordered else sorted(found) == sorted(want)
    if want:
        with pytest.raises(StateError, match="read twice"):
            frozen.table(GROUPS)


def test_what_was_not_there_when_frozen_is_used_again_at_once() -> None:
    table = RowTable("t", SMALL, [0])
    table.add(small([1, 2, 3]))
    frozen = table.freeze("t")
    for _ in range(10):
        table.release(table.add(small(list(range(20)))))
    assert table._pool.end == 23
    table.release(table.positions())
    table.add(small([7]))
    assert sorted(one[0] for one in stored(frozen)) == ["1", "2", "3"]
    assert len(table) == 1


def test_a_dropped_freeze_holds_nothing_back() -> None:
    table = RowTable("t", SMALL, [0])
    old = table.freeze("t")
    positions = table.add(small([1, 2, 3]))
    new = table.freeze("t")
    table.release(positions)
    del new
    assert not set(table.add(small([4, 5, 6])).tolist()) & set(positions.tolist())
    del old
    assert set(table.add(small([7, 8, 9])).tolist()) == set(positions.tolist())


@pytest.mark.parametrize("seed", range(2))
def test_another_thread_encodes_while_rows_come_and_go(seed: int) -> None:
    """Texts are packed and arrays grow meanwhile; the readers' chunks are small."""
    random = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "_SPARE", 16)
        patch.setattr("strom.state.rows.slab.CHUNK", 256)
        table = RowTable("t", SMALL, [0], NUMBERS)
        table.add(small(list(range(5000))))
        for turn in range(3):
            want = table.read(table.positions()).to_pylist()
            numbers = table.number("n")[table.positions()].tolist()
            frozen, found = table.freeze("t"), []
            reader = threading.Thread(
                target=lambda f=frozen, to=found: to.append(f.table(GROUPS)), daemon=True
            )
            reader.start()
            for step in range(60):
                held = table.positions()
                gone = random.permutation(held)[: random.integers(0, len(held) // 2)]
                table.release(gone)
                size = int(random.integers(1, 40))
                table.add(small(random.integers(0, 10**6, len(gone) + 20).tolist(), size))
                some = random.permutation(table.positions())[:100]
                table.touch(some)
                table.number("n")[some] = turn * 100 + step
            reader.join()
            got = found[0].data
            groups = groups_of(small([one["k"] for one in want])).tolist()
            order = sorted(range(len(want)), key=groups.__getitem__)
            assert got.column("row.k").to_pylist() == [want[i]["k"] for i in order]
            assert got.column("row.s").to_pylist() == [want[i]["s"] for i in order]
            assert got.column("row.l").to_pylist() == [want[i]["l"] for i in order]
            assert got.column("num.n").to_pylist() == [numbers[i] for i in order]
            table.validate()


def backend(tables: list[StateTable] | None = None) -> MemoryKeyedStateBackend:
    made = MemoryKeyedStateBackend(KeyGroupRange(0, GROUPS - 1), GROUPS)
    if tables is not None:
        made.restore(tables)
    return made


def test_a_backend_keeps_rows() -> None:
    state = backend()
    rows = state.rows("r", SMALL, [0], NUMBERS)
    assert state.rows("r", SMALL, [0], NUMBERS) is rows
    rows.add(small([1, 2, 3, 1]), {"n": np.arange(4)})
    snapshot = state.snapshot()
    rows.release(rows.positions())
    tables = list(snapshot.tables())
    assert [(t.name, t.kind) for t in tables] == [("r", "rows")]
    again = backend(tables)
    carried = list(again.snapshot().tables())
    assert carried[0].data.equals(tables[0].data)
    restored = again.rows("r", SMALL, [0], NUMBERS)
    at = restored.positions()
    assert sorted(restored.column(0, at).to_pylist()) == [1, 1, 2, 3]
    ones = at[np.array(restored.column(0, at)) == 1]
    assert restored.number("n")[ones].tolist() == [0, 3]


def test_errors() -> None:
    state = backend()
    rows = state.rows("r", SMALL, [0])
    with pytest.raises(StateError, match="asked for with columns"):
        state.rows("r", SCHEMA, [0])
    with pytest.raises(StateError, match="asked for with columns"):
        state.rows("r", SMALL, [0], NUMBERS)
    with pytest.raises(StateError, match="'rows' state and is asked for as a 'buffer'"):
        state.buffer("r", SMALL)
    with pytest.raises(StateError, match="no numbers"):
        rows.number("n")
    rows.add(small([1]))
    tables = list(state.snapshot().tables())
    with pytest.raises(StateError, match="stored with columns"):
        backend(tables).rows("r", SCHEMA, [0])
    with pytest.raises(StateError, match="stored with columns"):
        backend(tables).rows("r", SMALL, [0], NUMBERS)

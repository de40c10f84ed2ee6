"""Key indexes agree with their sequential definition: a dict from key to slot."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.errors import StateError
from strom.state.column_index import BytesIndex, WordIndex
from strom.state.index_kernels import find_bytes, upsert_bytes, upsert_words
from strom.state.key_index import CompositeIndex, as_declared, hashable

SMALL = {
    "int64": (pa.int64(), st.integers(-3, 3)),
    "wide": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.sampled_from([0, 1, 2**63, 2**64 - 1])),
    "int8": (pa.int8(), st.integers(-2, 2)),
    "float64": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, float("inf")])),
    "float32": (pa.float32(), st.sampled_from([0.5, -2.0])),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.sampled_from(["", "a", "aa", "b", "long enough to take words"])),
    "view": (pa.string_view(), st.text(max_size=2)),
    "binary": (pa.binary(), st.binary(max_size=2)),
    "fixed": (pa.binary(2), st.binary(min_size=2, max_size=2)),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["x", "y", "z"])),
    "date": (pa.date32(), st.sampled_from([dt.date(1960, 1, 1), dt.date(2026, 1, 1)])),
    "timestamp": (pa.timestamp("ms"), st.sampled_from([dt.datetime(1960, 1, 1)])),
    "decimal": (pa.decimal128(5, 1), st.sampled_from([Decimal("0.5"), Decimal("7.0")])),
    "list": (pa.list_(pa.int8()), st.lists(st.integers(0, 1), max_size=2)),
    "null": (pa.null(), st.none()),
}


class DictIndex:
    """The definition."""

    def __init__(self) -> None:
        self.slots: dict[Any, int] = {}

    def upsert(self, rows: list[Any]) -> list[int]:
        return [self.slots.setdefault(hashable(list(row)), len(self.slots)) for row in rows]

    def find(self, rows: list[Any]) -> list[int]:
        return [self.slots.get(hashable(list(row)), -1) for row in rows]


@st.composite
def batches(draw: st.DrawFn, names: list[str]) -> list[list[pa.Array]]:
    made = []
    for _ in range(draw(st.integers(1, 4))):
        rows, before = draw(st.integers(0, 8)), draw(st.integers(0, 2))
        columns = []
        for name in names:
            kind, values = SMALL[name]
            count = rows + before
            cells = draw(st.lists(st.none() | values, min_size=count, max_size=count))
            columns.append(pa.array(cells, type=kind).slice(before))
        made.append(columns)
    return made


def check(names: list[str], made: list[list[pa.Array]]) -> None:
    schema = pa.schema([(str(i), SMALL[name][0]) for i, name in enumerate(names)])
    index, definition = CompositeIndex(schema), DictIndex()
    for columns in made:
        frozen, count = index.freeze(), len(index)
        rows = list(zip(*[column.to_pylist() for column in columns], strict=True))
        assert index.find(columns).tolist() == definition.find(rows)
        assert len(index) == count
        assert index.upsert(columns).tolist() == definition.upsert(rows)
        assert len(index) == len(definition.slots)
        assert all(len(column) == count for column in frozen())
    pairs = zip(index.freeze()(), schema.types, strict=True)
    keys = [as_declared(column, kind) for column, kind in pairs]
    assert [column.type for column in keys] == schema.types
    rows = list(zip(*[column.to_pylist() for column in keys], strict=True))
    assert [hashable(list(row)) for row in rows] == list(definition.slots)


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_one_column(name: str, data: st.DataObject) -> None:
    check([name], data.draw(batches([name])))


@settings(max_examples=examples(50), deadline=None)
@given(data=st.data())
def test_several_columns(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(SMALL)), min_size=2, max_size=4))
    check(names, data.draw(batches(names)))


def test_nan_is_one_key_and_null_another() -> None:
    index = CompositeIndex(pa.schema([("k", pa.float64())]))
    nan = float("nan")
    assert index.upsert([pa.array([nan, None, -nan, 0.0, None])]).tolist() == [0, 1, 0, 2, 1]


@pytest.mark.parametrize("keys", [5_000, 40_000])
def test_growth_keeps_slots(keys: int) -> None:
    numbers = np.random.default_rng(7).permutation(keys).astype(np.int64) * 1024
    words = CompositeIndex(pa.schema([("k", pa.int64())]))
    texts = CompositeIndex(pa.schema([("k", pa.string())]))
    both = CompositeIndex(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    column, text = pa.array(numbers), pa.array([f"key number {n}" for n in numbers])
    for found in (np.full(keys, -1), np.arange(keys)):
        expected = list(range(keys))
        assert words.find([column]).tolist() == found.tolist()
        assert texts.find([text]).tolist() == found.tolist()
        assert both.find([column, text]).tolist() == found.tolist()
        assert words.upsert([column]).tolist() == expected
        assert texts.upsert([text]).tolist() == expected
        assert both.upsert([column, text]).tolist() == expected
    assert words.freeze()()[0].equals(column)
    assert texts.freeze()()[0].equals(text)
    assert both.freeze()()[1].equals(text)


def test_a_long_key_gets_the_arena_it_needs() -> None:
    index = BytesIndex(pa.string())
    column = pa.array(["x" * 100_000, "", "y" * 300_000, "x" * 100_000])
    assert index.upsert(column).tolist() == [0, 1, 2, 0]
    assert index.freeze()().to_pylist() == column.to_pylist()[:3]


def test_equal_hashes_are_told_apart_by_their_bytes() -> None:
    """The kernel is given one hash for all keys: they collide in every bit."""
    data = np.frombuffer(b"abacab" + b"12345678X12345678Y", np.uint8)
    offsets = np.array([0, 2, 4, 6, 15, 24], dtype=np.int64)
    hashed = np.full(5, 99, dtype=np.uint64)
    table, state = np.zeros(64, dtype=np.uint64), np.array([0, -1, 0], dtype=np.int64)
    hashes, ends = np.empty(16, np.uint64), np.zeros(17, np.int64)
    arena, out, valid = np.empty(64, np.uint8), np.empty(5, np.int64), np.empty(0, np.bool_)
    stopped = upsert_bytes(
        table, 59, hashed, data, offsets, valid, 0, state, hashes, arena, ends, out
    )
    assert stopped == 5
    assert out.tolist() == [0, 1, 0, 2, 3]
    found = np.empty(5, np.int64)
    other = np.frombuffer(b"abcdab" + b"12345678Z12345678Y", np.uint8)
    find_bytes(table, 59, hashed, other, offsets, valid, state, arena, ends, found)
    assert found.tolist() == [0, -1, 0, -1, 3]


def test_kernel_stops_where_it_has_no_room() -> None:
    table, state = np.zeros(24, dtype=np.int32), np.array([0, -1, 0], dtype=np.int64)
    keys, out = np.empty(4, np.int64), np.full(8, -1, np.int64)
    batch = np.array([5, 5, 6, 7, 8, 5, 9, 5], dtype=np.int64)
    valid = np.empty(0, np.bool_)
    assert upsert_words(table, 61, batch, valid, 0, state, keys, out) == 6
    assert out.tolist() == [0, 0, 1, 2, 3, 0, -1, -1]
    assert state[0] == 4


def test_word_index_holds_codes() -> None:
    index = WordIndex(pa.int64())
    words = np.array([1 << 40, 0, 1 << 40], dtype=np.int64)
    assert index.upsert_words(words, np.empty(0, np.bool_)).tolist() == [0, 1, 0]
    assert index.words().tolist() == [1 << 40, 0]


def test_no_key_columns_is_an_error() -> None:
    with pytest.raises(StateError, match="at least one key column"):
        CompositeIndex(pa.schema([]))

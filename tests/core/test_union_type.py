"""Columns whose values are of several kinds: what goes in comes out, however they are cut."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.arrow_values import to_array
from strom.core.batch import ColumnBatch, concat
from strom.core.column_values import python_values
from strom.core.errors import TypeMismatchError
from strom.core.taking import null_array, picked, take_column
from strom.core.union_type import OfKind, UnionType, rows_of_kind
from strom.core.value_types import as_stored, empty_array, tuple_struct


def union(text: pa.DataType) -> UnionType:
    return UnionType.of(
        {
            "person": pa.struct([("id", pa.int64()), ("name", text)]),
            "bid": pa.struct([("price", pa.float64()), ("url", text), ("tags", pa.list_(text))]),
            "tick": tuple_struct([pa.int64()]),
        }
    )


TEXTS = st.text(max_size=3) | st.text("ab", min_size=13, max_size=20)
PERSONS = st.tuples(st.integers(0, 9), st.none() | TEXTS)
BIDS = st.tuples(st.floats(0, 1), TEXTS, st.none() | st.lists(TEXTS, max_size=2))
VALUES = (
    st.none()
    | PERSONS.map(lambda row: OfKind("person", row))
    | BIDS.map(lambda row: OfKind("bid", row))
    | st.integers(0, 9).map(lambda n: OfKind("tick", (n,)))
)


def column(values: list[Any], kind: UnionType) -> pa.Array:
    made = to_array(values, kind)
    made.validate(full=True)
    return made


@settings(max_examples=examples(60), deadline=None)
@given(
    values=st.lists(VALUES, max_size=12),
    views=st.booleans(),
    data=st.data(),
)
def test_every_cut_has_the_values(values: list[Any], views: bool, data: st.DataObject) -> None:
    kind = union(pa.string_view() if views else pa.string())
    whole = column(values, kind)
    assert python_values(whole) == values
    start = data.draw(st.integers(0, len(values)))
    count = data.draw(st.integers(0, len(values) - start))
    part, rest = whole.slice(start, count), values[start : start + count]
    assert python_values(part) == rest
    batch = ColumnBatch(pa.record_batch({"e": part}), np.arange(len(rest)))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rest), max_size=len(rest))))
    kept = batch.filter(mask.astype(np.bool_))
    assert [row.e for row in kept.rows()] == [v for v, m in zip(rest, mask, strict=True) if m]
    kept.data.validate(full=True)
    both = concat([batch, kept])
    both.data.validate(full=True)
    assert [row.e for row in both.rows()] == rest + [row.e for row in kept.rows()]
    for name in kind.kinds:
        rows, mine = rows_of_kind(part, name)
        assert python_values(rows) == [v.row for v in rest if v is not None and v.kind == name]
        assert mine.tolist() == [v is not None and v.kind == name for v in rest]


@settings(max_examples=examples(60), deadline=None)
@given(
    values=st.lists(VALUES, max_size=8),
    views=st.booleans(),
    data=st.data(),
)
def test_rows_are_taken_by_place_and_none_is_one(
    values: list[Any], views: bool, data: st.DataObject
) -> None:
    whole = column(values, union(pa.string_view() if views else pa.string()))
    places = st.integers(0, len(values) - 1) | st.none() if values else st.none()
    chosen = data.draw(st.lists(places, max_size=9))
    taken = take_column(whole, pa.array(chosen, pa.int64()))
    taken.validate(full=True)
    assert python_values(taken) == [None if at is None else values[at] for at in chosen]


@settings(max_examples=examples(60), deadline=None)
@given(values=st.lists(VALUES, max_size=8), start=st.integers(0, 8))
def test_spread_over_the_kinds_and_gathered_again(values: list[Any], start: int) -> None:
    kind = union(pa.string())
    part = column(values, kind).slice(min(start, len(values)))
    spread = kind.spread(part)
    spread.validate(full=True)
    for value, row in zip(values[start:], spread.to_pylist(), strict=True):
        there = None if row is None else [name for name, one in row.items() if one is not None]
        assert there == (None if value is None else [value.kind])
    gathered = kind.gathered(spread)
    gathered.validate(full=True)
    assert python_values(gathered) == values[start:]


def test_a_kind_that_follows_itself_is_not_copied() -> None:
    rows = pa.array([{"n": n} for n in range(100)])
    kind = UnionType.of({"a": rows.type, "b": rows.type})
    codes = np.tile(np.array([0, 1], np.int8), 100)
    places = np.repeat(np.arange(100, dtype=np.int32), 2)
    whole = kind.column(codes, places, [rows, rows])
    taken, mine = rows_of_kind(whole.slice(50, 100), "b")
    assert taken.to_pylist() == [{"n": n} for n in range(25, 75)]
    assert mine.sum() == 50
    address = rows.field(0).buffers()[1].address
    assert taken.field(0).buffers()[1].address == address


@pytest.mark.parametrize(
    ("codes", "places", "what"),
    [
        ([0, 2], [0, 0], "2 is the code of no kind"),
        ([0, -1], [0, 0], "-1 is the code of no kind"),
        ([0, 300], [0, 0], "numbers of 8 bits, not 300"),
        ([0, 1], [0, 1], "the kind 'b' has 1 rows, and none at 1"),
        ([0, 0], [-1, 0], "the kind 'a' has 2 rows, and none at -1"),
        ([0, 1], [0, 2**40], "numbers of 32 bits"),
        ([0], [0, 0], "1 codes of kinds need as many places, not 2"),
        ([0.5], [0], "whole numbers"),
        ([[0]], [0], "whole numbers"),
    ],
)
def test_what_is_no_column(codes: Any, places: Any, what: str) -> None:
    rows = pa.array([{"n": n} for n in range(2)])
    kind = UnionType.of({"a": rows.type, "b": rows.type})
    with pytest.raises(TypeMismatchError, match=what):
        kind.column(codes, places, [rows, rows.slice(0, 1)])
    with pytest.raises(TypeMismatchError, match="rows of 2 kinds, not 1"):
        kind.column([0], [0], [rows])
    column = kind.column(np.array([1, 0, 0]), [0, 1, 1], [rows, rows.slice(1)])
    assert [row.row.n for row in python_values(column)] == [1, 1, 1]
    assert len(kind.column([], [], [rows, rows])) == 0


def test_places_that_only_begin_and_end_like_a_slice_are_no_slice() -> None:
    assert picked(pa.array([10, 11, 12]), np.array([0, 0, 2])).to_pylist() == [10, 10, 12]
    assert picked(pa.array([10, 11, 12]), np.array([1, 2])).to_pylist() == [11, 12]
    assert picked(pa.array([10, 11, 12]), np.array([], np.int64)).to_pylist() == []


def test_the_type_travels() -> None:
    kind = union(pa.string())
    again = pickle.loads(pickle.dumps(kind))
    assert again == kind
    assert hash(again) == hash(kind)
    assert kind != union(pa.large_string())
    values = [OfKind("tick", (1,)), None, OfKind("person", (1, "ann"))]
    batch = pa.record_batch({"e": column(values, kind)})
    file = io.BytesIO()
    with pa.ipc.new_stream(file, batch.schema) as writer:
        writer.write_batch(batch.slice(1))
    read = pa.ipc.open_stream(file.getvalue()).read_all()
    assert read.schema.field("e").type == kind
    assert python_values(read.column("e").chunk(0)) == values[1:]


def test_nothing_and_nulls() -> None:
    kind = union(pa.string())
    for nothing in (empty_array(kind), null_array(0, kind)):
        nothing.validate(full=True)
        assert python_values(nothing) == []
        nulls = take_column(nothing, pa.nulls(2, pa.int64()))
        assert python_values(nulls) == [None, None]
    assert python_values(null_array(3, kind)) == [None] * 3


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (("cat", (1,)), r"'cat', \(1,\).* no OfKind of the kinds person, bid, tick"),
        (5, "value 5 does not fit .* no OfKind"),
        (OfKind("person", (1.5, "a")), "field 'person': field 'id': value 1.5"),
        (OfKind("tick", {"other": 1}), "field 'tick'"),
    ],
)
def test_what_is_no_value(value: Any, message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        to_array([None, value], union(pa.string()))


def test_a_value_is_of_one_kind() -> None:
    kind = UnionType.of({"a": pa.struct([("n", pa.int64())]), "b": pa.struct([("m", pa.int64())])})
    two = pa.array([{"a": {"n": 1}, "b": {"m": 2}}], kind.spread_type)
    with pytest.raises(TypeMismatchError, match="has several kinds"):
        kind.gathered(two)


def test_kinds_are_rows_and_not_too_many() -> None:
    with pytest.raises(TypeMismatchError, match="the kind 'n' of a union is no row but int64"):
        UnionType.of({"n": pa.int64()})
    row = pa.struct([("n", pa.int64())])
    for kinds in ({}, {f"k{n}": row for n in range(128)}):
        with pytest.raises(TypeMismatchError, match=f"1 to 127 kinds, not {len(kinds)}"):
            UnionType.of(kinds)


def test_within_other_values_it_has_no_plain_form() -> None:
    kind = UnionType.of({"a": pa.struct([("n", pa.int64())])})
    values = [[OfKind("a", (1,)), None], []]
    lists = to_array(values, pa.list_(kind))
    assert python_values(lists) == [[OfKind("a", (1,)), None], []]
    with pytest.raises(TypeMismatchError, match="the column 'l' has values of several kinds"):
        as_stored(pa.record_batch({"l": lists}))

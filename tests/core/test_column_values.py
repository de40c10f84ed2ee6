"""Columns become the Python values that Arrow says, and rows become the columns they came from."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.batch import ColumnBatch, ObjectBatch, to_columns
from strom.core.column_values import python_values
from strom.core.row import Row

INT64 = st.integers(-(2**63), 2**63 - 1)
MOMENTS = st.integers(-5 * 10**10, 5 * 10**10)
"""Numbers that are moments in every unit up to seconds: years 386 to 3554."""

WORDS: dict[pa.DataType, Any] = {
    pa.int8(): st.integers(-128, 127),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.int64(): INT64,
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=9),
    pa.large_string(): st.text(max_size=9),
    pa.string_view(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=9),
    pa.binary_view(): st.binary(max_size=20),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.decimal128(20, 3): st.decimals(-(10**9), 10**9, places=3),
    pa.date32(): st.dates(),
    pa.date64(): st.dates(),
    pa.time32("s"): st.times().map(lambda t: t.replace(microsecond=0)),
    pa.time32("ms"): st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    pa.time64("us"): st.times(),
    pa.duration("s"): st.integers(-(10**9), 10**9).map(lambda s: timedelta(seconds=s)),
    pa.duration("us"): st.integers(-(10**15), 10**15).map(lambda u: timedelta(microseconds=u)),
    pa.list_(pa.int64()): st.lists(INT64, max_size=3),
    pa.list_(pa.timestamp("us")): st.lists(st.datetimes(), max_size=2),
    pa.struct([("a", pa.int64()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": INT64, "b": st.none() | st.text(max_size=3)}
    ),
    pa.map_(pa.string(), pa.int64()): st.dictionaries(st.text(max_size=3), INT64, max_size=3),
    **{pa.timestamp(unit): MOMENTS for unit in ("s", "ms", "us")},
    pa.timestamp("ms", tz="UTC"): MOMENTS,
    pa.timestamp("us", tz="Europe/Berlin"): MOMENTS,
    pa.timestamp("s", tz="America/New_York"): MOMENTS,
    pa.timestamp("ms", tz="+05:30"): MOMENTS,
}


@st.composite
def columns(draw: Any, kind: pa.DataType) -> pa.Array:
    """A column of `kind`, mostly with nulls, a slice of a longer one."""
    words = WORDS[kind]
    values = draw(st.lists(words if draw(st.booleans()) else st.none() | words, max_size=12))
    array = pa.array(values, type=pa.int64()).cast(kind) if words is MOMENTS else None
    array = pa.array(values, type=kind) if array is None else array
    start = draw(st.integers(0, len(array)))
    return array.slice(start, draw(st.integers(0, len(array) - start)))


def exact(value: Any) -> Any:
    """Equal exactly for values that nobody can tell apart."""
    if isinstance(value, datetime):
        return (datetime, value.replace(tzinfo=None), value.fold, str(value.tzinfo))
    if isinstance(value, float):
        return (float, value.hex(), math.copysign(1, value))
    if isinstance(value, Decimal):
        return (Decimal, value.as_tuple())
    if isinstance(value, dict | Row):
        items = value.items() if isinstance(value, dict) else value.as_dict().items()
        return [(k, exact(v)) for k, v in items]
    return [exact(v) for v in value] if isinstance(value, list) else (type(value), value)


@pytest.mark.parametrize("kind", WORDS, ids=str)
@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_values_are_those_of_arrow(kind: pa.DataType, data: Any) -> None:
    column = data.draw(columns(kind))
    expected = column.to_pylist(maps_as_pydicts="strict") if pa.types.is_nested(kind) else None
    expected = column.to_pylist() if expected is None else expected
    assert list(map(exact, python_values(column))) == list(map(exact, expected))


CODED = [pa.string(), pa.int64(), pa.timestamp("ms"), pa.date32(), pa.list_(pa.int64())]


@pytest.mark.parametrize("kind", CODED, ids=str)
@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_dictionaries_give_the_values_they_stand_for(kind: pa.DataType, data: Any) -> None:
    words = data.draw(columns(kind))
    codes = st.none() | st.integers(0, len(words) - 1) if len(words) else st.none()
    indices = pa.array(data.draw(st.lists(codes, max_size=20)), type=pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, words)
    start = data.draw(st.integers(0, len(column)))
    column = column.slice(start)
    assert list(map(exact, python_values(column))) == list(map(exact, column.to_pylist()))


def test_rows_do_not_share_what_can_be_changed() -> None:
    lists = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([[1, 2]]))
    first, second = python_values(lists)
    first.append(3)
    assert second == [1, 2]


def test_each_word_of_a_dictionary_is_made_once() -> None:
    first, second, _ = python_values(pa.array(["a" * 9, "a" * 9, None]).dictionary_encode())
    assert first is second


def test_the_hour_that_comes_twice() -> None:
    hour = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
    column = pa.array([hour, hour + timedelta(hours=1)], type=pa.timestamp("ms", "Europe/Berlin"))
    moments = python_values(column)
    assert [(m.hour, m.minute, m.fold) for m in moments] == [(2, 30, 0), (2, 30, 1)]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.date32(), pa.duration("s")], ids=str)
def test_what_python_cannot_hold_is_refused_as_before(kind: pa.DataType) -> None:
    most = 2**31 - 1 if pa.types.is_date(kind) else 2**62
    column = pa.array([0, most], type=pa.int32() if pa.types.is_date(kind) else pa.int64())
    with pytest.raises((OverflowError, ValueError)):
        python_values(column.cast(kind))


def test_the_first_and_the_last_day() -> None:
    days = [date.min, date.max]
    assert python_values(pa.array(days)) == days
    moments = [datetime.min, datetime.max]
    assert python_values(pa.array(moments, type=pa.timestamp("us"))) == moments


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.lists(st.sampled_from(list(WORDS)), min_size=1, max_size=4))
def test_rows_become_the_columns_they_came_from(data: Any, kinds: list[pa.DataType]) -> None:
    arrays = [data.draw(columns(kind)) for kind in kinds]
    rows = min(map(len, arrays))
    arrays = [array.slice(0, rows) for array in arrays]
    names = [f"c{i}" for i in range(len(arrays))]
    batch = ColumnBatch(pa.RecordBatch.from_arrays(arrays, names=names), np.arange(rows))
    for records in (batch.rows(), list(map(tuple, batch.rows())), list(map(list, batch.rows()))):
        back = to_columns(ObjectBatch(records, batch.timestamps), batch.data.schema)
        back.data.validate(full=True)
        assert back.data.schema.equals(batch.data.schema)
        for before, after in zip(arrays, back.data.columns, strict=True):
            assert list(map(exact, after.to_pylist())) == list(map(exact, before.to_pylist()))

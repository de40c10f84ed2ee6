"""Values of Arrow types as bytes of rows: what is read is what was written, of any slice."""

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
from strom.state.object_keys import ObjectKeyType
from strom.state.rocks.tables.value_bytes import (
    RowReader,
    fixed_segment,
    has_bytes,
    joined,
    segments_of,
)

PLAIN: list[tuple[pa.DataType, Any]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=3)),
    (pa.large_string(), st.text(max_size=3)),
    (pa.binary(), st.binary(max_size=3)),
    (pa.large_binary(), st.binary(max_size=3)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.decimal128(10, 2), st.integers(-(10**6), 10**6).map(lambda n: Decimal(n) / 100)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))),
    (pa.duration("ms"), st.integers(0, 10**6).map(lambda n: dt.timedelta(milliseconds=n))),
]


def nested(inner: Any) -> Any:
    """Types with their values, of lists and structs of such."""

    def lists(made: Any) -> Any:
        kind, values = made
        items = st.lists(st.none() | values, max_size=3)
        return st.sampled_from([(pa.list_(kind), items), (pa.large_list(kind), items)])

    def structs(made: Any) -> Any:
        fields = [(f"f{at}", kind) for at, (kind, _) in enumerate(made)]
        values = {f"f{at}": st.none() | one for at, (_, one) in enumerate(made)}
        return st.just((pa.struct(fields), st.fixed_dictionaries(values)))

    return inner.flatmap(lists) | st.lists(inner, min_size=1, max_size=3).flatmap(structs)


KINDS = st.recursive(st.sampled_from(PLAIN), nested, max_leaves=4)


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_what_is_read_is_what_was_written(data: Any) -> None:
    """Two columns behind a number, of slices, in rows that are taken in any order."""
    kinds = [data.draw(KINDS) for _ in range(2)]
    count = data.draw(st.integers(0, 5))
    before = data.draw(st.integers(0, 2))
    columns = []
    for kind, values in kinds:
        assert has_bytes(kind)
        size = before + count + 1
        drawn = data.draw(st.lists(st.none() | values, min_size=size, max_size=size))
        columns.append(pa.array(drawn, type=kind).slice(before, count))
    numbers = np.arange(count).astype([("n", "int64"), ("b", "bool")])
    segments = [fixed_segment(numbers), *segments_of(columns[0]), *segments_of(columns[1])]
    rows = joined(segments, count)
    order = data.draw(st.permutations(range(count)))
    reader = RowReader([rows[at] for at in order])
    assert reader.fixed(numbers.dtype)["n"].tolist() == list(order)
    for column in columns:
        found = reader.values(column.type)
        found.validate(full=True)
        assert found.type == column.type
        assert found.equals(column.take(pa.array(order, pa.int64())))
    reader.end()


@pytest.mark.parametrize(
    "kind",
    [
        ObjectKeyType(),
        pa.list_(ObjectKeyType()),
        pa.map_(pa.string(), pa.int64()),
        pa.dictionary(pa.int32(), pa.string()),
        pa.struct([("a", pa.string_view())]),
        pa.null(),
    ],
    ids=str,
)
def test_what_has_no_bytes(kind: pa.DataType) -> None:
    assert not has_bytes(kind)


def test_bytes_that_are_no_row_are_told() -> None:
    (row,) = joined(segments_of(pa.array(["text"])), 1)
    for wrong in (row[:-1], row + b"x", b"", row[:2]):
        with pytest.raises(StateError, match="not the length that it says"):
            read([row, wrong])


def read(rows: list[bytes]) -> None:
    reader = RowReader(rows)
    reader.values(pa.string())
    reader.end()

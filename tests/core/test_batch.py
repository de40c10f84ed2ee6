"""Batches: views of the same records, whatever is inside."""

from __future__ import annotations

import dataclasses
import pickle
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from strom.core.batch import ColumnBatch, ObjectBatch, compatible, concat, to_columns
from strom.core.errors import TypeMismatchError
from strom.core.row import Row, make_row


class Point(NamedTuple):
    x: int
    y: float


@dataclasses.dataclass
class Trade:
    symbol: str
    price: float


STAMPS = np.array([10, 20, 30, 40], dtype=np.int64)
LONG = "longer than what a view keeps inline"


def columns(kind: pa.DataType | None = None) -> ColumnBatch:
    texts = pa.array(["a", None, LONG, "d"], type=kind or pa.string())
    data = pa.record_batch({"k": pa.array([1, 2, 3, 4]), "s": texts})
    return ColumnBatch(data, STAMPS)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_take_filter_and_slice_agree(kind: pa.DataType) -> None:
    batch = columns(kind)
    mask = np.array([False, True, True, False])
    parts = [batch.filter(mask), batch.take(np.array([1, 2])), batch.slice(1, 2)]
    for part in parts:
        assert part.data.schema == batch.data.schema
        assert part.data.to_pydict() == {"k": [2, 3], "s": [None, LONG]}
        assert part.timestamps is not None
        assert part.timestamps.tolist() == [20, 30]


def test_object_batches_do_the_same() -> None:
    batch = ObjectBatch(["a", "b", "c", "d"], STAMPS)
    for part in (batch.filter(np.array([False, True, True, False])), batch.slice(1, 2)):
        assert part.values == ["b", "c"]
        assert part.timestamps is not None
        assert part.timestamps.tolist() == [20, 30]


def test_rows_know_their_fields() -> None:
    row = columns().rows()[0]
    assert (row.k, row["s"], row[0]) == (1, "a", 1)
    assert row == (1, "a")
    assert row.as_dict() == {"k": 1, "s": "a"}
    assert row.replace(k=7) == Row(k=7, s="a")


def test_a_field_may_be_called_count() -> None:
    row = Row(count=3, index=4)
    assert (row.count, row.index) == (3, 4)


def test_rows_pickle_with_their_fields() -> None:
    row = make_row(("a", "b"), (1, 2))
    again = pickle.loads(pickle.dumps(row))
    assert again.as_dict() == {"a": 1, "b": 2}
    assert type(again) is type(row)


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(KeyError, match="no field 'nope'"):
        Row(a=1)["nope"]


def test_concat_keeps_order_and_stamps() -> None:
    both = concat([columns().slice(0, 1), columns().slice(3, 1)])
    assert both.rows() == [(1, "a"), (4, "d")]
    assert both.timestamps is not None
    assert both.timestamps.tolist() == [10, 40]


def test_concat_refuses_what_does_not_fit() -> None:
    bare = ColumnBatch(columns().data)
    assert not compatible(bare, columns())
    with pytest.raises(ValueError, match="timestamps"):
        concat([bare, columns()])
    with pytest.raises(ValueError, match="columnar and object"):
        concat([bare, ObjectBatch([1])])


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([Point(1, 2.0), Point(3, 4.0)], ["x", "y"]),
        ([Trade("a", 1.0)], ["symbol", "price"]),
        ([{"a": 1, "b": 2}], ["a", "b"]),
        ([(1, "x")], ["f0", "f1"]),
        ([1, 2, 3], ["value"]),
        ([Row(a=1)], ["a"]),
    ],
)
def test_columns_are_inferred(values: list[object], names: list[str]) -> None:
    assert to_columns(ObjectBatch(list(values))).data.schema.names == names


def test_a_misfit_is_named() -> None:
    schema = pa.schema([("a", pa.int64())])
    with pytest.raises(TypeMismatchError, match="field 'a': value 'x'"):
        to_columns(ObjectBatch([{"a": 1}, {"a": "x"}]), schema)
    with pytest.raises(TypeMismatchError, match="2 fields"):
        to_columns(ObjectBatch([(1, 2), (1, 2, 3)]))


def test_rows_are_made_once_for_a_chain() -> None:
    batch = ColumnBatch(pa.record_batch({"a": [1, 2, 3]}), np.array([7, 8, 9]))
    rows = batch.rows()
    left = batch.filter(np.array([True, False, True])).slice(1, 1).with_timestamps(None)
    assert left.rows()[0] is rows[2]
    assert left.data.to_pydict() == {"a": [3]}
    fresh = ColumnBatch(batch.data).filter(np.array([False, True, False]))
    assert fresh.rows() == [(2,)]


def test_datetimes_are_arrows() -> None:
    for unit in ("s", "ms", "us"):
        for values in ([0, 86_400, -5], [None, 3], [2**60 if unit == "us" else 2**50]):
            column = pa.array(values, pa.timestamp(unit))
            try:
                expected = column.to_pylist()
            except (ValueError, OverflowError):
                continue
            rows = ColumnBatch(pa.record_batch({"t": column})).rows()
            assert [row.t for row in rows] == expected

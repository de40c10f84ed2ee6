"""Dictionary columns get codes with room for the words of many batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.codes import CodeWidener, wide_codes

INNER = pa.dictionary(pa.int8(), pa.string())
WIDE = pa.dictionary(pa.int32(), pa.string())
STAMPS = pa.array([1, 2]).to_numpy()


@pytest.mark.parametrize(
    ("kind", "wide", "values"),
    [
        (INNER, WIDE, ["a", None]),
        (pa.dictionary(pa.uint16(), pa.int64()), pa.dictionary(pa.int32(), pa.int64()), [1, 2]),
        (pa.list_(INNER), pa.list_(WIDE), [["a", "b"], None]),
        (pa.large_list(INNER), pa.large_list(WIDE), [[], ["a"]]),
        (pa.struct([("x", INNER)]), pa.struct([("x", WIDE)]), [{"x": "a"}, {"x": None}]),
        (pa.map_(pa.int64(), INNER), pa.map_(pa.int64(), WIDE), [[(1, "a")], []]),
    ],
    ids=str,
)
def test_narrow_codes_become_wide_at_any_depth(kind: Any, wide: Any, values: list[Any]) -> None:
    schema = pa.schema([("n", pa.int8()), ("x", kind)], metadata={"m": "1"})
    data = pa.RecordBatch.from_arrays(
        [pa.array([1, 2], pa.int8()), pa.array(values, kind)], schema=schema
    )
    got = CodeWidener()(ColumnBatch(data, STAMPS))
    assert isinstance(got, ColumnBatch)
    assert got.data.schema.types == [pa.int8(), wide]
    assert got.data.schema.metadata == {b"m": b"1"}
    assert got.data.to_pylist() == data.to_pylist()
    assert got.timestamps is STAMPS
    got.data.validate(full=True)


def test_order_and_nullability_stay() -> None:
    field = pa.field("x", pa.dictionary(pa.uint8(), pa.string(), ordered=True), nullable=False)
    (wide,) = wide_codes(pa.schema([field]))
    assert wide.type.ordered
    assert not wide.nullable


def test_what_needs_nothing_passes_as_it_is() -> None:
    widen = CodeWidener()
    for batch in (
        ObjectBatch([1]),
        ColumnBatch(pa.record_batch({"x": pa.array(["a"], WIDE)})),
        ColumnBatch(pa.record_batch({"x": pa.array(["a"], pa.dictionary(pa.int64(), "str"))})),
        ColumnBatch(pa.record_batch({"x": pa.array([1])}).select([])),
    ):
        assert widen(batch) is batch


def test_each_schema_of_a_stream_is_looked_at() -> None:
    widen = CodeWidener()
    narrow = ColumnBatch(pa.record_batch({"x": pa.array(["a"], INNER)}))
    plain = ColumnBatch(pa.record_batch({"x": pa.array(["a"])}))
    types = []
    for batch in (narrow, narrow, plain, narrow):
        got = widen(batch)
        assert isinstance(got, ColumnBatch)
        types.append(got.data.schema.field(0).type)
    assert types == [WIDE, WIDE, pa.string(), WIDE]

"""Spark's types as Arrow's, and rows brought to the columns of a stream.

| Spark | Arrow |
|---|---|
| timestamp, timestamp_ntz | timestamp[us, UTC], timestamp[us] |
| decimal(p, s) | decimal128(p, s) |
| array, map, struct | list, map, struct, of any depth |
| void (all null) | string |
| char, varchar | string |

Intervals and user-defined types have no counterpart and are refused by name. All columns may be
null, as Spark sees whatever is read from files.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...core.arrays import numpy_of
from ...core.batch import Timestamps
from ...core.errors import TypeMismatchError

_DAY_MS = 86_400_000


def arrow_schema(schema: Any) -> pa.Schema:
    """Of a Spark StructType. Raises TypeMismatchError naming the column of a type without
    counterpart."""
    return pa.schema([(field.name, _arrow(field.dataType, field.name)) for field in schema])


def without_voids(frame: Any) -> Any:
    """The frame with columns that can only be null as strings, as Parquet holds them."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import NullType

    voids = [field.name for field in frame.schema if isinstance(field.dataType, NullType)]
    if not voids:
        return frame
    return frame.withColumns({name: f.lit(None).cast("string") for name in voids})


def fitted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of `schema`; one that they lack is null."""
    arrays = []
    for field in schema:
        at = rows.schema.get_field_index(field.name)
        if at < 0:
            arrays.append(pa.nulls(rows.num_rows, field.type))
        else:
            arrays.append(_cast(rows.column(at), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def millis(column: pa.Array, name: str) -> Timestamps:
    """Event times (ms, rounded down) of a column of timestamps, dates or integers (ms)."""
    if column.null_count:
        raise TypeMismatchError(
            f"event time column '{name}' is null in {column.null_count} rows: filter them out in "
            "the Spark query, or fill them"
        )
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _int64(column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())) // 1000
    if pa.types.is_date32(kind):
        return _int64(column.cast(pa.int32()).cast(pa.int64())) * _DAY_MS
    if pa.types.is_integer(kind):
        return _int64(column.cast(pa.int64()))
    raise TypeMismatchError(
        f"event time column '{name}' has type {kind}: a timestamp, a date or integers (ms) are "
        "expected"
    )


def _int64(column: pa.Array) -> Timestamps:
    return np.asarray(numpy_of(column), dtype=np.int64)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type.equals(kind):
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.array(column.to_pylist(), kind)


def _arrow(kind: Any, column: str) -> pa.DataType:
    from pyspark.sql import types as t

    match kind:
        case t.ArrayType():
            return pa.list_(pa.field("element", _arrow(kind.elementType, column)))
        case t.MapType():
            return pa.map_(_arrow(kind.keyType, column), _arrow(kind.valueType, column))
        case t.StructType():
            return pa.struct([(field.name, _arrow(field.dataType, column)) for field in kind])
        case t.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case t.TimestampType():
            return pa.timestamp("us", "UTC")
        case t.TimestampNTZType():
            return pa.timestamp("us")
        case t.StringType() | t.CharType() | t.VarcharType() | t.NullType():
            return pa.string()
    found = {
        t.BooleanType: pa.bool_(),
        t.ByteType: pa.int8(),
        t.ShortType: pa.int16(),
        t.IntegerType: pa.int32(),
        t.LongType: pa.int64(),
        t.FloatType: pa.float32(),
        t.DoubleType: pa.float64(),
        t.BinaryType: pa.binary(),
        t.DateType: pa.date32(),
    }.get(type(kind))
    if found is None:
        raise TypeMismatchError(
            f"column '{column}' has Spark type {kind.simpleString()}, which a stream cannot hold; "
            "cast it in the query, before the bridge"
        )
    return found

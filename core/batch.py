"""The unit of work: an immutable batch of records, columnar or objects, with optional event times.

A `ColumnBatch` wraps one `pyarrow.RecordBatch`; an `ObjectBatch` wraps a list of Python values.
Both carry `timestamps`: int64 milliseconds since the epoch, one per record, or None when no
timestamp has been assigned yet. Batches are immutable: nobody writes into one after building it,
so batches, slices and arrays may be shared between operators without copying.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import compress
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .arrays import numpy_of
from .column_values import python_values
from .errors import TypeMismatchError
from .row import Row, row_factory

Timestamps = npt.NDArray[np.int64]


class ColumnBatch:
    """Records as an Arrow record batch. `rows()` views them as `Row` tuples, computed once: what is
    left after `slice` and `filter` has them already."""

    __slots__ = ("_rows", "data", "timestamps")

    def __init__(self, data: pa.RecordBatch, timestamps: Timestamps | None = None) -> None:
        self.data = data
        self.timestamps = timestamps
        self._rows: list[Any] | None = None

    def __len__(self) -> int:
        return int(self.data.num_rows)

    def __repr__(self) -> str:
        return f"ColumnBatch({len(self)} rows, {self.data.schema.names})"

    @property
    def nbytes(self) -> int:
        """Bytes that this slice of the columns takes on the wire (not the parents' buffers)."""
        extra = 0 if self.timestamps is None else 8 * len(self)
        return int(self.data.nbytes) + extra

    def rows(self) -> list[Any]:
        """The records as `Row`s with this batch's column names."""
        if self._rows is None:
            make = row_factory(tuple(self.data.schema.names))
            columns = list(map(python_values, self.data.columns))
            self._rows = make(columns, len(self))
        return self._rows

    def slice(self, start: int, length: int) -> ColumnBatch:
        stamps, stop = self.timestamps, start + length
        part = ColumnBatch(
            self.data.slice(start, length), None if stamps is None else stamps[start:stop]
        )
        part._rows = None if self._rows is None else self._rows[start:stop]
        return part

    def take(self, indices: npt.NDArray[np.int64]) -> ColumnBatch:
        stamps = self.timestamps
        return ColumnBatch(
            _take(self.data, pa.array(indices)), None if stamps is None else stamps[indices]
        )

    def filter(self, mask: npt.NDArray[np.bool_]) -> ColumnBatch:
        """The records where `mask` (bool, one per record) is true."""
        stamps = self.timestamps
        try:
            data = self.data.filter(pa.array(mask))
        except pa.ArrowNotImplementedError:
            data = _take(self.data, pa.array(np.flatnonzero(mask)))
        left = ColumnBatch(data, None if stamps is None else stamps[mask])
        left._rows = None if self._rows is None else list(compress(self._rows, mask.tolist()))
        return left

    def with_timestamps(self, timestamps: Timestamps | None) -> ColumnBatch:
        same = ColumnBatch(self.data, timestamps)
        same._rows = self._rows
        return same


class ObjectBatch:
    """Records as a list of Python values; used where values have no declared schema."""

    __slots__ = ("timestamps", "values")

    def __init__(self, values: list[Any], timestamps: Timestamps | None = None) -> None:
        self.values = values
        self.timestamps = timestamps

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"ObjectBatch({len(self)} values)"

    @property
    def nbytes(self) -> int:
        """An estimate: 64 bytes per value, and the timestamps."""
        return len(self.values) * (64 if self.timestamps is None else 72)

    def rows(self) -> list[Any]:
        return self.values

    def slice(self, start: int, length: int) -> ObjectBatch:
        stop = start + length
        stamps = self.timestamps
        return ObjectBatch(self.values[start:stop], None if stamps is None else stamps[start:stop])

    def take(self, indices: npt.NDArray[np.int64]) -> ObjectBatch:
        stamps = self.timestamps
        values = self.values
        return ObjectBatch(
            [values[i] for i in indices.tolist()], None if stamps is None else stamps[indices]
        )

    def filter(self, mask: npt.NDArray[np.bool_]) -> ObjectBatch:
        return self.take(np.flatnonzero(mask))

    def with_timestamps(self, timestamps: Timestamps | None) -> ObjectBatch:
        return ObjectBatch(self.values, timestamps)


Batch = ColumnBatch | ObjectBatch


def concat(batches: Sequence[Batch]) -> Batch:
    """One batch with the records of all, in order. All must be of one kind and, if columnar,
    schema.

    Timestamps are kept when every batch has them; mixing batches with and without is an error.
    """
    if len(batches) == 1:
        return batches[0]
    stamped = [b.timestamps for b in batches if b.timestamps is not None]
    if stamped and len(stamped) != len(batches):
        raise ValueError("cannot concatenate batches with and without timestamps")
    stamps = np.concatenate(stamped) if stamped else None
    columns = [b.data for b in batches if isinstance(b, ColumnBatch)]
    if len(columns) == len(batches):
        return ColumnBatch(pa.concat_batches(columns), stamps)
    values: list[Any] = []
    for batch in batches:
        if isinstance(batch, ColumnBatch):
            raise ValueError("cannot concatenate columnar and object batches")
        values.extend(batch.values)
    return ObjectBatch(values, stamps)


def compatible(left: Batch, right: Batch) -> bool:
    """Whether `concat([left, right])` is allowed."""
    if (left.timestamps is None) != (right.timestamps is None):
        return False
    if isinstance(left, ColumnBatch):
        return isinstance(right, ColumnBatch) and left.data.schema.equals(right.data.schema)
    return isinstance(right, ObjectBatch)


def to_columns(batch: Batch, schema: pa.Schema | None = None) -> ColumnBatch:
    """The batch as columns of `schema` (inferred from the values when None).

    Rows may be `Row`s, named tuples, dataclasses or dicts (matched by name) or plain tuples
    and lists (matched by position; columns f0, f1, ... when inferred). A scalar becomes a single
    column `value`. Raises TypeMismatchError naming the first value that does not fit.
    """
    if isinstance(batch, ColumnBatch):
        if schema is None or batch.data.schema.equals(schema):
            return batch
        return ColumnBatch(_cast(batch.data, schema), batch.timestamps)
    values = batch.values
    names = list(schema.names) if schema is not None else _field_names(values)
    columns = _transpose(values, names)
    arrays = []
    for index, column in enumerate(columns):
        want = schema.field(index).type if schema is not None else None
        try:
            arrays.append(_to_array(column, want))
        except (
            pa.ArrowInvalid,
            pa.ArrowTypeError,
            pa.ArrowNotImplementedError,
            OverflowError,
            TypeError,
        ) as error:
            bad = _first_misfit(column, want)
            raise TypeMismatchError(
                f"field '{names[index]}': value {bad!r} does not fit type "
                f"{want if want is not None else 'inferred from the batch'}: {error}"
            ) from error
    fitted = (
        schema
        if schema is not None
        else pa.schema(
            [pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)]
        )
    )
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=fitted), batch.timestamps)


def _to_array(column: list[Any], want: pa.DataType | None) -> pa.Array:
    """The values as `want` (None: inferred). Arrow by itself cuts 1.5 down to the integer 1."""
    if want is None or not pa.types.is_integer(want):
        return pa.array(column, type=want)
    try:
        found = pa.array(column)
    except OverflowError:  # an unsigned integer beyond 63 bits, which Arrow does not infer
        return pa.array(column, type=want)
    if found.type.equals(want):
        return found
    if pa.types.is_floating(found.type) or pa.types.is_decimal(found.type):
        return found.cast(want)
    return pa.array(column, type=want)


def _take(data: pa.RecordBatch, indices: pa.Array) -> pa.RecordBatch:
    try:
        return data.take(indices)
    except pa.ArrowNotImplementedError:
        columns = [take_column(column, indices) for column in data.columns]
        return pa.RecordBatch.from_arrays(columns, schema=data.schema)


def take_rows(data: pa.RecordBatch, indices: pa.Array) -> pa.RecordBatch:
    """`data.take(indices)`, for columns of every type."""
    return _take(data, indices)


def take_table(data: pa.Table, indices: pa.Array) -> pa.Table:
    """`data.take(indices)`, for columns of every type. `indices` has no nulls."""
    try:
        return data.take(indices)
    except pa.ArrowNotImplementedError:
        batches = data.combine_chunks().to_batches()
        if not batches:
            return data
        return pa.Table.from_batches([_take(pa.concat_batches(batches), indices)])


def take_column(column: pa.Array, indices: pa.Array) -> pa.Array:
    """`column.take(indices)`, for every type; null where an index is null."""
    views = (pa.string_view(), pa.binary_view())
    if pa.types.is_struct(column.type) and any(field.type in views for field in column.type):
        parts = [take_column(part, indices) for part in column.flatten()]
        missing = column.is_null().take(indices).fill_null(True)
        return pa.StructArray.from_arrays(parts, fields=list(column.type), mask=missing)
    if pa.types.is_list(column.type) and column.type.value_type in views:
        texts = column.type.value_type == pa.string_view()
        plain = pa.list_(pa.large_string() if texts else pa.large_binary())
        return column.cast(plain).take(indices).cast(column.type)
    if column.type not in views:
        return column.take(indices)
    return _take_views(column, indices)


def _take_views(column: pa.Array, indices: pa.Array) -> pa.Array:
    """Arrow cannot `take` views yet. They are 16 bytes each; the texts stay where they are."""
    nulls = None
    if column.null_count or indices.null_count:
        valid = column.is_valid().take(indices).fill_null(False)
        nulls = valid.buffers()[1]
        indices = indices.fill_null(0)
    _, views, *texts = column.buffers()
    rows = numpy_of(indices)
    held = np.frombuffer(views, dtype="V16", count=column.offset + len(column))[column.offset :]
    taken = held.take(rows) if len(held) else np.zeros(len(rows), dtype="V16")
    buffers = [nulls, pa.py_buffer(taken.view(np.uint8)), *texts]
    return pa.Array.from_buffers(column.type, len(rows), buffers)


def _cast(data: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    try:
        return data.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, ValueError) as error:
        raise TypeMismatchError(
            f"columns {data.schema.names} do not fit the declared schema {schema.names}: {error}"
        ) from error


def _field_names(values: list[Any]) -> list[str]:
    if not values:
        raise TypeMismatchError("cannot infer columns from an empty batch; declare a schema")
    first = values[0]
    if isinstance(first, dict):
        return list(first)
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        return [f.name for f in dataclasses.fields(first)]
    fields = getattr(first, "_fields", None)
    if isinstance(first, tuple) and fields:
        return list(fields)
    if isinstance(first, (tuple, list)):
        return [f"f{i}" for i in range(len(first))]
    return ["value"]


def _transpose(values: list[Any], names: list[str]) -> list[list[Any]]:
    width = len(names)
    if not values:
        return [[] for _ in names]
    first = values[0]
    try:
        if isinstance(first, dict):
            return [[value[name] for value in values] for name in names]
        if isinstance(first, (tuple, list)):
            return _transpose_sequences(values, names)
        if dataclasses.is_dataclass(first):
            return [[getattr(value, name) for value in values] for name in names]
    except (KeyError, AttributeError, TypeError) as error:
        raise TypeMismatchError(f"a record lacks one of the fields {names}: {error}") from error
    if width != 1:
        raise TypeMismatchError(f"record {first!r} does not have the {width} fields {names}")
    return [values]


def _transpose_sequences(values: list[Any], names: list[str]) -> list[list[Any]]:
    kinds = set(map(type, values))
    if kinds == {tuple} and set(map(len, values)) == {len(names)}:
        return [list(map(itemgetter(index), values)) for index in range(len(names))]
    for value in values:
        if not isinstance(value, (tuple, list)) or len(value) != len(names):
            raise TypeMismatchError(
                f"record {value!r} does not have the {len(names)} fields {names}"
            )
    return [list(column) for column in zip(*values, strict=True)]


def _first_misfit(column: list[Any], want: pa.DataType | None) -> object:
    for value in column:
        try:
            _to_array([value], want)
        except (
            pa.ArrowInvalid,
            pa.ArrowTypeError,
            pa.ArrowNotImplementedError,
            OverflowError,
            TypeError,
        ):
            return value
    return column[0] if column else None


def schema_text(schema: pa.Schema) -> str:
    """Columns and types for messages: `[a: int64, b: string]`."""
    return "[" + ", ".join(f"{field.name}: {field.type}" for field in schema) + "]"


__all__ = [
    "Batch",
    "ColumnBatch",
    "ObjectBatch",
    "Row",
    "Timestamps",
    "compatible",
    "concat",
    "schema_text",
    "take_column",
    "take_rows",
    "take_table",
    "to_columns",
]

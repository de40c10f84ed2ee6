"""The unit of work: an immutable batch of records, columnar or objects, with optional event times.

A `ColumnBatch` wraps one `pyarrow.RecordBatch`; an `ObjectBatch` wraps a list of Python values.
Both carry `timestamps`: int64 milliseconds since the epoch, one per record, or None when no
timestamp has been assigned yet. Batches are immutable: nobody writes into one after building it,
so batches, slices and arrays may be shared between operators without copying.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .arrow_values import ARROW_ERRORS, inferred, named, to_array
from .column_values import python_values
from .errors import TypeMismatchError
from .failure_text import shown
from .records import transposed
from .row import Row, row_factory
from .taking import is_taken_here, take_column, take_rows, take_table
from .union_type import gathered_unions
from .value_types import as_type, has_tuple_records, holds, is_value_type

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

    @property
    def has_rows(self) -> bool:
        """Whether `rows` has been asked for. Who was given them may have changed one."""
        return self._rows is not None

    def rows(self) -> list[Any]:
        """The records as `Row`s with this batch's column names, or as tuples if declared so."""
        if self._rows is None:
            schema = self.data.schema
            columns = list(map(python_values, self.data.columns))
            if columns and has_tuple_records(schema):
                self._rows = list(zip(*columns, strict=True))
            else:
                self._rows = row_factory(tuple(schema.names))(columns, len(self))
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
            take_rows(self.data, pa.array(indices)), None if stamps is None else stamps[indices]
        )

    def filter(self, mask: npt.NDArray[np.bool_]) -> ColumnBatch:
        """The records where `mask` (bool, one per record) is true."""
        stamps = self.timestamps
        left = ColumnBatch(self._filtered(mask), None if stamps is None else stamps[mask])
        left._rows = None if self._rows is None else list(compress(self._rows, mask.tolist()))
        return left

    def _filtered(self, mask: npt.NDArray[np.bool_]) -> pa.RecordBatch:
        if not any(map(is_taken_here, self.data.schema.types)):
            with suppress(pa.ArrowNotImplementedError):
                return self.data.filter(pa.array(mask))
        return take_rows(self.data, pa.array(np.flatnonzero(mask)))

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
        return isinstance(right, ColumnBatch) and left.data.schema.equals(
            right.data.schema, check_metadata=True
        )
    return isinstance(right, ObjectBatch)


def to_columns(batch: Batch, schema: pa.Schema | None = None) -> ColumnBatch:
    """The batch as columns of `schema` (inferred from the values when None).

    Rows may be `Row`s, named tuples, dataclasses or dicts (matched by name; see `records`) or plain
    tuples and lists (matched by position; columns f0, f1, ... when inferred). A scalar becomes a
    single column `value`. Values are converted exactly (see `arrow_values`). Raises
    TypeMismatchError naming the first value that does not fit.
    """
    if isinstance(batch, ColumnBatch):
        if schema is None or batch.data.schema.equals(schema, check_metadata=True):
            return batch
        return ColumnBatch(_cast(batch.data, schema), batch.timestamps)
    values = batch.values
    if schema is None:
        return _inferred(values, batch.timestamps)
    names = tuple(schema.names)
    columns = transposed(values, names, by_place=has_tuple_records(schema))
    arrays = [
        named(field.name, to_array, column, field.type)
        for field, column in zip(schema, columns, strict=True)
    ]
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=schema), batch.timestamps)


def _inferred(values: list[Any], stamps: Timestamps | None) -> ColumnBatch:
    names = _field_names(values)
    arrays = []
    for name, column in zip(names, transposed(values, tuple(names)), strict=True):
        try:
            arrays.append(inferred(column))
        except ARROW_ERRORS as error:
            bad = next((one for one in column if not _is_inferred(one)), column[0])
            raise TypeMismatchError(
                f"field '{name}': value {shown(bad)} does not fit type inferred from the batch: "
                f"{error}"
            ) from error
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, names=names), stamps)


def _is_inferred(value: Any) -> bool:
    try:
        inferred([value])
    except ARROW_ERRORS:
        return False
    return True


def _cast(data: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    try:
        fitted = gathered_unions(data.select(schema.names), schema).cast(schema)
        arrays = [
            as_type(column, kind) for column, kind in zip(fitted.columns, schema.types, strict=True)
        ]
        for name, array in zip(schema.names, arrays, strict=True):
            if holds(array.type, is_value_type) and not data.column(name).type.equals(array.type):
                python_values(array)  # the storage took it: whether it can be read is seen here
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
        KeyError,
        ValueError,
        TypeMismatchError,
    ) as error:
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

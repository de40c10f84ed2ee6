"""The records that windows may still give out whole, per slice, thinned out now and then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s, numpy_of
from ...core.batch import take_column, take_rows
from ...core.errors import TypeMismatchError
from ...core.value_types import empty_batch
from ...state.backend import KeyedStateBackend
from ..columns import fit, held_type, retyped
from .compacting_buffer import CompactingBuffer

Chooser = Callable[[pa.RecordBatch], npt.NDArray[np.int64]]
"""The rows to keep, as ascending indices."""


class KeptRecords:
    """Rows are key columns k0.., the columns of `record` as c0.., and a sequence number."""

    def __init__(
        self, state: KeyedStateBackend, keys: pa.Schema, record: pa.Schema, choose: Chooser
    ) -> None:
        self._keys = keys
        self._record = record
        self._schema = pa.schema(
            [pa.field(f"k{i}", held_type(field.type)) for i, field in enumerate(keys)]
            + [pa.field(f"c{i}", held_type(field.type)) for i, field in enumerate(record)]
            + [pa.field("number", pa.int64())]
        )
        self._rows = CompactingBuffer(
            state.buffer("records", self._schema, cold=True),
            state.max_parallelism,
            lambda rows: choose(_one(rows)),
        )

    def fitted(self, names: list[str], columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Columns of these names as those of `record`; TypeMismatchError if they are others."""
        if names != self._record.names:
            raise TypeMismatchError(
                f"records have columns {names} now and had {self._record.names} before"
            )
        return [
            fit(array, field.type, f"column '{field.name}'")
            for array, field in zip(columns, self._record, strict=True)
        ]

    def append(
        self,
        slice_end: int,
        keys: pa.RecordBatch,
        columns: list[pa.Array],
        numbers: Int64s,
        chosen: npt.NDArray[np.int64] | None,
    ) -> None:
        """Add the `chosen` ones of these records (None: all), `columns` as `fitted` gave them."""
        if chosen is not None:
            if not len(chosen):
                return
            at = pa.array(chosen)
            keys, numbers = take_rows(keys, at), numbers[chosen]
            columns = [take_column(column, at) for column in columns]
        arrays = retyped([*keys.columns, *columns, pa.array(numbers)], self._schema.types)
        self._rows.append(slice_end, pa.RecordBatch.from_arrays(arrays, schema=self._schema), keys)

    def rows(self, slice_ends: Sequence[int]) -> pa.RecordBatch:
        """Those of several slices, in order of their numbers."""
        rows = _one(pa.concat_tables([self._rows.rows(end) for end in slice_ends]))
        if len(slice_ends) > 1:
            numbers = numpy_of(rows.column(rows.num_columns - 1))
            rows = take_rows(rows, pa.array(np.argsort(numbers)))
        return rows

    def keys(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The key columns of such rows."""
        columns = retyped(rows.columns[: len(self._keys)], self._keys.types)
        return pa.RecordBatch.from_arrays(columns, schema=self._keys)

    def records(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The records in such rows."""
        columns = retyped(rows.columns[len(self._keys) : -1], self._record.types)
        return pa.RecordBatch.from_arrays(columns, schema=self._record)

    def column(self, rows: pa.RecordBatch, index: int) -> pa.Array:
        """A column of the records in such rows, in the type in which it is held."""
        return rows.column(len(self._keys) + index)

    def drop(self, slice_end: int) -> None:
        self._rows.drop(slice_end)


def _one(rows: pa.Table) -> pa.RecordBatch:
    """The table as one batch."""
    batches = rows.combine_chunks().to_batches()
    return pa.concat_batches(batches) if batches else empty_batch(rows.schema)

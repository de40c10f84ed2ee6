"""`ExtremeWindow`: the records holding a window's extreme per key, ties or the first.

Per slice a table holds each key's extreme so far, and a buffer the records that may still hold it.
A batch is first cut to the records that reach the running extreme (vectorised), which are few;
records beaten later are weeded out at compaction and when the window fires. Records whose field is
null never hold an extreme; NaN is the greatest value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs import ExtremeWindow
from ...core.arrays import numpy_of
from ...core.batch import ColumnBatch, take_column, take_rows, take_table
from ...core.errors import TypeMismatchError
from ...state.backend import AccColumn, ColumnTable, KeyedStateBackend, Slots
from ..columns import fit, held_type, ranks, retyped, storage, to_numbers
from ..kernels import scatter
from .compacting_buffer import CompactingBuffer
from .slices import Int64s

NUMBER = "number"
VALUE, SEEN = "value", "seen"
NUMBERING = 0


class WindowExtremes:
    """Rows in the buffer: key columns k0.., input columns c0.., sequence number."""

    def __init__(self, spec: ExtremeWindow) -> None:
        self._spec = spec

    def inputs(self, batch: ColumnBatch) -> list[pa.Array]:
        self._names: list[str] = batch.data.schema.names
        return list(batch.data.columns)

    def layout(self, inputs: list[pa.Array]) -> list[pa.Field]:
        return [pa.field(n, a.type) for n, a in zip(self._names, inputs, strict=True)]

    def bind(self, state: KeyedStateBackend, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        self._keys = keys
        self._output = pa.schema(list(fields))
        self._at = self._output.get_field_index(self._spec.field)
        if self._at < 0:
            raise TypeMismatchError(f"no column '{self._spec.field}' in {self._output.names}")
        self._held = storage(self._output.field(self._at).type)
        columns = [AccColumn(VALUE, self._held or "int64"), AccColumn(SEEN, "bool", False)]
        self._table = state.table("extremes", keys, columns)
        self._scratch = state.table("scratch", keys, columns)
        self._schema = pa.schema(
            [pa.field(f"k{i}", held_type(field.type)) for i, field in enumerate(keys)]
            + [pa.field(f"c{i}", held_type(field.type)) for i, field in enumerate(fields)]
            + [pa.field(NUMBER, pa.int64())]
        )
        buffer = state.buffer("records", self._schema)
        self._rows = CompactingBuffer(buffer, state.max_parallelism, self._choose)

    def fold(
        self, slice_end: int, keys: pa.RecordBatch, inputs: list[pa.Array], numbers: Int64s
    ) -> None:
        if self._names != self._output.names:
            raise TypeMismatchError(
                f"records have columns {self._names} now and had {self._output.names} before"
            )
        fitted = [
            fit(array, field.type, f"column '{field.name}'")
            for array, field in zip(inputs, self._output, strict=True)
        ]
        table = self._table.table(slice_end)
        slots = table.slots(keys)
        chosen = np.flatnonzero(self._candidates(slots, fitted[self._at], table))
        if not len(chosen):
            return
        at = pa.array(chosen)
        kept = take_rows(keys, at)
        columns = [take_column(array, at) for array in fitted]
        columns = [*kept.columns, *columns, pa.array(numbers[chosen])]
        columns = retyped(columns, self._schema.types)
        self._rows.append(slice_end, pa.RecordBatch.from_arrays(columns, schema=self._schema), kept)

    def slices(self) -> list[int]:
        return self._table.namespaces()

    def drop(self, slice_end: int) -> None:
        self._table.drop(slice_end)
        self._rows.drop(slice_end)

    def save(self) -> None:
        """Everything is in keyed state."""

    def fire(
        self, slice_ends: list[int], only: pa.RecordBatch | None
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        rows = pa.concat_tables([self._rows.rows(end) for end in slice_ends])
        if len(slice_ends) > 1:
            rows = take_table(rows, pa.array(np.argsort(numpy_of(rows.column(NUMBER)))))
        held = take_table(rows, pa.array(self._choose(rows, only)))
        return self._key_columns(held), _record_batch(
            held.select([f"c{i}" for i in range(len(self._output))]), self._output
        )

    def _choose(self, rows: pa.Table, only: pa.RecordBatch | None = None) -> npt.NDArray[np.int64]:
        """The rows that hold their key's extreme, of all keys or `only` those given."""
        table = self._scratch.table(NUMBERING)
        limit = 0
        if only is not None:
            limit = int(table.slots(only).max()) + 1
        slots = table.slots(self._key_columns(rows))
        column = rows.column(f"c{self._at}").combine_chunks()
        chosen = self._candidates(slots, _one(column), table)
        self._scratch.drop(NUMBERING)
        if only is not None:
            chosen &= slots < limit
        return np.flatnonzero(chosen)

    def _candidates(
        self, slots: Slots, column: pa.Array, table: ColumnTable
    ) -> npt.NDArray[np.bool_]:
        """Which rows may hold the extreme, folding numbers into the table's. Ranks of values that
        are not numbers mean nothing beyond this call, so those are compared among themselves."""
        chosen = np.empty(len(slots), dtype=np.bool_)
        acc: npt.NDArray[Any]
        if self._held is not None:
            values, valid = to_numbers(column, self._held)
            acc, seen = table.column(VALUE), table.column(SEEN)
        else:
            values = ranks(column)
            valid = numpy_of(column.is_valid())
            acc, seen = np.zeros(len(table), dtype=np.int64), np.zeros(len(table), dtype=np.bool_)
        largest = self._spec.kind == "max"
        scatter.candidates(slots, values, valid, acc, seen, largest, self._spec.ties, chosen)
        return chosen

    def _key_columns(self, rows: pa.Table) -> pa.RecordBatch:
        return _record_batch(rows.select([f"k{i}" for i in range(len(self._keys))]), self._keys)


def _record_batch(rows: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """The table as one batch, columns renamed to those of `schema`."""
    columns = retyped([_one(column.combine_chunks()) for column in rows.columns], schema.types)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _one(column: Any) -> pa.Array:
    """`combine_chunks` of a chunked array gives an array or, for some types, one chunk."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks else pa.array([], type=column.type)
    return column

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

from ...api.specs.windows import ExtremeWindow
from ...core.arrays import Int64s, Slots, numpy_of
from ...core.batch import ColumnBatch, take_rows
from ...core.errors import TypeMismatchError
from ...state.backend import AccColumn, KeyedStateBackend
from ...state.column_face import SlotTable
from ..columns import ranks, require_order, storage, to_numbers
from ..kernels import scatter
from .kept_records import KeptRecords

VALUE, SEEN = "value", "seen"
NUMBERING = 0


class WindowExtremes:
    """See above; called by the window operator."""

    def __init__(self, spec: ExtremeWindow) -> None:
        self._spec = spec

    def inputs(self, batch: ColumnBatch) -> list[pa.Array]:
        self._names: list[str] = batch.data.schema.names
        return list(batch.data.columns)

    @property
    def names(self) -> list[str]:
        return list(self._output.names)

    def layout(self, inputs: list[pa.Array]) -> list[pa.Field]:
        return [pa.field(n, a.type) for n, a in zip(self._names, inputs, strict=True)]

    def bind(self, state: KeyedStateBackend, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        self._output = pa.schema(list(fields))
        self._at = self._output.get_field_index(self._spec.field)
        if self._at < 0:
            raise TypeMismatchError(f"no column '{self._spec.field}' in {self._output.names}")
        require_order(self._output.field(self._at).type, f"column '{self._spec.field}'")
        self._held = storage(self._output.field(self._at).type)
        columns = [AccColumn(VALUE, self._held or "int64"), AccColumn(SEEN, "bool", False)]
        self._table = state.table("extremes", keys, columns, cold=True)
        self._scratch = state.table("scratch", keys, columns)
        self._rows = KeptRecords(state, keys, self._output, self._choose)

    def fold(
        self, slice_end: int, keys: pa.RecordBatch, inputs: list[pa.Array], numbers: Int64s
    ) -> None:
        columns = self._rows.fitted(self._names, inputs)
        table = self._table.table(slice_end)
        chosen = np.flatnonzero(self._candidates(table.slots(keys), columns[self._at], table))
        self._rows.append(slice_end, keys, columns, numbers, chosen)

    def slices(self) -> list[int]:
        return self._table.namespaces()

    def drop(self, slice_end: int) -> None:
        self._table.drop(slice_end)
        self._rows.drop(slice_end)

    def fire(
        self, slice_ends: list[int], only: pa.RecordBatch | None
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        rows = self._rows.rows(slice_ends)
        held = take_rows(rows, pa.array(self._choose(rows, only)))
        return self._rows.keys(held), self._rows.records(held)

    def _choose(
        self, rows: pa.RecordBatch, only: pa.RecordBatch | None = None
    ) -> npt.NDArray[np.int64]:
        """The rows that hold their key's extreme, of all keys or `only` those given."""
        table = self._scratch.table(NUMBERING)
        limit = 0
        if only is not None:
            limit = int(table.slots(only).max()) + 1
        slots = table.slots(self._rows.keys(rows))
        chosen = self._candidates(slots, self._rows.column(rows, self._at), table)
        self._scratch.drop(NUMBERING)
        if only is not None:
            chosen &= slots < limit
        return np.flatnonzero(chosen)

    def _candidates(
        self, slots: Slots, column: pa.Array, table: SlotTable
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

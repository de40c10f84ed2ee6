"""`BuiltinWindow`: built-in aggregates per (key, window), merged from slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from ...api.specs.windows import BuiltinWindow
from ...core.arrays import Int64s
from ...core.batch import ColumnBatch, take_rows
from ...state.backend import KeyedStateBackend
from ...state.column_face import SlotTable
from ..aggregates.base import Partials, Source, Use
from ..columns import plain_values
from ..slots.slot_aggregates import SlotAggregates

TARGET = 0
"""Scratch namespace in which slices are merged; dropped after each use."""


class WindowContents(Protocol):
    """What a sliced window operator keeps per slice and makes of it when a window fires."""

    @property
    def names(self) -> Sequence[str]:
        """Of the results' columns; known when bound."""
        ...

    def inputs(self, batch: ColumnBatch) -> list[pa.Array]:
        """The columns that are folded, before binding in their own types."""
        ...

    def layout(self, inputs: list[pa.Array]) -> list[pa.Field]:
        """Fields describing `inputs`, from which `bind` can be repeated after a restore."""
        ...

    def bind(self, state: KeyedStateBackend, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        """Create state. Once, before all that follow."""
        ...

    def fold(
        self, slice_end: int, keys: pa.RecordBatch, inputs: list[pa.Array], numbers: Int64s
    ) -> None:
        """Records of one slice, in order of arrival, and their sequence numbers."""
        ...

    def slices(self) -> list[int]:
        """Ends of the slices that hold records, ascending."""
        ...

    def fire(
        self, slice_ends: list[int], only: pa.RecordBatch | None
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """(keys, results) of the window of these slices, one row per result; all keys or `only`
        those given (each of which has records in the window, and may occur several times)."""
        ...

    def drop(self, slice_end: int) -> None: ...


class PartialContents(Protocol):
    """Contents that also take partial aggregates, as local combining makes them."""

    def merge(self, slice_end: int, keys: pa.RecordBatch, partials: list[pa.Array]) -> None:
        """Partials of one slice: the columns that `partials` of another gave."""
        ...


class WindowAggregates:
    """Keeps the aggregates of each slice in a table of its own, in state "slices"."""

    def __init__(self, spec: BuiltinWindow) -> None:
        self._held = SlotAggregates(spec, use=Use.SLICES)
        self.names = self._held.names
        self.inputs = self._held.inputs
        self.layout = self._held.layout

    def bind(self, state: KeyedStateBackend, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        self._held.bind(fields)
        columns = self.columns = self._held.columns
        self._table = state.table("slices", keys, columns, values=self._held.values(), cold=True)
        self._scratch = state.table("scratch", keys, columns, values=self._held.values())

    @property
    def combinable(self) -> bool:
        """Whether partials say all there is to say of the records."""
        return self._held.combinable

    def fold(
        self, slice_end: int, keys: pa.RecordBatch, inputs: list[pa.Array], numbers: Int64s
    ) -> None:
        table = self._table.table(slice_end)
        self._held.fold(table, table.slots(keys), inputs, numbers)
        table.tidy()

    def merge(self, slice_end: int, keys: pa.RecordBatch, partials: list[pa.Array]) -> None:
        table = self._table.table(slice_end)
        columns = {
            column.name: plain_values(array, column.dtype)
            for column, array in zip(self.columns, partials, strict=True)
        }
        self._held.merge(table, table.slots(keys), Partials(columns))

    def partials(self, slice_end: int) -> tuple[pa.RecordBatch, list[pa.Array]]:
        """All keys of a slice and their accumulators, for `merge` elsewhere."""
        table = self._table.table(slice_end)
        keys = table.keys()
        return keys, [pa.array(table.column(c.name)[: len(keys)]) for c in self.columns]

    def size(self, slice_end: int) -> int:
        """How many keys the slice has."""
        return len(self._table.table(slice_end))

    def slices(self) -> list[int]:
        return self._table.namespaces()

    def drop(self, slice_end: int) -> None:
        self._table.drop(slice_end)

    def fire(
        self, slice_ends: list[int], only: pa.RecordBatch | None
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        sources = [self._table.table(end) for end in slice_ends]
        if only is None and len(sources) == 1:
            return self._read(sources[0])
        target = self._scratch.table(TARGET)
        if only is None:
            keys = pa.concat_batches([source.keys() for source in sources])
            whole = Source(*((source, slice(len(source))) for source in sources))
            self._held.merge(target, target.slots(keys), whole)
        else:
            target.slots(only)
            for source in sources:
                self._merge_some(target, source)
        result = self._read(target)
        self._scratch.drop(TARGET)
        return result

    def _merge_some(self, target: SlotTable, source: SlotTable) -> None:
        """The keys of `target` only, as far as the slice has them."""
        at = source.find(target.keys())
        held = np.flatnonzero(at >= 0)
        self._held.merge(target, held, Source((source, at[held])))

    def _read(self, table: SlotTable) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        keys = table.keys()
        results = pa.RecordBatch.from_arrays(self._held.results(table), names=self.names)
        rows = table.column(self._held.rows)[: len(table)]
        if rows.all():
            return keys, results
        present = pa.array(np.flatnonzero(rows))
        return take_rows(keys, present), take_rows(results, present)

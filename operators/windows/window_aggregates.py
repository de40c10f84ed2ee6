"""`BuiltinWindow`: built-in aggregates per (key, window), merged from slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...api.specs.windows import BuiltinWindow
from ...core.arrays import Int64s, Slots
from ...core.batch import ColumnBatch, take_rows
from ...state.backend import AccColumn, ColumnTable, KeyedStateBackend
from ..aggregates.base import Part, Read
from ..aggregates.inputs import AggregateInputs
from ..aggregates.parts import make_part
from ..columns import NO_NULLS, decoded, fit, plain_values
from ..kernels import scatter

ROWS = "rows"
"""Accumulator column: records of the key in the slice. Keys with none are not there."""

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
    """Keeps accumulators per key and slice, in table "slices"."""

    def __init__(self, spec: BuiltinWindow) -> None:
        self.names = [name for name, _ in spec.aggregates]
        self._aggregates: list[Aggregate] = [aggregate for _, aggregate in spec.aggregates]
        self._inputs = AggregateInputs(self._aggregates)

    def inputs(self, batch: ColumnBatch) -> list[pa.Array]:
        return self._inputs.of(batch)

    def layout(self, inputs: list[pa.Array]) -> list[pa.Field]:
        return [pa.field(f"input{i}", decoded(array.type)) for i, array in enumerate(inputs)]

    def bind(self, state: KeyedStateBackend, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        self._kinds = [field.type for field in fields]
        kinds = iter(self._kinds)
        self._parts: list[Part | None] = [
            make_part(a, f"a{i}", next(kinds), state, keys) if a.takes_input else None
            for i, a in enumerate(self._aggregates)
        ]
        columns = [AccColumn(ROWS, "int64")]
        for part in self._parts:
            columns.extend(part.columns() if part is not None else [])
        self.accumulators = columns
        self._table = state.table("slices", keys, columns)
        self._scratch = state.table("scratch", keys, columns)
        for end in self._table.namespaces():
            for part in self._parts:
                if part is not None:
                    part.load(end, self._table.table(end))

    def fold(
        self, slice_end: int, keys: pa.RecordBatch, inputs: list[pa.Array], numbers: Int64s
    ) -> None:
        table = self._table.table(slice_end)
        slots = table.slots(keys)
        scatter.count_into(slots, NO_NULLS, table.column(ROWS))
        arrays = iter(zip(inputs, self._kinds, strict=True))
        for part, aggregate in zip(self._parts, self._aggregates, strict=True):
            if part is None:
                continue
            array, kind = next(arrays)
            array = fit(array, kind, aggregate.describe())
            part.fold(slice_end, table, keys, slots, array, numbers)

    def merge(self, slice_end: int, keys: pa.RecordBatch, partials: list[pa.Array]) -> None:
        table = self._table.table(slice_end)
        read = {
            column.name: plain_values(array, column.dtype)
            for column, array in zip(self.accumulators, partials, strict=True)
        }
        self._merge(table, table.slots(keys), read.__getitem__)

    def partials(self, slice_end: int) -> tuple[pa.RecordBatch, list[pa.Array]]:
        """All keys of a slice and their accumulators, for `merge` elsewhere."""
        table = self._table.table(slice_end)
        count = len(table)
        columns = [pa.array(table.column(c.name)[:count]) for c in self.accumulators]
        return table.keys(), columns

    def size(self, slice_end: int) -> int:
        """How many keys the slice has."""
        return len(self._table.table(slice_end))

    def combinable(self) -> bool:
        """Whether partials say all there is to say of the records."""
        return all(part is None or part.combinable for part in self._parts)

    def slices(self) -> list[int]:
        return self._table.namespaces()

    def drop(self, slice_end: int) -> None:
        self._table.drop(slice_end)
        for part in self._parts:
            if part is not None:
                part.drop(slice_end)

    def fire(
        self, slice_ends: list[int], only: pa.RecordBatch | None
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        if only is None and len(slice_ends) == 1:
            return self._read(self._table.table(slice_ends[0]), slice_ends)
        target = self._scratch.table(TARGET)
        if only is None:
            self._merge_all(target, slice_ends)
        else:
            target.slots(only)
            for end in slice_ends:
                self._merge_some(target, self._table.table(end))
        result = self._read(target, slice_ends)
        self._scratch.drop(TARGET)
        return result

    def _merge_all(self, target: ColumnTable, slice_ends: list[int]) -> None:
        """All keys of all slices at once: one lookup and one kernel call per column."""
        sources = [self._table.table(end) for end in slice_ends]
        keys = pa.concat_batches([source.keys() for source in sources])

        def read(name: str) -> npt.NDArray[Any]:
            return np.concatenate([source.column(name)[: len(source)] for source in sources])

        self._merge(target, target.slots(keys), read)

    def _merge_some(self, target: ColumnTable, source: ColumnTable) -> None:
        """The keys of `target` only. The slice gets those that it lacks, with no records."""
        at = source.slots(target.keys())
        self._merge(target, np.arange(len(at)), lambda name: source.column(name)[at])

    def _merge(self, target: ColumnTable, slots: Slots, read: Read) -> None:
        scatter.add_into(slots, read(ROWS), target.column(ROWS))
        for part in self._parts:
            if part is not None:
                part.merge(target, slots, read)

    def _read(
        self, table: ColumnTable, slice_ends: list[int]
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        rows = table.column(ROWS)[: len(table)].copy()
        columns = [
            pa.array(rows) if part is None else part.result(table, slice_ends)
            for part in self._parts
        ]
        keys = table.keys()
        results = pa.RecordBatch.from_arrays(columns, names=self.names)
        if rows.all():
            return keys, results
        present = pa.array(np.flatnonzero(rows))
        return take_rows(keys, present), take_rows(results, present)

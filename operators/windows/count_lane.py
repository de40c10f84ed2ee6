"""One lane of windows by count: windows of a key that follow each other without overlap.

(Or of a key and a window of time, where a trigger counts: see `pane_windows`.) What a key's open
window holds is in accumulator columns of the operator's table; the windows of a
batch are folded in a table of their own and the last one of each key is written back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s, Slots
from ...core.batch import take_column
from ...state.backend import ColumnTable, KeyedStateBackend
from ...state.key_groups import key_groups_of
from ...state.key_index import as_declared
from ..kernels import counting as kernel
from ..slots.numbered_table import NumberedTable
from ..slots.slot_aggregates import make_slots
from ..slots.slot_kinds import SlotFunction
from ..values.value_store import wide_type

if TYPE_CHECKING:
    from .counted_windows import Counting

VALUE = "value"

Completed = tuple[npt.NDArray[np.int64], list[pa.Array]]
"""The row that completed the window of each result, and the results."""


def make_lanes(function: SlotFunction, counting: Counting) -> list[Lane]:
    """The lanes of an operator. Windows n, n + lanes, n + 2 * lanes, ... are in one."""
    return [Lane(function, counting, number) for number in range(counting.lanes)]


class Lane:
    """Columns of the operator's table start with `l<number>.`."""

    def __init__(self, function: SlotFunction, counting: Counting, number: int) -> None:
        self.aggregates = make_slots(function, f"l{number}.")
        self._size = counting.size
        self._phase = number * counting.slide
        self._period = counting.lanes * counting.slide
        self._purge = counting.purge
        self._current = np.full(64, -1, dtype=np.int64)
        """Per slot of the table, -1 between batches."""

    def add(
        self,
        table: ColumnTable,
        slots: Slots,
        places: Int64s,
        inputs: list[pa.Array],
        numbers: Int64s,
    ) -> Completed:
        """Fold a batch's records, which are at these places within their keys."""
        if len(self._current) < len(table):
            self._current = np.full(2 * len(table), -1, dtype=np.int64)
        segments, owners, previous, completed, newest = np.empty((5, len(slots)), dtype=np.int64)
        count = kernel.cut(
            slots,
            places,
            self._phase,
            self._period,
            self._size,
            self._current,
            segments,
            owners,
            previous,
            completed,
            newest,
        )
        owners, previous, completed = owners[:count], previous[:count], completed[:count]
        part = NumberedTable(self.aggregates.columns, count)
        self._carry(table, part, owners, previous)
        self._fold(part, segments, inputs, numbers)
        if not self._purge:
            self._accumulate(part, previous)
        self._write_back(table, part, owners, completed, newest[:count] == 1)
        full, results = self.aggregates.emitted(part, np.flatnonzero(completed >= 0))
        self.aggregates.compact(table)
        return completed[full], results

    def save(self, state: KeyedStateBackend, keys: pa.Schema, table: ColumnTable) -> None:
        """Store values that the table holds by code, with their keys."""
        for column, store in self.aggregates.coded_columns():
            codes = table.column(column)[: len(table)]
            rows = np.flatnonzero(codes >= 0)
            at = pa.array(rows)
            columns = [
                array.cast(field.type).take(at)
                for array, field in zip(_plain(table.keys()), _stored_keys(keys), strict=True)
            ]
            held = pa.RecordBatch.from_arrays(columns, schema=pa.schema(_stored_keys(keys)))
            schema = _stored_schema(keys, store.wide)
            data = pa.Table.from_arrays([*columns, store.take(codes[rows])], schema=schema)
            groups = key_groups_of(held, state.max_parallelism)
            state.buffer(f"values.{column}", schema).replace(0, data, groups)

    def load(self, state: KeyedStateBackend, keys: pa.Schema, table: ColumnTable) -> None:
        """Give new codes to what former subtasks stored."""
        for column, store in self.aggregates.coded_columns():
            buffer = state.buffer(f"values.{column}", _stored_schema(keys, store.wide))
            rows, _ = buffer.get(0)
            arrays = [_one(rows.column(i)) for i in range(rows.num_columns)]
            columns = [
                as_declared(array, field.type)
                for array, field in zip(arrays[:-1], keys, strict=True)
            ]
            slots = table.slots(pa.RecordBatch.from_arrays(columns, schema=keys))
            table.column(column)[slots] = store.append(arrays[-1])

    def _carry(self, table: ColumnTable, part: NumberedTable, owners: Slots, before: Slots) -> None:
        """What keys hold from earlier batches goes into their first segments."""
        first = np.flatnonzero(before < 0)
        mine = owners[first]
        self.aggregates.merge(part, first, lambda name: table.column(name)[mine])

    def _fold(
        self, part: NumberedTable, segments: Slots, inputs: list[pa.Array], numbers: Int64s
    ) -> None:
        rows = np.flatnonzero(segments >= 0)
        if len(rows) < len(segments):
            at = pa.array(rows)
            segments, numbers = segments[rows], numbers[rows]
            inputs = [take_column(array, at) for array in inputs]
        self.aggregates.fold(part, segments, inputs, numbers)

    def _accumulate(self, part: NumberedTable, previous: Slots) -> None:
        """Each segment takes in all before it of its key: a prefix sum by doubling distances."""
        before = previous.copy()
        while True:
            at = np.flatnonzero(before >= 0)
            if not len(at):
                return
            held = part.gather(before[at])
            self.aggregates.merge(part, at, held.column)
            before[at] = before[before[at]]

    def _write_back(
        self,
        table: ColumnTable,
        part: NumberedTable,
        owners: Slots,
        completed: Slots,
        newest: npt.NDArray[np.bool_],
    ) -> None:
        """The last segment of each key is what the key holds; nothing, if it was emptied."""
        emptied = newest & (completed >= 0) & self._purge
        kept = np.flatnonzero(newest & ~emptied)
        for column in self.aggregates.columns:
            array = table.column(column.name)
            array[owners[emptied]] = column.initial
            array[owners[kept]] = part.column(column.name)[kept]


def _plain(keys: pa.RecordBatch) -> list[pa.Array]:
    return [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in keys.columns]


def _stored_keys(keys: pa.Schema) -> list[pa.Field]:
    return [pa.field(f"k{i}", wide_type(field.type)) for i, field in enumerate(keys)]


def _stored_schema(keys: pa.Schema, kind: pa.DataType) -> pa.Schema:
    return pa.schema([*_stored_keys(keys), pa.field(VALUE, kind)])


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

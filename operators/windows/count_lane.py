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
from ...state.column_face import SlotTable
from ...state.numbered_table import NumberedTable
from ..aggregates.base import Source
from ..kernels import counting as kernel
from ..slots.slot_kinds import SlotFunction
from ..slots.slot_making import make_slots
from ..slots.slot_prefixes import merge_before

if TYPE_CHECKING:
    from ...plan.window_forms import Counting

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
        table: SlotTable,
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
        part = NumberedTable(self.aggregates.columns, count, table.stores)
        self._carry(table, part, owners, previous)
        self._fold(part, segments, inputs, numbers)
        if not self._purge:
            merge_before(self.aggregates, part, previous)
        self._write_back(table, part, owners, completed, newest[:count] == 1)
        full, results = self.aggregates.emitted(part, np.flatnonzero(completed >= 0))
        return completed[full], results

    def _carry(self, table: SlotTable, part: NumberedTable, owners: Slots, before: Slots) -> None:
        """What keys hold from earlier batches goes into their first segments."""
        first = np.flatnonzero(before < 0)
        mine = owners[first]
        self.aggregates.merge(part, first, Source((table, mine)))

    def _fold(
        self, part: NumberedTable, segments: Slots, inputs: list[pa.Array], numbers: Int64s
    ) -> None:
        rows = np.flatnonzero(segments >= 0)
        if len(rows) < len(segments):
            at = pa.array(rows)
            segments, numbers = segments[rows], numbers[rows]
            inputs = [take_column(array, at) for array in inputs]
        self.aggregates.fold(part, segments, inputs, numbers)

    def _write_back(
        self,
        table: SlotTable,
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

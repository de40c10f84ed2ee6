"""What windows hold that share slices of time: each record is folded once, into its slice, and a
window's results are merged from its slices."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.windows import WindowFunctionSpec
from ...core.arrays import Int64s
from ...core.batch import take_column, take_rows
from ...plan.slicing import Slicing
from ...state.backend import KeyedStateBackend
from .fired_slices import Fired
from .slice_calendar import SliceCalendar
from .slices import runs_by_slice, slice_ends
from .windower import NO_ROWS, LateRows, Records

if TYPE_CHECKING:
    from .window_aggregates import PartialContents


@dataclass(frozen=True)
class Arrivals:
    """Records that were folded, by slice and, within a slice, in order of arrival."""

    keys: pa.RecordBatch
    times: Int64s
    numbers: Int64s
    """Sequence numbers."""
    pieces: dict[int, list[tuple[int, int]]]
    """Window end -> ranges of rows, one per slice."""

    def keys_of(self, window: int) -> pa.RecordBatch:
        """The keys of the records in a window, with repetitions."""
        return pa.concat_batches([self.keys.slice(a, b - a) for a, b in self.pieces[window]])

    def in_order(self, window: int) -> tuple[pa.RecordBatch, Int64s]:
        """Keys and times of a window's records, in order of arrival."""
        pieces = self.pieces[window]
        if len(pieces) == 1:
            start, stop = pieces[0]
            return self.keys.slice(start, stop - start), self.times[start:stop]
        rows = np.concatenate([np.arange(start, stop) for start, stop in pieces])
        rows = rows[np.argsort(self.numbers[rows])]
        return take_rows(self.keys, pa.array(rows)), self.times[rows]


class SliceStore(SliceCalendar):
    """What slices hold, and when they are due."""

    def __init__(self, slicing: Slicing, lateness: int, function: WindowFunctionSpec) -> None:
        from .window_functions import make_contents

        super().__init__(slicing, lateness)
        self.contents = make_contents(function)

    def bind(self, state: KeyedStateBackend, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        """Once, before all that follow."""
        self.contents.bind(state, keys, fields)

    def resume(self, watermark: int) -> None:
        """State was restored whose windows have fired up to `watermark`."""
        for end in self.contents.slices():
            self.note(end, watermark)

    def slices(self) -> list[int]:
        """Ends of the slices that hold records, ascending."""
        return self.contents.slices()

    def add(self, records: Records, watermark: int) -> tuple[LateRows, Arrivals]:
        """Fold records whose key groups have fired up to `watermark`."""
        times = records.times
        order, runs = runs_by_slice(slice_ends(self.slicing, times))
        keys, inputs, numbers = records.keys, records.inputs, records.numbers
        if order is not None:
            at = pa.array(order)
            keys, inputs = take_rows(keys, at), [take_column(array, at) for array in inputs]
            numbers = order + records.first
        late: list[npt.NDArray[np.int64]] = []
        pieces: dict[int, list[tuple[int, int]]] = {}
        for end, start, stop in runs:
            windows = self.slicing.window_ends(end)
            if not windows or self.over(windows, watermark):
                rows = np.arange(start, stop) if order is None else order[start:stop]
                if not windows:
                    rows = rows[times[rows] + self.lateness <= watermark]
                late.append(rows)
                continue
            run = keys.slice(start, stop - start)
            arrays = [array.slice(start, stop - start) for array in inputs]
            if records.partials:
                cast("PartialContents", self.contents).merge(end, run, arrays)
            else:
                self.contents.fold(end, run, arrays, numbers[start:stop])
            self.note(end, watermark)
            for window in windows:
                if watermark < window - 1 + self.lateness:
                    pieces.setdefault(window, []).append((start, stop))
        times = times if order is None else times[order]
        arrivals = Arrivals(keys, times, numbers, pieces)
        return np.concatenate(late) if late else NO_ROWS, arrivals

    def result(self, window: int, slices: list[int], only: pa.RecordBatch | None) -> Fired:
        """One window's results now, for all keys or `only` those given.

        `slices`: all there are, ascending."""
        start = self.slicing.window_start(window)
        held = slices[bisect_right(slices, start) : bisect_right(slices, window)]
        return Fired(start, window, *self.contents.fire(held, only))

    def forget(self, slices: list[int], watermark: int) -> None:
        """Windows have fired up to `watermark`: drop those of the `slices`, which are all there
        are, that it is over with."""
        for end in self.take_over(slices, watermark):
            self.contents.drop(end)

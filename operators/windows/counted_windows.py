"""Windows by count on kernels: the n-th record of a key decides when built-in aggregates come out.

    count_window(size)                              one lane of windows, emptied when full
    count_window(size, slide)                       ceil(size / slide) lanes: windows of one lane
                                                    do not overlap, those of different lanes do
    GlobalWindows, PurgingTrigger(CountTrigger(n))  as count_window(n)
    GlobalWindows, CountTrigger(n)                  the aggregate so far at every n-th record

A batch is cut into segments, the parts of windows that lie in it. Each starts from what its key
holds, if it goes on with a window of an earlier batch, and its records are folded at once. Results
come in the order of the records that completed them. A window has no bounds in time: its bounds are
null, and its event time is the greatest there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Slots
from ...core.batch import take_column
from ...core.elements import MAX_TIMESTAMP
from ...plan.window_forms import Counting
from ...state.backend import AccColumn
from ...state.value_store import Values
from ..base import Work
from ..slots.slot_kinds import runs_on_slots
from .windower import NO_ROWS, LateRows, Records, Site, Time, Windower

if TYPE_CHECKING:
    from .count_lane import Lane

SEEN = "seen"
"""Accumulator column: records of the key so far."""


class CountWindower(Windower):
    """See the module. What a key's windows hold is in one slot of the table "counted"."""

    time = Time.NONE

    def __init__(self, counting: Counting) -> None:
        self._counting = counting

    def open(self, site: Site) -> None:
        from .count_lane import make_lanes

        assert runs_on_slots(site.spec.function)
        self._site = site
        self._lanes: list[Lane] = make_lanes(site.spec.function, self._counting)
        self.arguments = self._lanes[0].aggregates

    def bind(self, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        columns, values = [AccColumn(SEEN, "int64")], dict[str, Callable[[], Values]]()
        for lane in self._lanes:
            lane.aggregates.bind(fields)
            columns += lane.aggregates.columns
            values.update(lane.aggregates.values())
        self._site.output.bind(keys, self._lanes[0].aggregates.names)
        state = self._site.ctx.keyed_state
        self._table = state.table("counted", keys, columns, values=values, cold=True).table()

    def add(self, records: Records, watermark: int) -> tuple[LateRows, Work]:
        from ..kernels import counting

        table, numbers = self._table, records.numbers
        slots = table.slots(records.keys)
        places = np.empty_like(slots)
        counting.positions(slots, table.column(SEEN), places)
        fired = [lane.add(table, slots, places, records.inputs, numbers) for lane in self._lanes]
        table.tidy()
        rows = np.concatenate([at for at, _ in fired])
        if not len(rows):
            return NO_ROWS, None
        columns = [pa.concat_arrays(parts) for parts in zip(*(r for _, r in fired), strict=True)]
        return NO_ROWS, self._emit(records.keys, rows, columns)

    def _emit(self, keys: pa.RecordBatch, rows: Slots, results: list[pa.Array]) -> Work:
        """Results of the windows that these rows completed, in order of the rows."""
        order = np.argsort(rows, kind="stable")
        at, count = pa.array(order), len(rows)
        bounds: pa.Array = pa.nulls(count, pa.int64())
        stamps: npt.NDArray[np.int64] = np.full(count, MAX_TIMESTAMP, dtype=np.int64)
        shown = [take_column(column, pa.array(rows[order])) for column in keys.columns]
        taken = [take_column(result, at) for result in results]
        return self._site.output.emit(shown, bounds, bounds, taken, stamps)

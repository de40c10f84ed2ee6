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

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.windows import WindowSpec
from ...core.arrays import Int64s, Slots
from ...core.batch import Batch, take_column, to_columns
from ...core.elements import MAX_TIMESTAMP
from ...core.preload import preload
from ...plan.window_forms import Counting
from ...state.backend import COLUMN_STATE, AccColumn, ColumnTable
from ...state.window_progress import WindowProgress
from ..base import Operator, Work
from ..columns import fit_keys
from ..slots.slot_kinds import runs_on_slots
from .bounded_output import BoundedOutput

if TYPE_CHECKING:
    from .count_lane import Lane

SEEN = "seen"
"""Accumulator column: records of the key so far."""


class CountedWindowOperator(Operator):
    """See the module. State is created when the first record, or a snapshot, tells the types."""

    def __init__(self, spec: WindowSpec, counting: Counting) -> None:
        assert runs_on_slots(spec.function)
        self._spec = spec
        self._function = spec.function
        self._counting = counting
        self._table: ColumnTable | None = None

    def open(self) -> None:
        from .count_lane import make_lanes

        preload(*COLUMN_STATE)
        self._lanes: list[Lane] = make_lanes(self._function, self._counting)
        self._output = BoundedOutput(self._spec, self.ctx, self.out)
        self._progress = WindowProgress(self.ctx.keyed_state)
        layout = self._progress.layout
        if layout is not None:
            self._table = self._bind(layout)

    def process(self, batch: Batch, port: int = 0) -> Work:
        columns = to_columns(batch)
        keys = self._spec.key.key_columns(columns)
        assert keys is not None
        aggregates = self._lanes[0].aggregates
        inputs = aggregates.inputs(columns)
        if self._table is None:
            fields = [*keys.schema, *aggregates.layout(inputs)]
            layout = pa.schema(fields, metadata={"keys": str(len(keys.schema))})
            self._progress.layout = layout
            self._table = self._bind(layout)
        keys = fit_keys(keys, self._keys)
        numbers = np.arange(len(columns)) + self._progress.number
        self._progress.number += len(columns)
        return self._add(self._table, keys, inputs, numbers)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._progress.save()

    def _bind(self, layout: pa.Schema) -> ColumnTable:
        count = int(layout.metadata[b"keys"])
        self._keys = pa.schema(list(layout)[:count])
        columns, values = [AccColumn(SEEN, "int64")], {}
        for lane in self._lanes:
            lane.aggregates.bind(list(layout)[count:])
            columns += lane.aggregates.columns
            values.update(lane.aggregates.values())
        self._output.bind(self._keys, self._lanes[0].aggregates.names)
        state = self.ctx.keyed_state
        return state.table("counted", self._keys, columns, values=values).table()

    def _add(
        self, table: ColumnTable, keys: pa.RecordBatch, inputs: list[pa.Array], numbers: Int64s
    ) -> Work:
        from ..kernels import counting

        slots = table.slots(keys)
        places = np.empty_like(slots)
        counting.positions(slots, table.column(SEEN), places)
        fired = [lane.add(table, slots, places, inputs, numbers) for lane in self._lanes]
        table.tidy()
        rows = np.concatenate([at for at, _ in fired])
        if not len(rows):
            return None
        columns = [pa.concat_arrays(parts) for parts in zip(*(r for _, r in fired), strict=True)]
        return self._emit(keys, rows, columns)

    def _emit(self, keys: pa.RecordBatch, rows: Slots, results: list[pa.Array]) -> Work:
        """Results of the windows that these rows completed, in order of the rows."""
        order = np.argsort(rows, kind="stable")
        at, count = pa.array(order), len(rows)
        bounds: pa.Array = pa.nulls(count, pa.int64())
        stamps: npt.NDArray[np.int64] = np.full(count, MAX_TIMESTAMP, dtype=np.int64)
        shown = [take_column(column, pa.array(rows[order])) for column in keys.columns]
        return self._output.emit(
            shown, bounds, bounds, [take_column(r, at) for r in results], stamps
        )

"""Partial aggregates per key and slice of time, ahead of the exchange.

They are sent on before a watermark that completes a window of the slice (at once if one has
already), before a barrier, and at the end. Whether records are late is for the window operator to
say: with each partial aggregate it gets their number, and it gets them before its watermark could
pass them because of this input. When the input turns idle everything is sent on; and since it may
have been left behind by the others when it comes back, records are from then on held for the buffer
timeout at most.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...api.specs.windows import BuiltinWindow, WindowSpec
from ...core.arrays import Int64s
from ...core.batch import Batch, ColumnBatch, take_column, take_rows
from ...core.constants import CHUNK_BATCHES
from ...core.elements import MIN_TIMESTAMP
from ...core.ids import KeyGroupRange
from ...core.partials import make_layout, partial_schema
from ...core.preload import preload
from ...plan.combining_types import uncombined
from ...plan.slicing import Slicing
from ...state.backend import COLUMN_STATE
from ...state.memory import MemoryKeyedStateBackend
from ..base import Operator, Work, emit_slices, one_by_one, run_to_end, then
from ..windows.slices import runs_by_slice, slice_ends
from .worth import Worth, can_combine

NO_NUMBERS: Int64s = np.empty(0, dtype=np.int64)
"""No sequence numbers: aggregates that need them are not combined."""


class LocalAggregatesOperator(Operator):
    """Partial aggregates per key and slice."""

    def __init__(self, window: WindowSpec, function: BuiltinWindow, slicing: Slicing) -> None:
        self._key = window.key
        self._function = function
        self._slicing = slicing
        self._worth = Worth()
        self._off = False
        """Whether the types allow no combining; final."""
        self._keys: pa.Schema | None = None
        """Types of the key columns; None until bound."""
        self._kinds: list[pa.DataType] = []
        """Types of the inputs, once bound."""
        self._held: dict[int, int] = {}
        """Slice end -> the least watermark that completes one of its windows."""
        self._due: int | None = None
        """The least value in `_held`."""
        self._pairs = 0
        """How many (key, slice) are held."""
        self._watermark = MIN_TIMESTAMP
        self._was_idle = False
        """Whether others may have passed by: holds records for a limited time only."""
        self._deadline: int | None = None
        """When (processing time, ms) all is to be sent on; set only if `_was_idle`."""

    @property
    def combines(self) -> bool | None:
        """Whether the types allow it; None before the first columns."""
        return None if self._keys is None else not self._off

    def open(self) -> None:
        from ..windows.window_aggregates import WindowAggregates

        preload(*COLUMN_STATE)
        self._contents = WindowAggregates(self._function)
        timeout = self.ctx.config.exchange.buffer_timeout
        self._timeout_ms = round(timeout.total_seconds() * 1000)

    def process(self, batch: Batch, port: int = 0) -> Work:
        if self._off or self._worth.passes(len(batch)) or not can_combine(batch):
            self.out.emit(batch)
            return None
        assert isinstance(batch, ColumnBatch)
        columns = self._columns(batch)
        if columns is None:
            self.out.emit(batch)
            return None
        new = self._fold(batch, *columns)
        self._pairs += new
        if not self._worth.combined(len(batch), new, self._pairs):
            return self._flush(None)
        return one_by_one([self._flush(self._watermark), self._limit()])

    def process_watermark(self, timestamp: int) -> Work:
        self._watermark = max(self._watermark, timestamp)
        return then(self._flush(timestamp), lambda: self.out.emit_watermark(timestamp))

    def process_status(self, active: bool) -> None:
        if not active:
            self._was_idle = True
            run_to_end(self._flush(None))
        self.out.emit_status(active)

    def on_processing_time(self, now_ms: int) -> Work:
        due = self._deadline is not None and self._deadline <= now_ms
        return self._flush(None) if due else None

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        run_to_end(self._flush(None))

    def finish(self) -> Work:
        return self._flush(None)

    def _limit(self) -> Work:
        """See to it that nothing is held for long after an idle time."""
        if not (self._was_idle and self._held) or self._deadline is not None:
            return None
        if not self._timeout_ms:
            return self._flush(None)
        self._deadline = self.ctx.clock.now_ms() + self._timeout_ms
        self.ctx.wake_at(self._deadline)
        return None

    def _columns(self, batch: ColumnBatch) -> tuple[pa.RecordBatch, list[pa.Array]] | None:
        """Keys and inputs; None where this batch is not to be combined."""
        try:
            keys, inputs = self._key.key_columns(batch), self._contents.inputs(batch)
            if self._keys is None and keys is not None:
                self._bind(keys.schema, inputs)
        except Exception:
            return None  # the window operator will meet the same error, and say so in its name
        same = (
            not self._off
            and keys is not None
            and keys.schema.equals(self._keys)
            and [field.type for field in self._contents.layout(inputs)] == self._kinds
        )
        return (keys, inputs) if same else None

    def _bind(self, keys: pa.Schema, inputs: list[pa.Array]) -> None:
        fields = self._contents.layout(inputs)
        groups = KeyGroupRange(0, 0)
        self._contents.bind(MemoryKeyedStateBackend(groups, 1), pa.schema(list(keys)), fields)
        self._keys, self._kinds = keys, [field.type for field in fields]
        accumulators = [(column.name, column.dtype) for column in self._contents.columns]
        self._schema = partial_schema(make_layout(keys, fields), accumulators)
        names = self._schema.names
        clash = len(set(names)) < len(names)  # a key is called as an accumulator is
        why_not = uncombined(self._function, self._kinds, self.ctx.parallelism)
        self._off = clash or why_not is not None or not self._contents.combinable

    def _fold(self, batch: ColumnBatch, keys: pa.RecordBatch, inputs: list[pa.Array]) -> int:
        """Returns how many pairs are new."""
        new = 0
        assert batch.timestamps is not None
        order, runs = runs_by_slice(slice_ends(self._slicing, batch.timestamps))
        if order is not None:
            at = pa.array(order)
            keys, inputs = take_rows(keys, at), [take_column(array, at) for array in inputs]
        for end, start, stop in runs:
            count = stop - start
            arrays = [array.slice(start, count) for array in inputs]
            before = self._contents.size(end)
            self._contents.fold(end, keys.slice(start, count), arrays, NO_NUMBERS)
            new += self._contents.size(end) - before
            if end not in self._held:
                due = self._held[end] = self._slicing.window_ends(end)[0] - 1
                self._due = due if self._due is None else min(self._due, due)
        return new

    def _flush(self, watermark: int | None) -> Work:
        """Send the slices of which `watermark` completes a window, or all."""
        if self._due is None or (watermark is not None and self._due > watermark):
            return None
        ends = [end for end, due in self._held.items() if watermark is None or due <= watermark]
        parts, stamps = [], []
        for end in sorted(ends):
            keys, columns = self._contents.partials(end)
            arrays = [*keys.columns, *columns]
            parts.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
            stamps.append(np.full(len(keys), end - 1, dtype=np.int64))
            self._pairs -= len(keys)
            self._contents.drop(end)
            del self._held[end]
        self._due = min(self._held.values(), default=None)
        self._deadline = None if self._due is None else self._deadline
        partials = ColumnBatch(pa.concat_batches(parts), np.concatenate(stamps))
        return emit_slices(self.out, partials, self.ctx.config.batch_size * CHUNK_BATCHES)

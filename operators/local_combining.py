"""Windows ahead of the exchange: partial aggregates, and the records that may hold an extreme.

Both operators are without state: nothing of theirs is in a checkpoint. What they hold back never
matters to the window operator behind the exchange, for it emits nothing before the watermark:

* aggregates are kept per key and slice of time and sent on before a watermark that completes a
  window of the slice (at once if one has already), before a barrier, and at the end. Whether
  records are late is for the window operator to say: with each partial aggregate it gets their
  number, and it gets them before its watermark could pass them because of this input. When the
  input turns idle everything is sent on; and since it may have been left behind by the others when
  it comes back, records are from then on held for the buffer timeout at most.
* for extremes nothing is held back. A record is left out when another of its key and slice that was
  sent before beats it.

Batches that cannot be combined go by as they are: objects, records without timestamps, types whose
aggregates are not numbers, and whatever the window operator will reject, which is its to report.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..api.local_combining import LocalCombineSpec
from ..api.specs import BuiltinWindow, ExtremeWindow, WindowSpec
from ..core.batch import Batch, ColumnBatch, take_column, take_rows
from ..core.elements import MIN_TIMESTAMP
from ..core.ids import KeyGroupRange
from ..core.keys import ConstantKey
from ..core.partials import make_layout, partial_schema
from ..core.preload import COLUMN_STATE, preload
from ..core.row_kind import ROW_KIND
from ..state.backend import AccColumn
from ..state.column_tables import MemoryTableState
from ..state.memory import MemoryKeyedStateBackend
from .base import Operator
from .columns import storage, to_numbers
from .combining_worth import Worth
from .slices import Int64s, Slicing, runs_by_slice
from .window_firing import slicing_of
from .window_output import CHUNK_BATCHES

MOST_HELD = 1 << 17
"""(key, slice) pairs held at most; more are sent on at once."""

ANY_ORDER = ("count", "min", "max")
"""Aggregates whose result does not depend on the order in which values are merged, even of
floats."""


def make_local_combine(spec: LocalCombineSpec) -> Operator:
    slicing = slicing_of(spec.window.assigner)
    assert slicing is not None, "was not checked by api.local_combining.combinable"
    match spec.window.function:
        case ExtremeWindow() as extreme:
            return LocalExtremesOperator(spec.window, extreme, slicing)
        case BuiltinWindow() as aggregates:
            return LocalAggregatesOperator(spec.window, aggregates, slicing)
    raise AssertionError(f"{spec} was not checked by api.local_combining.combinable")


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

    def open(self) -> None:
        from .window_aggregates import WindowAggregates

        preload(*COLUMN_STATE)
        self._contents = WindowAggregates(self._function)
        timeout = self.ctx.config.exchange.buffer_timeout
        self._timeout_ms = round(timeout.total_seconds() * 1000)

    def process(self, batch: Batch, port: int = 0) -> None:
        if self._off or self._worth.passes(len(batch)) or not _stamped(batch):
            self.out.emit(batch)
            return
        assert isinstance(batch, ColumnBatch)
        columns = self._columns(batch)
        if columns is None:
            self.out.emit(batch)
            return
        new = self._fold(batch, *columns)
        self._pairs += new
        if not self._worth.combined(len(batch), new) or self._pairs > MOST_HELD:
            self._flush(None)
        else:
            self._flush(self._watermark)
            self._limit()

    def process_watermark(self, timestamp: int) -> None:
        self._watermark = max(self._watermark, timestamp)
        self._flush(timestamp)
        self.out.emit_watermark(timestamp)

    def process_status(self, active: bool) -> None:
        if not active:
            self._was_idle = True
            self._flush(None)
        self.out.emit_status(active)

    def on_processing_time(self, now_ms: int) -> None:
        if self._deadline is not None and self._deadline <= now_ms:
            self._flush(None)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._flush(None)

    def finish(self) -> None:
        self._flush(None)

    def _limit(self) -> None:
        """See to it that nothing is held for long after an idle time."""
        if not (self._was_idle and self._held) or self._deadline is not None:
            return
        if self._timeout_ms:
            self._deadline = self.ctx.clock.now_ms() + self._timeout_ms
            self.ctx.wake_at(self._deadline)
        else:
            self._flush(None)

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
        self._off = not (self._contents.combinable() and self._any_order())
        accumulators = [(column.name, column.dtype) for column in self._contents.accumulators]
        self._schema = partial_schema(make_layout(keys, fields), accumulators)

    def _any_order(self) -> bool:
        """Sums of floats depend on the order of their addends in the last digits. With several
        senders that order is open anyway; with one it is not, and stays what it is."""
        floats = any(pa.types.is_floating(kind) for kind in self._kinds)
        kinds = {aggregate.kind for _, aggregate in self._function.aggregates}
        exact = kinds.issubset(ANY_ORDER if floats else (*ANY_ORDER, "sum", "mean"))
        return exact or self.ctx.parallelism > 1

    def _fold(self, batch: ColumnBatch, keys: pa.RecordBatch, inputs: list[pa.Array]) -> int:
        """Returns how many pairs are new."""
        new = 0
        assert batch.timestamps is not None
        order, runs = runs_by_slice(self._slicing.slice_ends(batch.timestamps))
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

    def _flush(self, watermark: int | None) -> None:
        """Send the slices of which `watermark` completes a window, or all."""
        if self._due is None or (watermark is not None and self._due > watermark):
            return
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
        self._emit(ColumnBatch(pa.concat_batches(parts), np.concatenate(stamps)))

    def _emit(self, partials: ColumnBatch) -> None:
        size = self.ctx.config.batch_size * CHUNK_BATCHES
        for start in range(0, len(partials), size):
            self.out.emit(partials.slice(start, min(size, len(partials) - start)))


class LocalExtremesOperator(Operator):
    """Leaves out records that another of their key and slice has beaten."""

    def __init__(self, window: WindowSpec, function: ExtremeWindow, slicing: Slicing) -> None:
        self._key = window.key
        self._function = function
        self._slicing = slicing
        self._worth = Worth()
        self._watermark = MIN_TIMESTAMP
        self._table: MemoryTableState | None = None
        """Per slice each key's extreme among the records sent on; None until types are known."""
        self._kind: pa.DataType | None = None
        """Type of the field, once known."""
        self._pairs = 0
        """How many (key, slice) are in `_table`."""

    def open(self) -> None:
        from .kernels import scatter

        preload(*COLUMN_STATE)
        self._candidates = scatter.candidates

    def process(self, batch: Batch, port: int = 0) -> None:
        if self._worth.passes(len(batch)) or not _stamped(batch):
            self.out.emit(batch)
            return
        assert isinstance(batch, ColumnBatch)
        columns = self._columns(batch)
        if columns is None:
            self.out.emit(batch)
            return
        chosen = self._choose(batch, *columns)
        if len(chosen) == len(batch):
            self.out.emit(batch)
        elif len(chosen):
            self.out.emit(batch.take(np.sort(chosen)))
        if not self._worth.combined(len(batch), len(chosen)) or self._pairs > MOST_HELD:
            self._forget(None)

    def process_watermark(self, timestamp: int) -> None:
        self._watermark = max(self._watermark, timestamp)
        self._forget(timestamp)
        self.out.emit_watermark(timestamp)

    def _columns(self, batch: ColumnBatch) -> tuple[pa.RecordBatch | None, pa.Array] | None:
        """Keys (None: one key for all) and the field; None where no record is to be left out."""
        at = batch.data.schema.get_field_index(self._function.field)
        if at < 0:
            return None
        field = batch.data.column(at)
        constant = isinstance(self._key, ConstantKey)
        try:
            keys = None if constant else self._key.key_columns(batch)
        except Exception:
            return None  # the window operator will meet the same error, and say so in its name
        if self._table is None:
            self._bind(_ONE_KEY if keys is None else keys.schema, field.type)
        same = field.type == self._kind and storage(field.type) is not None
        if keys is not None:
            same = same and keys.schema.equals(self._keys)
        return (keys, field) if same else None

    def _bind(self, keys: pa.Schema, kind: pa.DataType) -> None:
        accumulators = [AccColumn("value", storage(kind) or "int64"), AccColumn("seen", "bool")]
        self._keys, self._kind = keys, kind
        self._table = MemoryTableState("extremes", pa.schema(list(keys)), accumulators)

    def _choose(self, batch: ColumnBatch, keys: pa.RecordBatch | None, field: pa.Array) -> Int64s:
        """Rows to send on. Late ones all are: the window operator counts them."""
        assert batch.timestamps is not None
        order, runs = runs_by_slice(self._slicing.slice_ends(batch.timestamps))
        if order is not None:
            at = pa.array(order)
            keys, field = None if keys is None else take_rows(keys, at), field.take(at)
        held = storage(field.type)
        assert held is not None
        values, valid = to_numbers(field, held)
        chosen = np.ones(len(batch), dtype=np.bool_)
        for end, start, stop in runs:
            if self._slicing.window_ends(end)[-1] - 1 > self._watermark:
                part = None if keys is None else keys.slice(start, stop - start)
                run = slice(start, stop)
                self._mark(end, part, values[run], valid[run], chosen[run])
        rows = np.flatnonzero(chosen)
        return rows if order is None else order[rows]

    def _mark(
        self,
        end: int,
        keys: pa.RecordBatch | None,
        values: npt.NDArray[Any],
        valid: npt.NDArray[np.bool_],
        chosen: npt.NDArray[np.bool_],
    ) -> None:
        assert self._table is not None
        table = self._table.table(end)
        before = len(table)
        if keys is not None:
            slots = table.slots(keys)
        else:
            slots = np.zeros(len(values), dtype=np.int64)
            table.slots(_ONE_ROW)
        self._pairs += len(table) - before
        largest, ties = self._function.kind == "max", self._function.ties
        acc, seen = table.column("value"), table.column("seen")
        self._candidates(slots, values, valid, acc, seen, largest, ties, chosen)

    def _forget(self, watermark: int | None) -> None:
        """The slices all of whose windows `watermark` completes, or all."""
        if self._table is None:
            return
        for end in self._table.namespaces():
            if watermark is None or self._slicing.window_ends(end)[-1] - 1 <= watermark:
                self._pairs -= len(self._table.table(end))
                self._table.drop(end)


NO_NUMBERS: Int64s = np.empty(0, dtype=np.int64)
"""No sequence numbers: aggregates that need them are not combined."""

_ONE_ROW = pa.RecordBatch.from_arrays([pa.array([0], pa.int64())], names=["__all"])
_ONE_KEY = _ONE_ROW.schema


def _stamped(batch: Batch) -> bool:
    """Whether these are columns of inserted records that have timestamps."""
    if not isinstance(batch, ColumnBatch) or batch.timestamps is None:
        return False
    if ROW_KIND in batch.data.schema.names:
        return False
    return bool(batch.timestamps.min() != MIN_TIMESTAMP)

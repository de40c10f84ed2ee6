"""Leaves out, ahead of the exchange, records that cannot hold an extreme of their window.

Nothing is held back: a record is left out when another of its key and slice that was sent before
beats it. Late ones are sent on, to be counted; after a restore all are, until the first watermark
tells which are late.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.windows import ExtremeWindow, WindowSpec
from ...core.arrays import Int64s
from ...core.batch import Batch, ColumnBatch, take_rows
from ...core.elements import MIN_TIMESTAMP
from ...core.keys import ConstantKey
from ...core.preload import preload
from ...plan.slicing import Slicing
from ...state.backend import COLUMN_STATE, AccColumn
from ...state.table_state import MemoryTableState
from ..base import Operator
from ..columns import storage, to_numbers
from ..windows.slices import runs_by_slice, slice_ends
from .worth import Worth, can_combine

_ONE_ROW = pa.RecordBatch.from_arrays([pa.array([0], pa.int64())], names=["__all"])
_ONE_KEY = _ONE_ROW.schema


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

    @property
    def combines(self) -> bool | None:
        """Whether the type of the field allows it; None before the first columns."""
        return None if self._kind is None else storage(self._kind) is not None

    def open(self) -> None:
        from ..kernels import scatter

        preload(*COLUMN_STATE)
        self._candidates = scatter.candidates

    def process(self, batch: Batch, port: int = 0) -> None:
        unknown = self.ctx.restored and self._watermark == MIN_TIMESTAMP
        if unknown or self._worth.passes(len(batch)) or not can_combine(batch):
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
        if not self._worth.combined(len(batch), len(chosen), self._pairs):
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
        order, runs = runs_by_slice(slice_ends(self._slicing, batch.timestamps))
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

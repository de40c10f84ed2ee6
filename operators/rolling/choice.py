"""Rolling sum, min, max, min_by and max_by: one output per input, the aggregate of its key so far.

Two faces, equal in results:

  column face  key columns and a numeric field: kernels over a table state
  row face     key functions, object records, other types: a tight loop over a value state

An operator uses one of them for its whole life, because each keeps its own state. The first batch
decides (columnar, with key columns and a field of numbers: column face), a restored snapshot before
that. Batches of the other kind are converted and come out in the kind they are worked on.

Nulls are skipped: the aggregate stays as it is, null if there was no value yet. NaN is the greatest
value; of equal extremes the first is kept. A record held by min_by or max_by whose field is null
(it came first) gives way to the first one with a value. A sum is of its field's
type: what is beyond it fails. On the way integers are int64 and floats float64.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from ...api.specs.records import RollingSpec
from ...core.batch import Batch, ColumnBatch
from ...core.preload import preload
from ...core.row_kind import refuse_changelog
from ...plan.window_forms import RowByRow
from ...state.backend import COLUMN_STATE
from ...state.window_progress import WindowProgress
from ..base import Operator
from .rows import RollingRows


class Face(Protocol):
    """What a rolling operator runs a batch through."""

    def run(self, batch: Batch) -> Batch: ...


def make_rolling(spec: RollingSpec, form: RowByRow | None = None) -> Operator:
    """The operator for this spec; unless it is planned to run row by row, it picks its face when it
    sees records or restored state."""
    return RollingOperator(spec, isinstance(form, RowByRow))


class RollingOperator(Operator):
    """See the module."""

    def __init__(self, spec: RollingSpec, by_rows: bool = False) -> None:
        self._spec = spec
        self._by_rows = by_rows
        self.face: Face | None = None
        """None until the first batch or restored state decides."""

    def open(self) -> None:
        if not self._by_rows:
            preload("operators.rolling.columns", *COLUMN_STATE)
        self._memory = WindowProgress(self.ctx.keyed_state, "rolling")
        layout = self._memory.layout
        if layout is not None:
            self._bind(layout)

    def process(self, batch: Batch, port: int = 0) -> None:
        refuse_changelog(batch, self.ctx.name, "rolling aggregates")
        if self.face is None:
            self._memory.layout = self._choose(batch)
            self._bind(self._memory.layout)
        assert self.face is not None
        self.out.emit(self.face.run(batch))

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._memory.save()

    def _choose(self, batch: Batch) -> pa.Schema:
        """What describes the face for this first batch: key count and columns, or "row"."""
        if isinstance(batch, ColumnBatch) and not self._by_rows:
            from .columns import describe

            keys = self._spec.key.key_columns(batch)
            layout = None if keys is None else describe(self._spec, keys.schema, batch.data.schema)
            if layout is not None:
                return layout
        return pa.schema([], metadata={"face": "row"})

    def _bind(self, layout: pa.Schema) -> None:
        if layout.metadata[b"face"] == b"row":
            self.face = RollingRows(self._spec, self.ctx.keyed_state, self.ctx.name)
        else:
            from .columns import RollingColumns

            self.face = RollingColumns(self._spec, layout, self.ctx.keyed_state, self.ctx.name)

"""What windows emit, in batches of a good size, as steps.

Aggregates: key columns, bounds, results. Records: their columns, bounds, and their rank if it is
asked for. `fired_slices` has what windows made of slices hand over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.windows import BuiltinWindow, TopNWindow, WindowSpec
from ...core.batch import ColumnBatch
from ...core.constants import CHUNK_BATCHES, END, START
from ...core.errors import GraphError
from ...core.keys import ConstantKey
from ..base import OperatorContext, Output, Work, emit_slices

Show = Callable[[Sequence[pa.Array]], list[pa.Array]]
"""Key columns as they are emitted, from those that windowers have."""


class WindowOutput:
    """Of one operator."""

    def __init__(self, spec: WindowSpec, ctx: OperatorContext, out: Output, show: Show) -> None:
        function = spec.function
        self._records = not isinstance(function, BuiltinWindow)
        self._places = int(isinstance(function, TopNWindow) and function.rank is not None)
        """How many columns come behind a record's bounds."""
        self._with_keys = not (self._records or isinstance(spec.key, ConstantKey))
        self._show = show
        self._name = ctx.name
        self._out = out
        self._names: list[str] = []
        self.size = ctx.config.batch_size * CHUNK_BATCHES
        """So many records are emitted at once, at most."""

    def bind(self, keys: pa.Schema, results: Sequence[str]) -> None:
        """The names of the results' columns. GraphError if two columns would have one name."""
        shown = list(keys.names) if self._with_keys else []
        self._names = self._arranged(shown, [START, END], list(results))
        twice = sorted({name for name in self._names if self._names.count(name) > 1})
        if twice:
            raise GraphError(
                f"window operator '{self._name}' would emit several columns named {twice}: "
                "rename them upstream, or the aggregates"
            )

    def emit(
        self,
        keys: Sequence[pa.Array],
        starts: pa.Array,
        ends: pa.Array,
        results: Sequence[pa.Array],
        stamps: npt.NDArray[np.int64],
    ) -> Work:
        """One row per result, in as many batches as it takes; None if one did."""
        shown = self._show(keys) if self._with_keys else []
        arrays = self._arranged(shown, [starts, ends], list(results))
        batch = ColumnBatch(pa.RecordBatch.from_arrays(arrays, names=self._names), stamps)
        return emit_slices(self._out, batch, self.size)

    def _arranged(self, keys: list[Any], bounds: list[Any], results: list[Any]) -> list[Any]:
        if not self._records:
            return [*keys, *bounds, *results]
        record = len(results) - self._places
        return [*results[:record], *bounds, *results[record:]]

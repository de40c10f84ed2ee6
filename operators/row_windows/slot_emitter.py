"""What built-in functions give in windows that run row by row: columns, as on the kernels' path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...api.specs.windows import BuiltinWindow, WindowSpec
from ...core.batch import Batch, ColumnBatch
from ...core.key_kinds import all_given
from ...core.keys import ColumnKey, ExpressionKey
from ..base import OperatorContext, Output, run_to_end
from ..windows.window_keys import KEY, key_array
from ..windows.window_output import WindowOutput
from .slot_contents import Fired, SlotContents


class SlotEmitter:
    """Takes firings, and sends their results when there is a batch of them."""

    def __init__(
        self, spec: WindowSpec, ctx: OperatorContext, out: Output, contents: SlotContents
    ) -> None:
        self._contents = contents
        self._key = spec.key
        self._shows_keys = spec.keyed and isinstance(spec.function, BuiltinWindow)
        self._output = WindowOutput(spec, ctx, out, list)
        self._chunk = ctx.config.batch_size
        self._kinds: list[pa.DataType | None] = []

    def layout(self, batch: Batch, keys: Sequence[Any]) -> pa.Schema:
        """Of the keys that are shown, by the first batch: null for a type that is to be inferred
        from what comes out, as of keys of records that are objects."""
        if not self._shows_keys:
            return pa.schema([])
        typed = isinstance(batch, ColumnBatch)
        columns = self._key.key_columns(batch.slice(0, 1)) if typed else None
        if columns is not None:
            return pa.schema(list(columns.schema))
        if isinstance(self._key, ColumnKey):
            names = list(self._key.names)
        elif isinstance(self._key, ExpressionKey):
            names = [expression.meta.output_name() for expression in self._key.expressions]
        else:
            names = [KEY]
        kind = key_array(all_given(keys[:1]), None).type if typed else pa.null()
        return pa.schema([pa.field(name, kind) for name in names])

    def bind(self, keys: pa.Schema, results: Sequence[str]) -> None:
        """Once, before all that follow."""
        self._kinds = [None if pa.types.is_null(kind) else kind for kind in keys.types]
        self._output.bind(keys, results)

    def fire(self, key: Any, window: Any, contents: Any) -> None:
        """`contents`: the slot."""
        self._contents.fire(contents, key, window)

    def more(self, rest: Iterator[Any], window: Any) -> None:
        raise AssertionError("a firing is gathered whole")

    @property
    def full(self) -> bool:
        return self._contents.waiting >= self._chunk

    def clear(self, window: Any) -> None:
        """Nothing is kept per window."""

    def flush(self) -> None:
        fired = self._contents.results()
        if fired:
            self._send(fired)
            self._contents.tidy()

    def _send(self, fired: Sequence[Fired]) -> None:
        keys = [key for one in fired for key in one.keys]
        windows = [window for one in fired for window in one.windows]
        results = [pa.concat_arrays(p) for p in zip(*(f.results for f in fired), strict=True)]
        starts, ends = (
            pa.array([getattr(window, name, None) for window in windows], type=pa.int64())
            for name in ("start", "end")
        )
        stamps = np.array([window.max_timestamp() for window in windows], dtype=np.int64)
        work = self._output.emit(self._columns(keys), starts, ends, results, stamps)
        run_to_end(work)

    def _columns(self, keys: list[Any]) -> list[pa.Array]:
        if not self._kinds:
            return []
        columns: Any = [keys] if len(self._kinds) == 1 else list(zip(*keys, strict=True))
        return [key_array(c, kind) for c, kind in zip(columns, self._kinds, strict=True)]

"""What sliced windows emit: results with their window's bounds, in batches of a good size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.windows import BuiltinWindow, TopNWindow, WindowSpec
from ...core.batch import ColumnBatch, take_rows
from ...core.constants import CHUNK_BATCHES, END, START
from ...core.errors import GraphError
from ...core.keys import ConstantKey
from ..base import OperatorContext, Output
from .slices import Slicing


@dataclass(frozen=True)
class Fired:
    """The results of one window, one row each, with their keys."""

    window_end: int
    keys: pa.RecordBatch
    results: pa.RecordBatch

    def filter(self, chosen: npt.NDArray[np.bool_]) -> Fired:
        """Those rows of it."""
        at = pa.array(np.flatnonzero(chosen))
        return Fired(self.window_end, take_rows(self.keys, at), take_rows(self.results, at))


class WindowOutput:
    """Of one operator. Aggregates: key columns, bounds, results. Records: their columns, bounds,
    and the rank if it is asked for. Event time of all: the window's end - 1."""

    def __init__(
        self, spec: WindowSpec, slicing: Slicing, ctx: OperatorContext, out: Output
    ) -> None:
        self._function = spec.function
        self._with_keys = not isinstance(spec.key, ConstantKey)
        self._slicing = slicing
        self._name = ctx.name
        self._size = ctx.config.batch_size * CHUNK_BATCHES
        self._out = out

    def check(self, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        """GraphError if two columns would have one name. `fields`: of the inputs."""
        if isinstance(self._function, BuiltinWindow):
            shown = list(keys.names) if self._with_keys else []
            names = [*shown, START, END, *(name for name, _ in self._function.aggregates)]
        else:
            names = [*(field.name for field in fields), START, END, *self._rank()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise GraphError(
                f"window operator '{self._name}' would emit several columns named {twice}: "
                "rename them upstream, or the aggregates"
            )

    def emit(self, fired: Iterable[Fired]) -> None:
        """Windows may be many and small, or one and large."""
        waiting: list[Fired] = []
        held = 0
        for one in fired:
            if held and held + len(one.keys) > self._size:
                self._emit(waiting)
                waiting, held = [], 0
            waiting.append(one)
            held += len(one.keys)
        if held:
            self._emit(waiting)

    def _emit(self, fired: list[Fired]) -> None:
        output = self._batch(fired)
        for start in range(0, len(output), self._size):
            self._out.emit(output.slice(start, min(self._size, len(output) - start)))

    def _batch(self, fired: list[Fired]) -> ColumnBatch:
        """All columns of several firings at once: small ones cost little each."""
        counts = [len(one.keys) for one in fired]
        keys = pa.concat_batches([one.keys for one in fired])
        results = pa.concat_batches([one.results for one in fired])
        ends = np.array([one.window_end for one in fired], dtype=np.int64)
        starts = np.array([self._slicing.window_start(one.window_end) for one in fired])
        bounds = [pa.array(np.repeat(at, counts)) for at in (starts, ends)]
        names, arrays = list(results.schema.names), list(results.columns)
        if isinstance(self._function, BuiltinWindow):
            shown = list(zip(keys.schema.names, keys.columns, strict=True))
            shown = shown if self._with_keys else []
            names = [*(name for name, _ in shown), START, END, *names]
            arrays = [*(array for _, array in shown), *bounds, *arrays]
        else:
            at = len(names) - len(self._rank())
            names = [*names[:at], START, END, *names[at:]]
            arrays = [*arrays[:at], *bounds, *arrays[at:]]
        data = pa.RecordBatch.from_arrays(arrays, names=names)
        return ColumnBatch(data, np.repeat(ends - 1, counts))

    def _rank(self) -> list[str]:
        """The name of the rank column, which results end with, if there is one."""
        function = self._function
        return [function.rank] if isinstance(function, TopNWindow) and function.rank else []

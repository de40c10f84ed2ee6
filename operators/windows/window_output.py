"""What sliced windows emit: results with their window's bounds, in batches of a good size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.windows import BuiltinWindow, TopNWindow, WindowSpec
from ...core.batch import ColumnBatch, take_rows
from ...core.constants import CHUNK_BATCHES, END, START
from ...core.errors import GraphError
from ...core.keys import ConstantKey
from ...plan.slicing import Slicing
from ...state.key_groups import key_groups_of
from ..base import OperatorContext, Output, Pause, Steps

ALL_GROUPS = -1


@dataclass(frozen=True)
class Fired:
    """The results of one window, one row each, with their keys.

    `through`: these are the last ones of all key groups up to this one; None: more of the same
    group follow."""

    window_end: int
    keys: pa.RecordBatch
    results: pa.RecordBatch
    through: int | None = ALL_GROUPS

    def filter(self, chosen: npt.NDArray[np.bool_]) -> Fired:
        """Those rows of it."""
        at = pa.array(np.flatnonzero(chosen))
        return Fired(self.window_end, take_rows(self.keys, at), take_rows(self.results, at))

    def parts(self, size: int, max_parallelism: int) -> Iterator[Fired]:
        """Its rows in parts of at most `size`, cut between key groups where these are not larger,
        each made when it is asked for. Without rows, none."""
        if len(self.keys) <= size:
            if len(self.keys):
                yield self
            return
        groups = key_groups_of(self.keys, max_parallelism)
        order = np.argsort(groups.astype(np.uint16), kind="stable")
        ends = np.cumsum(np.bincount(groups, minlength=max_parallelism))
        start = 0
        while start < len(order):
            through = int(np.searchsorted(ends, start + size, side="right")) - 1
            stop = int(ends[through]) if through >= 0 else 0
            whole = stop > start
            if not whole:
                stop = start + size
            at = pa.array(order[start:stop])
            keys, results = take_rows(self.keys, at), take_rows(self.results, at)
            yield Fired(self.window_end, keys, results, through if whole else None)
            start = stop


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
        self._max_parallelism = ctx.max_parallelism
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

    def emit(
        self, fired: Iterable[Fired], emitted: Callable[[Fired], Pause | None] | None = None
    ) -> Steps:
        """Windows may be many and small, or one and large. A pause after each batch but the last;
        `emitted`, called with the last results in it, says of which kind."""
        waiting: list[Fired] = []
        held = 0
        for one in fired:
            for part in one.parts(self._size, self._max_parallelism):
                if held and held + len(part.keys) > self._size:
                    self._out.emit(self._batch(waiting))
                    yield None if emitted is None else emitted(waiting[-1])
                    waiting, held = [], 0
                waiting.append(part)
                held += len(part.keys)
        if held:
            self._out.emit(self._batch(waiting))

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

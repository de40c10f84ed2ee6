"""The results of windows over slices, gathered to batches or cut into parts.

Windows may be many and small, or one and large; each is made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.batch import take_rows
from ...state.key_groups import key_groups_of
from ..base import Pause, Steps
from .window_output import WindowOutput

ALL_GROUPS = -1


@dataclass(frozen=True)
class Fired:
    """The results of one window, one row each, with their keys.

    `through`: these are the last ones of all key groups up to this one; None: more of the same
    group follow. `tick`: when it fired, if before its end."""

    window_start: int
    window_end: int
    keys: pa.RecordBatch
    results: pa.RecordBatch
    through: int | None = ALL_GROUPS
    tick: int | None = None

    def filter(self, chosen: npt.NDArray[np.bool_]) -> Fired:
        """Those rows of it."""
        return self.take(np.flatnonzero(chosen))

    def take(self, rows: npt.NDArray[np.int64], through: int | None = ALL_GROUPS) -> Fired:
        at = pa.array(rows)
        keys, results = take_rows(self.keys, at), take_rows(self.results, at)
        return replace(self, keys=keys, results=results, through=through)

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
            yield self.take(order[start:stop], through if whole else None)
            start = stop


def emit_fired(
    output: WindowOutput,
    max_parallelism: int,
    fired: Iterable[Fired],
    emitted: Callable[[list[Fired]], Pause | None] | None = None,
) -> Steps:
    """A pause after each batch but the last; `emitted`, called with the results in it, says of
    which kind."""
    waiting: list[Fired] = []
    held = 0
    for one in fired:
        for part in one.parts(output.size, max_parallelism):
            if held and held + len(part.keys) > output.size:
                _emit(output, waiting)
                yield None if emitted is None else emitted(waiting)
                waiting, held = [], 0
            waiting.append(part)
            held += len(part.keys)
    if held:
        _emit(output, waiting)


def _emit(output: WindowOutput, fired: list[Fired]) -> None:
    """All columns of several firings at once: small ones cost little each."""
    counts = [len(one.keys) for one in fired]
    keys = pa.concat_batches([one.keys for one in fired])
    results = pa.concat_batches([one.results for one in fired])
    bounds = np.array([(one.window_start, one.window_end) for one in fired], dtype=np.int64)
    starts, ends = np.repeat(bounds, counts, axis=0).T.copy()
    shown = [pa.array(starts), pa.array(ends)]
    left = output.emit(keys.columns, shown[0], shown[1], results.columns, ends - 1)
    assert left is None, "the parts fit into one batch"

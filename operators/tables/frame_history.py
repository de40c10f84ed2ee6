"""What the frames of records to come will reach back to: per key, the inputs of its last records.

With frames of the last n rows these are n - 1 records per key; with frames of a range of time those
no older than the range. With frames of all rows so far it would be everything: `running` does that.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s
from ...core.batch import take_column
from ...state.backend import KeyedStateBackend
from ...state.key_index import CompositeIndex
from .base import Layout, Records
from .frames import Frames
from .grown import bounds, reindexed
from .kept_rows import KeptRows
from .runs import Runs

_SPARE = 1024


class FrameHistory:
    """`inputs`: aggregates and the columns they look at, in the schema of the layout given here,
    whose records are the inputs and whose event times the times that frames go by."""

    def __init__(
        self,
        layout: Layout,
        state: KeyedStateBackend,
        rows: int | None,
        range_ms: int | None,
        peers: bool,
    ) -> None:
        self._layout = layout
        self._frame_rows = rows
        self._range = range_ms
        self._peers = peers
        self._rows = KeptRows(layout, state)
        self._runs = Runs()
        self._index = CompositeIndex(layout.keys)
        self._limit = _SPARE
        """Rows held before the next look for old ones."""
        for positions in self._rows.restored():
            self._find(positions)

    def update(self, records: Records, aggregates: list[tuple[Aggregate, int]]) -> list[pa.Array]:
        """The aggregates (each with the index of its input, -1 for none) for each record, in their
        order; records of a key come in order."""
        slots, owners = np.unique(self._index.upsert(records.keys.columns), return_inverse=True)
        self._runs.grow(len(self._index))
        order = np.argsort(owners, kind="stable")
        held_sizes, held = self._runs.gather(slots)
        new = self._rows.add(records, order)
        new_sizes = np.bincount(owners, minlength=len(slots))
        positions, new_at = _interleave(held_sizes, held, new_sizes, new)
        sizes = held_sizes + new_sizes
        times = self._times(positions)
        starts, ends = self._frames(bounds(sizes), new_at, times)
        frames = Frames(starts, ends, len(positions))
        inputs = self._rows.columns(range(len(self._layout.columns)), positions)
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        results = [
            frames.sizes() if at < 0 else frames.aggregate(aggregate, inputs[at])
            for aggregate, at in aggregates
        ]
        self._keep(slots, sizes, positions, times)
        return [take_column(result, pa.array(back)) for result in results]

    def prune(self, time: int) -> None:
        """No record up to this time comes any more: forget what no frame reaches."""
        if self._range is None or len(self._rows.table) < self._limit:
            return
        every = np.arange(len(self._index))
        sizes, held = self._runs.gather(every)
        keep = self._times(held) > time - self._range
        self._rows.release(held[~keep])
        owners = np.repeat(every, sizes)[keep]
        self._runs.replace(every, np.bincount(owners, minlength=len(every)), held[keep])
        live = self._runs.live()
        self._index = reindexed(self._index, self._layout.keys, live)
        self._runs.keep(live)
        self._limit = 2 * len(self._rows.table) + _SPARE

    def _find(self, positions: Int64s) -> None:
        """Take in restored rows, behind those taken in already."""
        found = self._index.upsert(self._rows.keys(positions))
        slots, owners = np.unique(found, return_inverse=True)
        self._runs.grow(len(self._index))
        order = np.argsort(owners, kind="stable")
        held_sizes, held = self._runs.gather(slots)
        sizes = np.bincount(owners, minlength=len(slots))
        both, _ = _interleave(held_sizes, held, sizes, positions[order])
        self._runs.replace(slots, held_sizes + sizes, both)

    def _times(self, positions: Int64s) -> Int64s:
        if not self._layout.stamped:
            return np.zeros(len(positions), dtype=np.int64)
        return self._rows.times(positions)

    def _frames(self, edges: Int64s, new_at: Int64s, times: Int64s) -> tuple[Int64s, Int64s]:
        """Where the frames of the new rows, which are at `new_at`, start and end."""
        first = edges[:-1][np.searchsorted(edges, new_at, side="right") - 1]
        if self._range is None:
            assert self._frame_rows is not None
            return np.maximum(first, new_at - self._frame_rows + 1), new_at + 1
        from ..kernels.over import range_frames

        starts, ends = np.empty(len(new_at), np.int64), np.empty(len(new_at), np.int64)
        range_frames(edges, times, new_at, self._range, self._peers, starts, ends)
        return starts, ends

    def _keep(self, slots: Int64s, sizes: Int64s, positions: Int64s, times: Int64s) -> None:
        """What frames to come may reach: the last rows of each key, or those young enough."""
        edges = bounds(sizes)
        last = np.repeat(edges[1:] - 1, sizes)
        if self._range is None:
            assert self._frame_rows is not None
            keep = last - np.arange(len(positions)) < self._frame_rows - 1
        else:
            keep = times >= times[last] - self._range
        self._rows.release(positions[~keep])
        owners = np.repeat(np.arange(len(slots)), sizes)[keep]
        self._runs.replace(slots, np.bincount(owners, minlength=len(slots)), positions[keep])


def _interleave(
    held_sizes: Int64s, held: Int64s, new_sizes: Int64s, new: Int64s
) -> tuple[Int64s, Int64s]:
    """Per key its held rows and then its new ones; and where the new ones are."""
    starts = bounds(held_sizes + new_sizes)[:-1]
    held_at = np.arange(len(held)) + np.repeat(starts - bounds(held_sizes)[:-1], held_sizes)
    new_at = np.arange(len(new)) + np.repeat(
        starts + held_sizes - bounds(new_sizes)[:-1], new_sizes
    )
    both = np.empty(len(held) + len(new), dtype=np.int64)
    both[held_at], both[new_at] = held, new
    return both, new_at

"""The rows of one side of an interval join, by number, in chunks of arrivals.

A chunk is forgotten when the last of its rows has expired. Small chunks are merged, so that a probe
touches few: each row is copied a few times at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...core.batch import take_column

MERGED, MERGED_ROWS = 4, 1 << 16
"""This many chunks become one, unless it would have more rows than that."""


@dataclass
class Chunk:
    """Rows `first`, `first + 1`, ... `matched`: which have had a partner; writable. `groups`: their
    key groups, once asked for."""

    first: int
    rows: pa.RecordBatch
    keys: pa.RecordBatch
    stamps: Int64s
    matched: Bools
    groups: npt.NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        self.latest = int(self.stamps.max())
        self.due = int(self.stamps.min())
        """The least time of a row that has not expired; beyond `latest` when all have."""
        self._by_time: Int64s | None = None
        """Rows in order of time, once some expire."""

    def __len__(self) -> int:
        return len(self.stamps)

    def pop_due(self, until: int) -> Int64s:
        """The rows that expire now, their time being at most `until`."""
        if self._by_time is None:
            self._by_time = np.argsort(self.stamps, kind="stable")
            self._times = self.stamps[self._by_time]
        begin = int(np.searchsorted(self._times, self.due))
        end = int(np.searchsorted(self._times, min(until, self.latest), side="right"))
        self.due = self.latest + 1 if end == len(self) else int(self._times[end])
        return self._by_time[begin:end]


@dataclass(frozen=True)
class Gathered:
    """Rows brought together: `order` is the permutation of what was asked for, `at` where in
    `rows`, `keys`, `stamps` each is."""

    order: Int64s | None
    at: Int64s
    rows: pa.RecordBatch
    keys: pa.RecordBatch
    stamps: Int64s


class HeldChunks:
    """`tracked`: whether rows without partner are asked for when they expire.

    Invariant: chunks ascend by number, none is empty."""

    def __init__(self, tracked: bool) -> None:
        self._tracked = tracked
        self.chunks: list[Chunk] = []

    def append(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        while self._merge():
            pass

    def gather(self, numbers: Int64s) -> Gathered:
        """The rows of these numbers, of which there is at least one."""
        of, order = self._chunks_of(numbers)
        if order is None:
            chunk = self.chunks[int(of[0])]
            return Gathered(None, numbers - chunk.first, chunk.rows, chunk.keys, chunk.stamps)
        pieces = []
        for number, begin, end in _runs(of[order]):
            chunk = self.chunks[number]
            at = numbers[order[begin:end]] - chunk.first
            index = pa.array(at)
            pieces.append((_take(chunk.rows, index), _take(chunk.keys, index), chunk.stamps[at]))
        rows, keys, stamps = zip(*pieces, strict=True)
        return Gathered(
            order,
            np.arange(len(numbers)),
            pa.concat_batches(rows),
            pa.concat_batches(keys),
            np.concatenate(stamps),
        )

    def mark(self, numbers: Int64s) -> Int64s:
        """These rows have a partner; returns those that had none before, each once."""
        fresh = []
        of, order = self._chunks_of(numbers)
        order = np.arange(len(numbers)) if order is None else order
        for number, begin, end in _runs(of[order]):
            chunk = self.chunks[number]
            at = np.unique(numbers[order[begin:end]] - chunk.first)
            at = at[~chunk.matched[at]]
            chunk.matched[at] = True
            fresh.append(at + chunk.first)
        return np.concatenate(fresh)

    def expire(self, until: int) -> list[tuple[Chunk, Int64s]]:
        """Rows that expire now, their time being at most `until`, and had no partner; by chunk, in
        order of time. None if these are not asked for. Chunks without others are forgotten."""
        alone = []
        for chunk in self.chunks if self._tracked else ():
            if chunk.due <= until:
                rows = chunk.pop_due(until)
                alone.append((chunk, rows[~chunk.matched[rows]]))
        self.chunks = [chunk for chunk in self.chunks if chunk.latest > until]
        return alone

    def _chunks_of(self, numbers: Int64s) -> tuple[Int64s, Int64s | None]:
        """The chunk of each row, and rows by chunk; None if all are in one."""
        firsts = np.fromiter((chunk.first for chunk in self.chunks), np.int64, len(self.chunks))
        of = np.searchsorted(firsts, numbers, side="right") - 1
        if len(of) and (of == of[0]).all():
            return of, None
        return of, np.argsort(of, kind="stable")

    def _merge(self) -> bool:
        last = self.chunks[-MERGED:]
        sizes = list(map(len, last))
        if len(last) < MERGED or sum(sizes) > MERGED_ROWS or sizes[0] > 2 * sum(sizes[1:]):
            return False
        # Where a chunk between two was forgotten, their numbers do not follow each other.
        if any(a.first + len(a) != b.first for a, b in pairwise(last)):
            return False
        groups = [chunk.groups for chunk in last if chunk.groups is not None]
        merged = Chunk(
            last[0].first,
            pa.concat_batches([chunk.rows for chunk in last]),
            pa.concat_batches([chunk.keys for chunk in last]),
            np.concatenate([chunk.stamps for chunk in last]),
            np.concatenate([chunk.matched for chunk in last]),
            np.concatenate(groups) if len(groups) == len(last) else None,
        )
        merged.due = min(chunk.due for chunk in last)
        self.chunks[-MERGED:] = [merged]
        return True


def _runs(ascending: Int64s) -> list[tuple[int, int, int]]:
    """(value, begin, end) of each run of equal values."""
    begins = np.flatnonzero(np.diff(ascending, prepend=-1)).tolist()
    ends = [*begins[1:], len(ascending)]
    return [(int(ascending[b]), b, e) for b, e in zip(begins, ends, strict=True)]


def _take(data: pa.RecordBatch, index: pa.Array) -> pa.RecordBatch:
    columns = [take_column(column, index) for column in data.columns]
    return pa.RecordBatch.from_arrays(columns, schema=data.schema)

"""The rows of one side that an interval join may still need, found by key and time.

The rows are state (`RowChunks`). Key and time of each are all that the index is made of, so it is
made anew from the rows at a restore.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...state.backend import KeyedStateBackend
from ...state.hash_columns import hash_columns
from ...state.key_words import is_words, to_words
from ...state.rows.chunks import Chunk, Gathered, RowChunks
from ..contents import same_rows
from .side import SIDES, JoinSide, SideRows
from .time_index import TimeIndex


class HeldRows:
    """`reach`: a row expires when the watermark is at its time + reach, which must be at `until` =
    watermark - reach; `width`: about the length of the interval; `tracked`: whether rows without
    partner are asked for when they expire."""

    def __init__(self, side: JoinSide, reach: int, width: int, tracked: bool) -> None:
        self._side = side
        self.reach = reach
        self._tracked = tracked
        self._rows: RowChunks | None = None
        """None until the side's columns are known."""
        self._index = TimeIndex(width)

    def __len__(self) -> int:
        """Rows held, some of them expired."""
        return 0 if self._rows is None else len(self._rows)

    def bind(self, state: KeyedStateBackend) -> None:
        """The side's columns are known, so its rows can be: those restored, or none."""
        if self._rows is None:
            side = self._side
            assert side.schema is not None
            self._rows = state.chunks(SIDES[side.port], side.schema, side.keys_of)
            for chunk in self._rows.chunks:
                self._index.insert(words_of_keys(chunk.keys), chunk.stamps)

    def insert(self, records: SideRows, matched: Bools) -> None:
        """Rows that have not expired and have no null keys, in order of arrival. `matched` becomes
        this object's own."""
        self._index.insert(words_of_keys(records.keys), records.timestamps)
        self._held.append(records.rows, records.keys, records.timestamps, matched)

    def probe(
        self, keys: pa.RecordBatch, stamps: Int64s, lower: int, upper: int, limit: int
    ) -> Iterator[tuple[Int64s, Int64s, Gathered]]:
        """Pairs with rows of equal keys whose time - the probing row's is from `lower` to `upper`:
        (probing rows, row numbers, the rows; all in one order), about `limit` at a time."""
        words = words_of_keys(keys)
        for probing, numbers in self._index.probe(words, stamps, lower, upper, limit):
            found = self._held.gather(numbers)
            if found.order is not None:
                probing, numbers = probing[found.order], numbers[found.order]
            same = self._same_keys(keys, probing, found)
            if same is not None:
                probing, numbers = probing[same], numbers[same]
                found = Gathered(None, found.at[same], found.rows, found.keys, found.stamps)
            if len(numbers):
                yield probing, numbers, found

    def mark(self, numbers: Int64s) -> Int64s:
        """These rows have a partner; returns those that had none before."""
        return self._held.mark(numbers)

    def gather(self, numbers: Int64s) -> Gathered:
        return self._held.gather(numbers)

    def expire(self, until: int) -> list[tuple[Chunk, Int64s]]:
        """No partner comes any more for rows of a time up to `until`: those of them that had none,
        as (chunk, rows in it), if they are tracked."""
        self._index.until = until
        if self._rows is None:
            return []
        alone = self._rows.expire(until, self._tracked)
        chunks = self._rows.chunks
        self._index.first = chunks[0].first if chunks else self._index.next
        return alone

    def cuts(self, until: int, limit: int) -> Iterator[int]:
        """Times up to which to expire rows one after the other, the last one `until`, so that there
        are about `limit` without partner each time, more only if they are of one time."""
        chunks = self._rows.chunks if self._tracked and self._rows is not None else ()
        due = [chunk for chunk in chunks if chunk.due <= until]
        if sum(map(len, due)) > limit:
            alone = [c.stamps[~c.matched & (c.stamps >= c.due) & (c.stamps <= until)] for c in due]
            times = np.sort(np.concatenate(alone))
            start = 0
            while start + limit < len(times):
                cut = int(times[start + limit - 1])
                start = int(np.searchsorted(times, cut, side="right"))
                if cut < until:
                    yield cut
        yield until

    def validate(self) -> None:
        """Assert the invariants."""
        if self._rows is not None:
            self._rows.validate()
            assert all(self._index.first <= c.first < self._index.next for c in self._rows.chunks)

    @property
    def _held(self) -> RowChunks:
        assert self._rows is not None
        return self._rows

    def _same_keys(self, keys: pa.RecordBatch, probing: Int64s, found: Gathered) -> Bools | None:
        """Which pairs have equal keys; None when words tell it. Hashes only find candidates."""
        if _exact(keys):
            return None
        mine = keys.take(pa.array(probing))
        theirs = found.keys.take(pa.array(found.at))
        same = same_rows(mine.columns, theirs.columns)
        return None if same.all() else same


def words_of_keys(keys: pa.RecordBatch) -> Int64s:
    """8 bytes per key: the key itself if it is one word, else its hash."""
    if _exact(keys):
        return np.ascontiguousarray(to_words(keys.column(0)))
    words: Int64s = hash_columns(keys).view(np.int64)
    return words


def _exact(keys: pa.RecordBatch) -> bool:
    return bool(keys.num_columns == 1 and is_words(keys.schema.types[0]))

"""The rows of one side that an interval join may still need, found by key and time.

Kept outside keyed state while records flow, written into it for a snapshot: key and time of each
row are all that the index is made of, so it is made anew from the rows at a restore.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ...core.arrays import Bools, Int64s, numpy_of
from ...state.backend import BufferState, KeyedStateBackend
from ...state.hash_columns import hash_columns
from ...state.key_groups import key_groups_of
from ...state.key_words import is_words, to_words
from ...state.window_progress import WindowProgress
from .contents import same_rows
from .held_chunks import Chunk, Gathered, HeldChunks
from .side import SIDES, JoinSide, SideRows
from .time_index import TimeIndex

STAMP, MATCHED = "__event_time", "__matched"


class HeldRows:
    """`reach`: a row expires when the watermark is at its time + reach, which must be at `until` =
    watermark - reach; `width`: about the length of the interval; `tracked`: whether rows without
    partner are asked for when they expire."""

    def __init__(self, side: JoinSide, reach: int, width: int, tracked: bool) -> None:
        self._side = side
        self.reach = reach
        self._store = HeldChunks(tracked)
        self._index = TimeIndex(width)
        self._saved: BufferState | None = None
        """The state that holds a snapshot's rows, until they are known to be taken."""

    def __len__(self) -> int:
        """Rows held, some of them expired."""
        return sum(map(len, self._store.chunks))

    def insert(self, records: SideRows, matched: Bools) -> None:
        """Rows that have not expired and have no null keys, in order of arrival. `matched` becomes
        this object's own."""
        first = self._index.next
        self._index.insert(words_of_keys(records.keys), records.timestamps)
        chunk = Chunk(first, records.rows, records.keys, records.timestamps, matched)
        self._store.append(chunk)

    def probe(
        self, keys: pa.RecordBatch, stamps: Int64s, lower: int, upper: int, limit: int
    ) -> Iterator[tuple[Int64s, Int64s, Gathered]]:
        """Pairs with rows of equal keys whose time - the probing row's is from `lower` to `upper`:
        (probing rows, row numbers, the rows; all in one order), about `limit` at a time."""
        words = words_of_keys(keys)
        for probing, numbers in self._index.probe(words, stamps, lower, upper, limit):
            found = self._store.gather(numbers)
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
        return self._store.mark(numbers)

    def gather(self, numbers: Int64s) -> Gathered:
        return self._store.gather(numbers)

    def expire(self, until: int) -> list[tuple[Chunk, Int64s]]:
        """No partner comes any more for rows of a time up to `until`: those of them that had none,
        as (chunk, rows in it), if they are tracked."""
        self._index.until = until
        alone = self._store.expire(until)
        chunks = self._store.chunks
        self._index.first = chunks[0].first if chunks else self._index.next
        return alone

    def save(self, state: KeyedStateBackend) -> None:
        """Write the rows into keyed state, before a snapshot."""
        if self._side.schema is None:
            return
        schema = self._stored_schema(self._side.schema)
        self._saved = state.buffer(SIDES[self._side.port], schema)
        self._saved.drop(0)
        for chunk in self._store.chunks:
            if chunk.groups is None:
                chunk.groups = key_groups_of(chunk.keys, state.max_parallelism)
            arrays = [*chunk.rows.columns, pa.array(chunk.stamps), pa.array(chunk.matched)]
            rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
            self._saved.append(0, rows, chunk.groups)

    def release(self) -> None:
        """The snapshot has been taken: the rows need not be in keyed state as well."""
        if self._saved is not None:
            self._saved.drop(0)
            self._saved = None

    def restore(self, state: KeyedStateBackend, progress: WindowProgress) -> None:
        """The rows of the snapshot, without those that had expired. Once, before all else."""
        assert self._side.schema is not None
        buffer = state.buffer(SIDES[self._side.port], self._stored_schema(self._side.schema))
        table = buffer.get(0)[0]
        for batch in table.to_batches():
            rows = batch.select(self._side.schema.names)
            stamps = numpy_of(batch.column(STAMP))
            keys = self._side.keys_of(rows)
            matched = numpy_of(batch.column(MATCHED))
            for watermark, at in progress.split(keys):
                at = np.arange(len(stamps)) if at is None else at
                at = at[stamps[at] > watermark - self.reach]
                if len(at):
                    chosen = SideRows(rows, keys, stamps, None).take(at)
                    self.insert(chosen, matched[at])
        buffer.drop(0)

    def _stored_schema(self, schema: pa.Schema) -> pa.Schema:
        return pa.schema([*schema, pa.field(STAMP, pa.int64()), pa.field(MATCHED, pa.bool_())])

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

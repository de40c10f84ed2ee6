"""Rows that are needed for some time, by number, in chunks of arrivals: sides of interval joins.

A chunk is forgotten when the last of its rows has expired, so nothing is moved to make room. Small
chunks are merged, so that a probe touches few: each row is copied a few times at most. A freeze
looks at the chunks; which rows have met a partner is copied for a chunk that is written after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...core.batch import schema_text, take_column
from ...core.elements import MIN_TIMESTAMP
from ...core.errors import StateError
from ...core.value_types import empty_batch
from ..key_groups import key_groups_of
from ..stored import AccColumn, StateTable
from ..whole import WholeWithoutCodes
from .arena import from_stored, stored_schema, to_stored
from .format import FrozenRows, Numbers, stored_rows

MERGED, MERGED_ROWS = 4, 1 << 16
"""This many chunks become one, unless it would have more rows than that."""

TIME, MATCHED = "time", "matched"

NUMBERS = (AccColumn(TIME, "int64"), AccColumn(MATCHED, "bool"))

KeysOf = Callable[[pa.RecordBatch], pa.RecordBatch]
"""The key columns of rows, as they are compared; on any thread."""


@dataclass
class Chunk:
    """Rows `first`, `first + 1`, ... `matched`: which have had a partner; `shared`: a freeze may
    look at that, so it is copied before it is written."""

    first: int
    rows: pa.RecordBatch
    keys: pa.RecordBatch
    stamps: Int64s
    matched: Bools
    shared: bool = False

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


class RowChunks(WholeWithoutCodes):
    """Single-threaded, but for `FrozenRows.table`.

    Invariants: chunks ascend by number, none is empty; rows of a time up to `_until` are not in
    snapshots."""

    def __init__(self, name: str, schema: pa.Schema, keys_of: KeysOf, max_parallelism: int) -> None:
        """The key groups of rows are those of their keys."""
        self._name = name
        self._schema = schema
        self._keys_of = keys_of
        self._max_parallelism = max_parallelism
        self._next = 0
        self._until = MIN_TIMESTAMP
        self.chunks: list[Chunk] = []

    def __len__(self) -> int:
        """Rows held, some of them expired."""
        return sum(map(len, self.chunks))

    @property
    def nbytes(self) -> int:
        """Bytes of rows and what is known of them."""
        return sum(c.rows.nbytes + c.stamps.nbytes + c.matched.nbytes for c in self.chunks)

    def append(
        self, rows: pa.RecordBatch, keys: pa.RecordBatch, stamps: Int64s, matched: Bools
    ) -> int:
        """Rows in order of arrival, at least one. `matched` becomes this object's own. Returns the
        number of the first."""
        first = self._next
        self.chunks.append(Chunk(first, rows, keys, stamps, matched))
        self._next += len(stamps)
        while self._merge():
            pass
        return first

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
            if chunk.shared and len(at):
                chunk.matched, chunk.shared = chunk.matched.copy(), False
            chunk.matched[at] = True
            fresh.append(at + chunk.first)
        return np.concatenate(fresh)

    def expire(self, until: int, tracked: bool) -> list[tuple[Chunk, Int64s]]:
        """Rows that expire now, their time being at most `until`, and had no partner; by chunk, in
        order of time. None if these are not `tracked`. Chunks without others are forgotten."""
        self._until = max(self._until, until)
        alone = []
        for chunk in self.chunks if tracked else ():
            if chunk.due <= until:
                rows = chunk.pop_due(until)
                alone.append((chunk, rows[~chunk.matched[rows]]))
        self.chunks = [chunk for chunk in self.chunks if chunk.latest > until]
        return alone

    def check_same(self, schema: pa.Schema) -> None:
        """Asking again for the name must mean the same rows."""
        if schema != self._schema:
            raise StateError(
                f"rows '{self._name}' have columns {schema_text(self._schema)}; they are asked for "
                f"with columns {schema_text(schema)}"
            )

    def freeze(self, name: str) -> FrozenRows:
        """The rows as they are now, to be encoded on any thread; nothing is copied."""
        parts = [(chunk.rows, chunk.stamps, chunk.matched) for chunk in self.chunks]
        for chunk in self.chunks:
            chunk.shared = True
        schema, until = stored_schema(self._schema), self._until
        return FrozenRows(name, self._groups_of, lambda: _unexpired(parts, schema, until))

    def restore(self, tables: Iterable[StateTable]) -> None:
        """Into an empty state: the rows of each former subtask, in order of time, so that chunks
        expire one after the other. StateError if the columns are not those declared."""
        stored = stored_schema(self._schema)
        for rows, known in stored_rows(self._name, tables, stored, NUMBERS, self._groups_of):
            by_time = np.argsort(known[TIME], kind="stable")
            for start in range(0, len(by_time), MERGED_ROWS):
                at = by_time[start : start + MERGED_ROWS]
                some = from_stored(_take(rows, pa.array(at)), self._schema)
                self.append(some, self._keys_of(some), known[TIME][at], known[MATCHED][at])

    def validate(self) -> None:
        """Assert the invariants."""
        assert all(len(chunk) for chunk in self.chunks)
        assert all(a.first + len(a) <= b.first for a, b in pairwise(self.chunks))
        assert all(chunk.latest > self._until for chunk in self.chunks)

    def _groups_of(self, rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        return key_groups_of(self._keys_of(rows), self._max_parallelism)

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
        merged = Chunk(
            last[0].first,
            pa.concat_batches([chunk.rows for chunk in last]),
            pa.concat_batches([chunk.keys for chunk in last]),
            np.concatenate([chunk.stamps for chunk in last]),
            np.concatenate([chunk.matched for chunk in last]),
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


def _unexpired(
    parts: Sequence[tuple[pa.RecordBatch, Int64s, Bools]], schema: pa.Schema, until: int
) -> tuple[pa.RecordBatch, Numbers]:
    """The rows of chunks as they were frozen, without those up to that time."""
    found = [empty_batch(schema)]
    times, matches = [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
    for rows, stamps, matched in parts:
        at = np.flatnonzero(stamps > until)
        some = rows if len(at) == len(stamps) else _take(rows, pa.array(at))
        found.append(to_stored(some))
        times.append(stamps[at])
        matches.append(matched[at])
    return pa.concat_batches(found), {TIME: np.concatenate(times), MATCHED: np.concatenate(matches)}

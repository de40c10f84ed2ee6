"""A buffer of which rows may lie in RocksDB: whole pieces of a namespace, as Arrow writes them.

Namespaces are times, and windows are due in their order: so of what does not fit into memory the
rows of the greatest ones leave first. What is asked for is read whole, and stays while there is
room. Pieces that leave are joined before, so that RocksDB has few and large values; a row that left
takes nothing in memory.

A snapshot knows its pieces from its freeze on. Where their rows are it sees when it reads them, on
its thread: a piece has them until RocksDB has. So pieces that a snapshot still reads are not
joined, and what is dropped stays in RocksDB until it is done.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ....core.arrays import Bools, Groups
from ....core.value_types import empty_table
from ...buffer_changes import BufferDelta, BufferRecord, Filled
from ...buffers import MemoryBufferState
from ...increments import Layer
from ...stored_keys import StoredKeys
from ..database.rows_database import RowsDatabase
from .buffer_freeze import ColdBufferFreeze, Part, Reading
from .buffer_pieces import Piece, Pieces

PIECE = 1 << 20
"""Pieces are joined up to so many bytes; larger ones are cut."""

JOINED = 4
"""So many pieces of about one size become one."""

LIVE = 2 / 3
"""How much of what fits into memory stays when something has to leave."""


@dataclass
class _Space:
    """A namespace: pieces in order of arrival. `life`: as of `Filled`."""

    life: int
    pieces: list[Piece] = field(default_factory=list)
    count: int = 0


class ColdBufferState(MemoryBufferState):
    """As `MemoryBufferState`; of columns that `pieces_fit`.

    Invariants: `used` are the sizes of the pieces that have rows; each other has a place."""

    def __init__(self, name: str, schema: pa.Schema, database: RowsDatabase) -> None:
        super().__init__(name, schema, BufferRecord())
        self._held: dict[int, _Space] = {}
        self._pieces = Pieces(name, schema)
        self._database = database
        self._prefix, _ = database.new_state(name, "buffer", {})
        self._places = 0
        """Given out so far."""
        self._deletes: list[bytes] = []
        self._limbo: list[tuple[int, list[bytes]]] = []
        """Places of what was dropped, and the number of the last freeze that may read them."""
        self._readings: list[weakref.ref[Reading]] = []
        self._freezes = 0
        self._limit = self._enough = 0
        """The bytes that may be used, and from which on it is seen again how many may."""
        self.used = 0
        """Bytes of rows in memory. Other threads ask, too."""
        self.spilled = self.loaded = 0
        """Rows written to RocksDB, and read from it, so far."""
        database.budget.join(self)

    def append(self, namespace: int, rows: pa.RecordBatch, key_groups: Groups) -> None:
        self._append(namespace, pa.Table.from_batches([rows]), key_groups)

    def get(self, namespace: int) -> tuple[pa.Table, Groups]:
        space = self._held.get(namespace)
        if space is None:
            return empty_table(self._schema), np.empty(0, dtype=np.int32)
        found = [self._pieces.shown(self._rows(piece)) for piece in space.pieces]
        groups = [groups for _, groups in found]
        return pa.Table.from_batches([rows for rows, _ in found]), np.concatenate(groups)

    def count(self, namespace: int) -> int:
        space = self._held.get(namespace)
        return 0 if space is None else space.count

    def namespaces(self) -> list[int]:
        return sorted(self._held)

    def drop(self, namespace: int) -> None:
        space = self._held.pop(namespace, None)
        if space is None:
            return
        self.used -= sum(piece.size for piece in space.pieces if piece.rows is not None)
        places = [piece.place for piece in space.pieces if piece.place is not None]
        if places and self._read_last():
            self._limbo.append((self._freezes, places))
        else:
            self._deletes += places

    def mark_objects(self, held: Bools) -> None:
        for space in self._held.values():
            for piece in space.pieces:
                self._pieces.mark_objects(piece, held)

    def sweep(self, records: int) -> None:
        """See `Sweeping`: so the task says that a batch or a watermark is done."""
        self.make_room()

    def begin_event_time(self, watermark: int) -> None:
        """Nothing expires here."""

    def make_room(self) -> None:
        """Write to RocksDB what is more than the rows may take."""
        self._limit = self._database.budget.limit(self)
        if self.used > self._limit:
            self._evict(int(LIVE * self._limit))
        if self._limbo:
            first = min((reading.number for reading in self._active()), default=self._freezes)
            while self._limbo and self._limbo[0][0] <= first:
                self._deletes += self._limbo.pop(0)[1]
        if self._deletes:
            self._write([])
        self._enough = max(self.used, self._limit) + self._limit // 4

    def close(self) -> None:
        self._database.budget.leave(self)

    def validate(self) -> None:
        """Assert the invariants."""
        pieces = [piece for space in self._held.values() for piece in space.pieces]
        assert self.used == sum(piece.size for piece in pieces if piece.rows is not None)
        assert all(piece.rows is not None or piece.place is not None for piece in pieces)
        places = [piece.place for piece in pieces if piece.place is not None]
        gone = [*self._deletes, *(place for _, some in self._limbo for place in some)]
        assert len({*places, *gone}) == len(places) + len(gone)
        for space in self._held.values():
            assert space.count == sum(piece.count for piece in space.pieces) > 0

    def _append(self, namespace: int, rows: pa.Table, key_groups: Groups) -> None:
        self._check(rows, key_groups)
        if not len(rows):
            return
        space = self._held.get(namespace)
        if space is None:
            self._lives += 1
            space = self._held[namespace] = _Space(self._lives)
        most = max(len(rows) * PIECE // max(rows.nbytes, 1), 1)
        for batch in rows.to_batches(max_chunksize=most):
            groups, key_groups = key_groups[: len(batch)], key_groups[len(batch) :]
            piece = self._pieces.made(batch, groups, self._freezes)
            space.pieces.append(piece)
            space.count += piece.count
            self.used += piece.size
            self._join_last(space)
            if self.used > self._enough:
                self.make_room()

    def _filled(self) -> dict[int, Filled]:
        return {ns: Filled(space.life, space.count) for ns, space in self._held.items()}

    def _freeze(self, name: str, layer: Layer, delta: BufferDelta | None) -> ColdBufferFreeze:
        known = {} if delta is None else delta.known
        parts: list[Part] = []
        for namespace, space in sorted(self._held.items()):
            parts += _behind(namespace, space.pieces, known.get(namespace, 0))
        reading = Reading(self._freezes)
        self._readings = [weakref.ref(one) for one in [*self._active(), reading]]
        self._freezes += 1
        return ColdBufferFreeze(
            name,
            self._schema,
            StoredKeys(self._schema.types),
            self._pieces,
            parts,
            layer,
            () if delta is None else delta.cleared,
            reading,
            self._database.get_apart,
        )

    def _active(self) -> list[Reading]:
        """The freezes that still read, the oldest first."""
        found = [ref() for ref in self._readings]
        return [one for one in found if one is not None and not one.over]

    def _read_last(self) -> int:
        """Pieces born before this many freezes are still read by one, perhaps."""
        active = self._active()
        return active[-1].number + 1 if active else 0

    def _rows(self, piece: Piece) -> pa.RecordBatch:
        """Its rows, which stay in memory if there is room."""
        rows = piece.rows
        if rows is None:
            assert piece.place is not None
            rows = self._pieces.unpacked(self._database.get(piece.place))
            self.loaded += piece.count
            if self.used + piece.size <= self._limit:
                piece.rows = rows
                self.used += piece.size
        return rows

    def _join_last(self, space: _Space) -> None:
        """Join the last pieces where they have become about as large as those before."""
        while len(space.pieces) >= JOINED:
            last = space.pieces[-JOINED:]
            size = sum(piece.size for piece in last)
            if size > PIECE or last[0].size * 2 > size or not self._joins(last):
                return
            self._join(space, len(space.pieces) - JOINED, len(space.pieces))

    def _joins(self, pieces: list[Piece]) -> bool:
        """Whether all are in memory alone, and no snapshot reads one."""
        read = self._read_last()
        return all(piece.place is None and piece.born >= read for piece in pieces)

    def _join(self, space: _Space, start: int, end: int) -> Piece:
        former = space.pieces[start:end]
        piece = former[0] if len(former) == 1 else self._pieces.joined(former)
        self.used += piece.size - sum(one.size for one in former)
        space.pieces[start:end] = [piece]
        return piece

    def _evict(self, enough: int) -> None:
        """Have no more than so many bytes in memory, if that can be."""
        for namespace in sorted(self._held, reverse=True):
            space = self._held[namespace]
            at = 0
            while at < len(space.pieces):
                if self.used <= enough:
                    return
                piece = space.pieces[at]
                if piece.rows is not None:
                    if piece.place is None:
                        piece = self._join(space, at, at + self._run(space.pieces[at:]))
                        self._save(piece)
                    piece.rows = None
                    self.used -= piece.size
                at += 1

    def _run(self, pieces: list[Piece]) -> int:
        """How many of the first are written as one."""
        read, size = self._read_last(), 0
        for number, piece in enumerate(pieces):
            size += piece.size
            apart = piece.rows is None or piece.place is not None or piece.born < read
            if apart or size > PIECE:
                return max(number, 1)
        return len(pieces)

    def _save(self, piece: Piece) -> None:
        place = self._prefix + self._places.to_bytes(8, "big")
        self._places += 1
        self._write([(place, self._pieces.packed(piece))])
        piece.place = place
        self.spilled += piece.count

    def _write(self, rows: list[tuple[bytes, bytes]]) -> None:
        deletes, self._deletes = self._deletes, []
        self._database.write(deletes, rows)


def _behind(namespace: int, pieces: list[Piece], known: int) -> Iterator[Part]:
    """The rows of a namespace behind the first so many."""
    first = 0
    for piece in pieces:
        skipped = min(max(known - first, 0), piece.count)
        if skipped < piece.count:
            yield Part(namespace, first + skipped, piece, skipped)
        first += piece.count

"""Snapshots of a buffer of which rows lie in RocksDB: they read them, in tables of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ...buffer_changes import Piece as Rows
from ...buffer_changes import encoded
from ...increments import Layer
from ...stored import StateTable
from ...stored_keys import StoredKeys
from ..database.freeze import PieceFreeze
from .buffer_pieces import Piece, Pieces

TABLE = 16 << 20
"""About so many bytes of rows make a table."""


@dataclass(eq=False)
class Reading:
    """Of one freeze: `number` is how many there were before. `over`: it reads no more."""

    number: int
    over: bool = False


@dataclass(frozen=True)
class Part:
    """What a freeze has of a piece: the rows behind the first `skipped` ones; `first` is the number
    of the first of those."""

    namespace: int
    first: int
    piece: Piece
    skipped: int = 0


@dataclass(frozen=True)
class ColdBufferFreeze(PieceFreeze):
    """A point in time of a buffer, or what changed in it. `get`: reads places on any thread."""

    name: str
    schema: pa.Schema
    stored: StoredKeys
    pieces: Pieces
    parts: Sequence[Part]
    layer: Layer
    cleared: Collection[int]
    reading: Reading
    get: Callable[[list[bytes]], list[bytes | None]]

    def table(self, max_parallelism: int) -> StateTable | None:
        raise AssertionError("asked for its tables")

    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        cleared = self.cleared
        for some in self._portions():
            rows = [self._read(part) for part in some]
            table = encoded(self.name, self.schema, self.stored, rows, self.layer, cleared)
            if table is not None:
                yield table
            cleared = ()
        self.reading.over = True

    def _portions(self) -> Iterator[list[Part]]:
        """All parts; one portion at least."""
        portion: list[Part] = []
        size = 0
        for part in self.parts:
            if portion and size + part.piece.size > TABLE:
                yield portion
                portion, size = [], 0
            portion.append(part)
            size += part.piece.size
        yield portion

    def _read(self, part: Part) -> Rows:
        rows = part.piece.rows
        if rows is None:
            assert part.piece.place is not None
            rows = self.pieces.unpacked(self.get([part.piece.place])[0])
        shown, groups = self.pieces.shown(rows.slice(part.skipped))
        return Rows(part.namespace, part.first, pa.Table.from_batches([shown]), groups)

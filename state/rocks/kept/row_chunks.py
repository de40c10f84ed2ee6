"""`RowChunks` of which rows may lie in RocksDB.

A chunk holds positions in a `RowCache` instead of rows: 10 bytes for each, beside its key, its
time, and whether it has had a partner. What is gathered, or expires alone, is read.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ....core.arrays import Bools, Int64s, numpy_of
from ....core.batch import take_rows
from ...rows.chunks import MATCHED, TIME, Chunk, Gathered, KeysOf, RowChunks
from ...rows.format import Numbers
from ..database.rows_database import RowsDatabase
from .row_cache import RowCache
from .row_log import ColdFrozenLog, FrozenStock, RowStock

_AT = pa.schema({"at": pa.int32()})


class ColdRowChunks(RowChunks):
    """As `RowChunks`; of columns that `rows_fit`. The rows of `chunks` are positions."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys_of: KeysOf,
        max_parallelism: int,
        database: RowsDatabase,
    ) -> None:
        super().__init__(name, schema, keys_of, max_parallelism)
        self._stock = RowStock(name, schema, self._groups_of, database)

    @property
    def cache(self) -> RowCache:
        return self._stock.cache

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.cache.nbytes

    def append(
        self, rows: pa.RecordBatch, keys: pa.RecordBatch, stamps: Int64s, matched: Bools
    ) -> int:
        at = pa.array(self._stock.add(rows), pa.int32())
        keys = take_rows(keys, pa.array(np.arange(len(at))))  # else they hold all that came with it
        return super().append(pa.record_batch([at], schema=_AT), keys, stamps.copy(), matched)

    def gather(self, numbers: Int64s) -> Gathered:
        found = super().gather(numbers)
        rows = self._stock.rows(_positions(found.rows)[found.at], self._schema)
        keys, stamps = take_rows(found.keys, pa.array(found.at)), found.stamps[found.at]
        return Gathered(found.order, np.arange(len(stamps)), rows, keys, stamps)

    def expire(self, until: int, tracked: bool) -> list[tuple[Chunk, Int64s]]:
        before = self.chunks
        alone = [
            (self._apart(chunk, rows), np.arange(len(rows)))
            for chunk, rows in super().expire(until, tracked)
            if len(rows)
        ]
        for chunk in before:
            if chunk.latest <= until:
                self._stock.give_up(_positions(chunk.rows))
        return alone

    def freeze(self, name: str) -> ColdFrozenLog:
        held, until = self.chunks, self._until
        for chunk in held:
            chunk.shared = True
        stamps = [np.empty(0, np.int64), *(chunk.stamps for chunk in held)]
        matched = [np.empty(0, np.bool_), *(chunk.matched for chunk in held)]

        def live() -> Int64s:
            return np.flatnonzero(np.concatenate(stamps) > until)

        def known(rows: Int64s, at: Int64s | slice) -> Numbers:
            return {TIME: np.concatenate(stamps)[at], MATCHED: np.concatenate(matched)[at]}

        at = np.concatenate([stamps[0], *(_positions(chunk.rows) for chunk in held)])
        frozen = FrozenStock(self._stock, self._stock.pool.freeze(), at, live, known)
        return ColdFrozenLog(name, self._groups_of, frozen.read, held=frozen)

    def validate(self) -> None:
        super().validate()
        none = np.empty(0, np.int64)
        self._stock.validate(np.concatenate([none, *(_positions(c.rows) for c in self.chunks)]))

    def _apart(self, chunk: Chunk, rows: Int64s) -> Chunk:
        """Some rows of a chunk, read."""
        return Chunk(
            chunk.first,
            self._stock.rows(_positions(chunk.rows)[rows], self._schema),
            take_rows(chunk.keys, pa.array(rows)),
            chunk.stamps[rows],
            chunk.matched[rows],
        )


def _positions(rows: pa.RecordBatch) -> Int64s:
    positions: Int64s = numpy_of(rows.column(0)).astype(np.int64)
    return positions

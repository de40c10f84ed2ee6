"""One record per key: the first or last, by arrival or by an order.

The first to arrive needs only the keys seen: the output inserts and nothing else. Otherwise the
kept record is stored per key, and a batch emits the difference between before and after it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...api.specs.tables import DeduplicateSpec
from ...core.arrays import Int64s
from ...core.batch import ColumnBatch
from ...core.growing import Growing
from ...core.row_kind import RowKind
from ...state.key_index import CompositeIndex
from ..base import Work
from .all_rows import AllRows
from .base import Layout, Records, TableOperator
from .differences import Differences
from .grown import as_rows
from .kept_rows import KeptRows
from .order_words import OrderWords


class DeduplicateOperator(TableOperator):
    """See the module. Of a changelog, all records of each key are kept (`AllRows`)."""

    kernels = ("operators.kernels.ranking", "state.block_kernels")

    def __init__(self, spec: DeduplicateSpec) -> None:
        super().__init__(spec.key)
        self._spec = spec

    def bind(self, layout: Layout) -> None:
        last = self._spec.keep == "last"
        words = OrderWords(self._spec.order, layout.columns, self.ctx.name)
        self._work: FirstArrivals | BestRows | AllRows
        if layout.changelog:
            shape = Differences(None, ranked=True)
            self._work = AllRows(self, layout, words, 1, shape, last)
        elif not last and not words.width:
            self._work = FirstArrivals(self, layout)
        else:
            self._work = BestRows(self, layout, words, last)

    def update(self, records: Records) -> Work:
        return self._work.update(records)


class FirstArrivals:
    """Table "seen" of the keys."""

    def __init__(self, operator: TableOperator, layout: Layout) -> None:
        self._operator = operator
        self._table = operator.ctx.keyed_state.table("seen", layout.keys, [])

    def update(self, records: Records) -> None:
        table = self._table.table(0)
        known = len(table)
        slots = table.slots(records.keys)
        before = np.empty(len(slots), dtype=np.int64)
        before[0] = known - 1
        np.maximum.accumulate(np.maximum(slots[:-1], known - 1), out=before[1:])
        rows = np.flatnonzero(slots > before)
        if len(rows) == len(slots):
            self._operator.emit(records.data, None, records.stamps)
        elif len(rows):
            self._operator.out.emit(ColumnBatch(records.data, records.stamps).take(rows))


class BestRows:
    """`_positions[slot]`: where the kept record lies. `_words`: its order words, if they last."""

    def __init__(
        self, operator: TableOperator, layout: Layout, words: OrderWords, last: bool
    ) -> None:
        self._operator = operator
        self._order = words
        self._last = last
        self._rows = KeptRows(layout, operator.ctx.keyed_state, ordered=False)
        self._index = CompositeIndex(layout.keys)
        self._positions = Growing(np.int32)
        self._words = Growing(np.int64)
        self._winner = Growing(np.int32, -1)
        """Scratch, -1 between batches."""
        for positions in self._rows.restored():
            self._find(positions)

    def update(self, records: Records) -> None:
        old, new = self._take_in(records)
        self._emit(old, new)
        self._rows.release(old[old >= 0])

    def _find(self, positions: Int64s) -> None:
        """Take in restored rows, each of another key."""
        slots = self._index.upsert(self._rows.keys(positions))
        self._grow(len(self._index))
        self._positions.array[slots] = positions
        if self._order.lasting and self._order.width:
            columns = self._rows.columns(self._order.columns, positions)
            words, width = self._order.of(columns, self._last), self._order.width
            as_rows(self._words.array, width)[slots] = words.reshape(-1, width)

    def _take_in(self, records: Records) -> tuple[Int64s, Int64s]:
        """Where the former records of changed keys lie (-1: none), and where their new ones."""
        from ..kernels.ranking import best_rows

        known = len(self._index)
        slots = self._index.upsert(records.keys.columns)
        self._grow(len(self._index))
        words = self._batch_words(records, slots, known)
        touched = np.empty(len(slots), dtype=np.int64)
        width = self._order.width
        count = best_rows(
            slots, words, width, self._last, known, self._words.array, self._winner.array, touched
        )
        touched = touched[:count]
        winners = self._winner.array[touched].astype(np.int64)
        self._winner.array[touched] = -1
        old = np.where(touched < known, self._positions.array[touched], np.int64(-1))
        new = self._rows.add(records, winners)
        self._positions.array[touched] = new
        return old, new

    def _batch_words(self, records: Records, slots: Int64s, known: int) -> Int64s:
        """The batch's order words. Where words do not last, held rows' are made with them."""
        if self._order.lasting:
            return self._order.of_batch(records.data, self._last)
        held = np.unique(slots)
        held = held[held < known]
        kept = self._rows.columns(self._order.columns, self._positions.array[held].astype(np.int64))
        new = [records.data.column(i) for i in self._order.columns]
        both = [pa.concat_arrays(pair) for pair in zip(kept, new, strict=True)]
        words, width = self._order.of(both, self._last), self._order.width
        as_rows(self._words.array, width)[held] = words[: len(held) * width].reshape(-1, width)
        return words[len(held) * width :]

    def _emit(self, old: Int64s, new: Int64s) -> None:
        positions = np.stack([old, new], axis=1).reshape(-1)
        kinds = np.empty((len(new), 2), dtype=np.int8)
        kinds[:, 0] = RowKind.UPDATE_BEFORE
        kinds[:, 1] = np.where(old >= 0, RowKind.UPDATE_AFTER, RowKind.INSERT)
        shown = positions >= 0
        data, stamps = self._rows.read(positions[shown])
        self._operator.emit(data, kinds.reshape(-1)[shown], stamps)

    def _grow(self, size: int) -> None:
        self._positions.reserve(size)
        self._words.reserve(size * self._order.width)
        self._winner.reserve(size)

"""The first n records per key of an order, as a changelog; ties in order of arrival.

Per key there is a sorted array of at most n entries, and only their records are kept. That is
enough while the input only inserts: what drops out never comes back. Where the input retracts,
`AllRows` keeps every record. A batch emits the difference between before and after it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ...api.specs.tables import TopNSpec
from ...core.arrays import Int64s
from ...core.growing import Growing
from ...core.row_kind import ROW_KIND
from ...state.key_index import CompositeIndex
from ..base import Steps
from .all_rows import AllRows
from .base import Layout, Records, TableOperator, require_distinct
from .differences import Differences
from .grown import as_rows, bounds, ranges
from .kept_rows import KeptRows
from .order_words import OrderWords

_SCRATCH = 1 << 22
"""Entries of scratch memory for the former lists of a batch; larger batches are cut."""


class TopNOperator(TableOperator):
    """See the module."""

    kernels = ("operators.kernels.ranking", "state.block_kernels")

    def __init__(self, spec: TopNSpec) -> None:
        super().__init__(spec.key)
        self._spec = spec

    def bind(self, layout: Layout) -> None:
        spec = self._spec
        added = [ROW_KIND] if spec.rank is None else [spec.rank, ROW_KIND]
        require_distinct(self.ctx.name, [*layout.columns.names, *added])
        words = OrderWords(spec.order, layout.columns, self.ctx.name)
        shape = Differences(spec.rank, ranked=spec.rank is not None)
        self._work: BestN | AllRows
        if layout.changelog:
            self._work = AllRows(self, layout, words, spec.n, shape)
        else:
            self._work = BestN(self, layout, words, spec.n, shape)

    def update(self, records: Records) -> Steps:
        return self._work.update(records)


class BestN:
    """Entries of slot s: `_ids[s * n:][:_sizes[s]]`, positions of kept rows in order; `_words`
    likewise, if they last."""

    def __init__(
        self,
        operator: TableOperator,
        layout: Layout,
        order: OrderWords,
        n: int,
        differences: Differences,
    ) -> None:
        self._operator = operator
        self._order = order
        self._n = n
        self._differences = differences
        self._rows = KeptRows(layout, operator.ctx.keyed_state)
        self._index = CompositeIndex(layout.keys)
        self._sizes = Growing(np.int32, 0)
        self._ids = Growing(np.int32, 0)
        self._words = Growing(np.int64, 0)
        self._marks = Growing(np.int32, -1)
        """Scratch, -1 between batches."""
        self._find()

    def update(self, records: Records) -> Steps:
        for part in records.parts(max(1, _SCRATCH // self._n)):
            lists = self._take_in(part)
            if len(lists[0]) > 1:
                gone = yield from self._differences.emit(self._operator, self._rows, *lists)
                self._rows.release(gone)

    def _find(self) -> None:
        """Take in restored rows. There are more than n of a key where n was greater before."""
        for some in self._rows.restored(max(1, _SCRATCH // self._n)):
            columns = self._rows.columns(self._order.columns, some)
            self._insert(self._rows.keys(some), columns, some.__getitem__)
        keys = len(self._index)
        at = ranges(np.arange(keys) * self._n, self._sizes.array[:keys].astype(np.int64))
        if len(at) < len(self._rows.table):
            every = self._rows.table.positions()
            self._rows.release(np.setdiff1d(every, self._ids.array[at]))

    def _take_in(self, records: Records) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        columns = [records.data.column(i) for i in self._order.columns]
        return self._insert(
            records.keys.columns, columns, lambda rows: self._rows.add(records, rows)
        )

    def _insert(
        self, keys: list[pa.Array], columns: list[pa.Array], positions: Callable[[Int64s], Int64s]
    ) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """Former and new lists of positions of the changed slots: starts and lists.

        Of new rows: their keys, their order columns, and the positions of those that are kept."""
        from ..kernels.ranking import insert_ranked

        n, width = self._n, self._order.width
        slots = self._index.upsert(keys)
        self._grow(len(self._index))
        words = self._words_of(columns, slots)
        touched = np.empty(len(slots), dtype=np.int64)
        before_sizes = np.empty(len(slots), dtype=np.int64)
        before = np.empty(len(slots) * n, dtype=np.int64)
        count = insert_ranked(
            slots,
            words,
            width,
            n,
            self._sizes.array,
            self._words.array,
            self._ids.array,
            self._marks.array,
            touched,
            before_sizes,
            before,
        )
        touched, before_sizes = touched[:count], before_sizes[:count]
        self._marks.array[touched] = -1
        before = before[ranges(np.arange(count) * n, before_sizes)]
        sizes = self._sizes.array[touched].astype(np.int64)
        at = ranges(touched * n, sizes)
        after = self._ids.array[at].astype(np.int64)
        fresh = after < 0
        after[fresh] = positions(-1 - after[fresh])
        self._ids.array[at] = after
        return bounds(before_sizes), before, bounds(sizes), after

    def _words_of(self, new: list[pa.Array], slots: Int64s) -> Int64s:
        """New rows' order words. Where words do not last, held rows' are made with them."""
        if self._order.lasting:
            return self._order.of(new)
        held = np.unique(slots)
        at = ranges(held * self._n, self._sizes.array[held].astype(np.int64))
        kept = self._rows.columns(self._order.columns, self._ids.array[at].astype(np.int64))
        both = [pa.concat_arrays(pair) for pair in zip(kept, new, strict=True)]
        words, width = self._order.of(both), self._order.width
        as_rows(self._words.array, width)[at] = words[: len(at) * width].reshape(-1, width)
        return words[len(at) * width :]

    def _grow(self, size: int) -> None:
        self._sizes.reserve(size)
        self._ids.reserve(size * self._n)
        self._words.reserve(size * self._n * self._order.width)
        self._marks.reserve(size)

"""The first n records per key of an order, as a changelog; ties in order of arrival.

Per key there is a sorted array of at most n entries, and only their records are kept. That is
enough while the input only inserts: what drops out never comes back. Where the input retracts,
`AllRows` keeps every record. A batch emits the difference between before and after it.

With a time to live a key's records are forgotten so long after one of them was the last to come in
among its first n. Nothing is taken back for them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from ...api.specs.tables import TopNSpec
from ...core.arrays import Int64s
from ...core.growing import Growing
from ...core.row_kind import ROW_KIND
from ...state.backend import AccColumn
from ...state.key_index import CompositeIndex
from ...state.ttl import Lifetime
from ..base import Steps
from ..key_expiry import NEVER, NO_TIMES, KeyExpiry
from ..order_words import OrderWords
from .all_rows import AllRows
from .base import Layout, Records, TableOperator, require_distinct
from .differences import Differences
from .expiring_keys import STORED
from .grown import as_rows, bounds, ranges, reindexed
from .kept_rows import KeptRows

_SPARE = 1024

_SCRATCH = 1 << 22
"""Entries of scratch memory for the former lists of a batch; larger batches are cut."""


Lists = tuple[Int64s, Int64s, Int64s, Int64s]
"""Lists of positions before and after: bounds and positions of each, twice."""


class TopNOperator(TableOperator):
    """See the module."""

    kernels = ("operators.kernels.ranking", "operators.kernels.expiry", "state.block_kernels")

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
            self._work = AllRows(self, layout, words, spec.n, shape, life=spec.ttl)
        else:
            self._work = BestN(self, layout, words, spec.n, shape, spec.ttl)

    def update(self, records: Records) -> Steps:
        return self._work.update(records)


class BestN:
    """Entries of slot s: `_ids[s * n:][:_sizes[s]]`, positions of kept rows in order; `_words`
    likewise, if they last. `_stamps[s]`: when they changed last, with a time to live; keys that
    were forgotten have no entries."""

    def __init__(
        self,
        operator: TableOperator,
        layout: Layout,
        order: OrderWords,
        n: int,
        differences: Differences,
        life: Lifetime | None = None,
    ) -> None:
        self._operator = operator
        self._order = order
        self._n = n
        self._differences = differences
        self._layout = layout
        state = operator.ctx.keyed_state
        self._stored = STORED if life is None else life.column(STORED)
        numbers = () if life is None else (AccColumn(self._stored, "int64", NEVER),)
        self._rows = KeptRows(layout, state, numbers=numbers)
        self._index = CompositeIndex(layout.keys)
        self._sizes = Growing(np.int32, 0)
        self._ids = Growing(np.int32, 0)
        self._words = Growing(np.int64, 0)
        self._marks = Growing(np.int32, -1)
        """Scratch, -1 between batches."""
        self._stamps = Growing(np.int64, NEVER)
        self._forgotten = 0
        """How many keys, at most, have a slot and no records."""
        self._expiry: KeyExpiry | None = None
        if life is not None:
            self._expiry = KeyExpiry(life, state.time, operator.ctx.name, self._forget_some)
        self._find()

    def update(self, records: Records) -> Steps:
        for part in records.parts(max(1, _SCRATCH // self._n)):
            lists, brief = self._take_in(part)
            if len(lists[0]) > 1:
                gone = yield from self._differences.emit(self._operator, self._rows, *lists)
                self._rows.release(gone)
                self._rows.release(brief)

    def _find(self) -> None:
        """Take in restored rows. There are more than n of a key where n was greater before."""
        for some in self._rows.restored(max(1, _SCRATCH // self._n)):
            columns = self._rows.columns(self._order.columns, some)
            self._insert(self._rows.keys(some), columns, partial(_found, some))
            if self._expiry is not None:
                slots = self._index.find(self._rows.keys(some))
                np.maximum.at(
                    self._stamps.array, slots, self._rows.table.number(self._stored)[some]
                )
        keys = len(self._index)
        at = ranges(np.arange(keys) * self._n, self._sizes.array[:keys].astype(np.int64))
        if len(at) < len(self._rows.table):
            every = self._rows.table.positions()
            self._rows.release(np.setdiff1d(every, self._ids.array[at]))

    def _take_in(self, records: Records) -> tuple[Lists, Int64s]:
        """What `_insert` gives, of these records."""
        columns = [records.data.column(i) for i in self._order.columns]
        times: Int64s | None = None
        if self._expiry is not None:
            times = self._expiry.times.of(records.stamps, len(records))

        def keep(rows: Int64s, slots: Int64s) -> Int64s:
            if times is None:
                return self._rows.add(records, rows)
            return self._rows.add(records, rows, {self._stored: self._stamps.array[slots]})

        return self._insert(records.keys.columns, columns, keep, times)

    def _forget_some(self, records: int) -> None:
        """Forget some keys whose time is over, and those without records when they are the most."""
        assert self._expiry is not None
        count = len(self._index)
        slots = self._expiry.some(self._stamps.array[:count], records)
        at = ranges(slots * self._n, self._sizes.array[slots].astype(np.int64))
        self._rows.release(self._ids.array[at].astype(np.int64))
        self._sizes.array[slots] = 0
        self._stamps.array[slots] = NEVER
        self._forgotten += len(slots)
        if self._forgotten <= _SPARE or 2 * self._forgotten <= count:
            return
        live = np.flatnonzero(self._sizes.array[:count])
        self._forgotten = count - len(live)
        if 2 * len(live) < count:
            width = self._order.width
            self._index = reindexed(self._index, self._layout.keys, live)
            words = as_rows(self._words.array, self._n * width)[live].reshape(-1)
            self._words = Growing.over(words, 0)
            self._ids = Growing.over(as_rows(self._ids.array, self._n)[live].reshape(-1), 0)
            self._sizes = Growing.over(self._sizes.array[live], 0)
            self._stamps = Growing.over(self._stamps.array[live], NEVER)
            self._marks = Growing.over(np.full(len(live), -1, np.int32), -1)
            self._forgotten = 0
            self._expiry.begin_again()

    def _insert(
        self,
        keys: list[pa.Array],
        columns: list[pa.Array],
        positions: Callable[[Int64s, Int64s], Int64s],
        times: Int64s | None = None,
    ) -> tuple[Lists, Int64s]:
        """Former and new lists of positions of the changed slots, and which of the new positions
        were forgotten already: a slot has several lists if it was begun anew.

        Of new rows: their keys, their order columns, and the positions of those that are kept, by
        rows and their slots. `times`: of the rows, with a time to live."""
        from ..kernels.ranking import insert_ranked

        n, width = self._n, self._order.width
        slots = self._index.upsert(keys)
        self._grow(len(self._index))
        words = self._words_of(columns, slots)
        touched, before_sizes, after_sizes = np.empty((3, len(slots)), dtype=np.int64)
        before = np.empty(len(slots) * n, dtype=np.int64)
        sealed, dropped, gone = NO_TIMES, NO_TIMES, np.zeros(1, dtype=np.int64)
        ttl, times = 0, NO_TIMES if times is None else times
        if len(times):
            assert self._expiry is not None
            ttl = self._expiry.ttl
            sealed, dropped = np.empty((2, len(slots) * n), dtype=np.int64)
        marks, held = self._marks.array, (self._sizes.array, self._words.array, self._ids.array)
        rules = (width, n, times, ttl, self._stamps.array)
        found = (touched, before_sizes, before, after_sizes, sealed, dropped, gone)
        count = insert_ranked(slots, words, *rules, *held, marks, *found)
        touched, before_sizes = touched[:count], before_sizes[:count]
        marks[touched] = -1
        self._rows.release(dropped[: int(gone[0])])
        before = before[ranges(np.arange(count) * n, before_sizes)]
        sizes = self._sizes.array[touched].astype(np.int64)
        at = ranges(touched * n, sizes)
        after = self._ids.array[at].astype(np.int64)
        brief = np.zeros(len(after), dtype=np.bool_)
        ends = after_sizes[:count] >= 0
        if len(times) and ends.any():
            sizes = np.where(ends, after_sizes[:count], sizes)
            brief = np.repeat(ends, sizes)
            at = ranges(np.where(ends, np.arange(count), touched) * n, sizes)
            after = np.empty(len(at), dtype=np.int64)
            after[brief], after[~brief] = sealed[at[brief]], self._ids.array[at[~brief]]
        fresh = after < 0
        rows = -1 - after[fresh]
        after[fresh] = positions(rows, slots[rows])
        self._ids.array[at[~brief]] = after[~brief]
        return (bounds(before_sizes), before, bounds(sizes), after), after[brief]

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
        if self._expiry is not None:
            self._stamps.reserve(size)
        self._ids.reserve(size * self._n)
        self._words.reserve(size * self._n * self._order.width)
        self._marks.reserve(size)


def _found(positions: Int64s, rows: Int64s, slots: Int64s) -> Int64s:
    """Where restored rows lie."""
    return positions[rows]

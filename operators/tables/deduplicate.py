"""One record per key: the first or last, by arrival or by an order.

The first to arrive needs only the keys seen: the output inserts and nothing else. Otherwise the
kept record is stored per key, and a batch emits the difference between before and after it.

With a time to live a key is forgotten so long after its record was stored, and the next one that
comes is its first again. Nothing is taken back for it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...api.specs.tables import DeduplicateSpec
from ...core.arrays import Int64s
from ...core.batch import ColumnBatch
from ...core.growing import Growing
from ...core.row_kind import RowKind
from ...state.backend import AccColumn
from ...state.key_index import CompositeIndex
from ...state.ttl import Lifetime
from ..base import Work
from ..key_expiry import NEVER, NO_TIMES, KeyExpiry
from ..order_words import OrderWords
from .all_rows import AllRows
from .base import Layout, Records, TableOperator
from .differences import Differences
from .expiring_keys import STORED
from .grown import as_rows, reindexed
from .kept_rows import KeptRows

_SPARE = 1024


class DeduplicateOperator(TableOperator):
    """See the module. Of a changelog, all records of each key are kept (`AllRows`)."""

    kernels = ("operators.kernels.ranking", "operators.kernels.expiry", "state.block_kernels")

    def __init__(self, spec: DeduplicateSpec) -> None:
        super().__init__(spec.key)
        self._spec = spec

    def bind(self, layout: Layout) -> None:
        last = self._spec.keep == "last"
        words = OrderWords(self._spec.order, layout.columns, self.ctx.name)
        self._work: FirstArrivals | FirstOfAWhile | BestRows | AllRows
        life = self._spec.ttl
        if layout.changelog:
            shape = Differences(None, ranked=True)
            self._work = AllRows(self, layout, words, 1, shape, last, life)
        elif last or words.width:
            self._work = BestRows(self, layout, words, last, life)
        elif life is None:
            self._work = FirstArrivals(self, layout)
        else:
            self._work = FirstOfAWhile(self, layout, life)

    def update(self, records: Records) -> Work:
        return self._work.update(records)


class FirstArrivals:
    """Table "seen" of the keys."""

    def __init__(self, operator: TableOperator, layout: Layout) -> None:
        self._operator = operator
        self._table = operator.ctx.keyed_state.table("seen", layout.keys, [], cold=True)

    def update(self, records: Records) -> None:
        table = self._table.table(0)
        table.recall(records.keys)
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


class FirstOfAWhile:
    """Table "seen" of the keys, and when each was let through."""

    def __init__(self, operator: TableOperator, layout: Layout, life: Lifetime) -> None:
        self._operator = operator
        state = operator.ctx.keyed_state
        self._stored = life.column(STORED)
        columns = [AccColumn(self._stored, "int64", NEVER)]
        table = state.table("seen", layout.keys, columns, cold=True)
        self._table = table.table()
        self._expiry = KeyExpiry(life, state.time, operator.ctx.name, self._forget_some)
        table.expire(self._stored, self._expiry.gone)

    def update(self, records: Records) -> None:
        from ..kernels.expiry import first_of_a_while

        times = self._expiry.times.of(records.stamps, len(records))
        slots = self._table.slots(records.keys)
        rows = np.empty(len(slots), dtype=np.int64)
        stamps = self._table.column(self._stored)
        rows = rows[: first_of_a_while(slots, times, self._expiry.ttl, stamps, rows)]
        if len(rows):
            self._operator.out.emit(ColumnBatch(records.data, records.stamps).take(rows))

    def _forget_some(self, records: int) -> None:
        stamps = self._table.column(self._stored)[: len(self._table)]
        self._table.release(self._expiry.some(stamps, records))
        if self._table.tidy() is not None:
            self._expiry.begin_again()


class BestRows:
    """`_positions[slot]`: where the kept record lies, -1 for keys that were forgotten. `_words`:
    its order words, if they last. `_stamps`: when it was stored, with a time to live."""

    def __init__(
        self,
        operator: TableOperator,
        layout: Layout,
        words: OrderWords,
        last: bool,
        life: Lifetime | None = None,
    ) -> None:
        self._operator = operator
        self._order = words
        self._last = last
        state = operator.ctx.keyed_state
        self._stored = STORED if life is None else life.column(STORED)
        numbers = () if life is None else (AccColumn(self._stored, "int64", NEVER),)
        self._rows = KeptRows(layout, state, ordered=False, numbers=numbers)
        self._layout = layout
        self._index = CompositeIndex(layout.keys)
        self._positions = Growing(np.int32, -1)
        self._stamps = Growing(np.int64, NEVER)
        self._words = Growing(np.int64)
        self._entry = Growing(np.int32, -1)
        """Scratch, -1 between batches."""
        self._forgotten = 0
        """How many keys were forgotten since slots got new numbers."""
        self._expiry: KeyExpiry | None = None
        if life is not None:
            self._expiry = KeyExpiry(life, state.time, operator.ctx.name, self._forget_some)
        for positions in self._rows.restored():
            self._find(positions)

    def update(self, records: Records) -> None:
        slots = self._index.upsert(records.keys.columns)
        old, new, brief = self._take_in(records, slots)
        self._emit(old, new)
        self._rows.release(old[old >= 0])
        self._rows.release(brief)

    def _find(self, positions: Int64s) -> None:
        """Take in restored rows, each of another key."""
        slots = self._index.upsert(self._rows.keys(positions))
        self._grow(len(self._index))
        self._positions.array[slots] = positions
        if self._expiry is not None:
            self._stamps.array[slots] = self._rows.table.number(self._stored)[positions]
        if self._order.lasting and self._order.width:
            columns = self._rows.columns(self._order.columns, positions)
            words, width = self._order.of(columns, self._last), self._order.width
            as_rows(self._words.array, width)[slots] = words.reshape(-1, width)

    def _take_in(self, records: Records, slots: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Where the former records of changed keys lie (-1: none), and where their new ones; those
        of the latter that were forgotten already, as a key comes twice if it is begun anew."""
        from ..kernels.ranking import best_rows

        self._grow(len(self._index))
        words = self._batch_words(records, slots)
        times, ttl = NO_TIMES, 0
        if self._expiry is not None:
            times, ttl = self._expiry.times.of(records.stamps, len(records)), self._expiry.ttl
        touched, before, winner, dropped = np.empty((4, len(slots)), dtype=np.int64)
        gone = np.zeros(1, dtype=np.int64)
        entry, held = self._entry.array, (self._positions.array, self._words.array)
        rules = (self._order.width, self._last, times, ttl, self._stamps.array)
        found = (touched, before, winner, dropped, gone)
        count = best_rows(slots, words, *rules, *held, entry, *found)
        touched, before, winner = touched[:count], before[:count], winner[:count]
        lasts = entry[touched] == np.arange(count)
        entry[touched] = -1
        self._rows.release(dropped[: int(gone[0])])
        if self._expiry is None:
            new = self._rows.add(records, winner)
        else:
            new = self._rows.add(records, winner, {self._stored: self._stamps.array[touched]})
        self._positions.array[touched[lasts]] = new[lasts]
        return before, new, new[~lasts]

    def _forget_some(self, records: int) -> None:
        """Forget some keys whose time is over, and those forgotten when they are the most."""
        assert self._expiry is not None
        count = len(self._index)
        gone = self._expiry.some(self._stamps.array[:count], records)
        self._rows.release(self._positions.array[gone].astype(np.int64))
        self._positions.array[gone] = -1
        self._stamps.array[gone] = NEVER
        self._forgotten += len(gone)
        if self._forgotten > _SPARE and 2 * len(self._rows.table) < count:
            live = np.flatnonzero(self._positions.array[:count] >= 0)
            width = self._order.width
            self._index = reindexed(self._index, self._layout.keys, live)
            if width:
                self._words = Growing.over(as_rows(self._words.array, width)[live].reshape(-1))
            self._positions = Growing.over(self._positions.array[live], -1)
            self._stamps = Growing.over(self._stamps.array[live], NEVER)
            self._entry = Growing.over(np.full(len(live), -1, np.int32), -1)
            self._forgotten = 0
            self._expiry.begin_again()

    def _batch_words(self, records: Records, slots: Int64s) -> Int64s:
        """The batch's order words. Where words do not last, held rows' are made with them."""
        if self._order.lasting:
            return self._order.of_batch(records.data, self._last)
        held = np.unique(slots)
        held = held[self._positions.array[held] >= 0]
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
        if self._expiry is not None:
            self._stamps.reserve(size)
        self._words.reserve(size * self._order.width)
        self._entry.reserve(size)

"""Top-n over a changelog: all records of each key are kept, since any may become one of the first.

Per key there is one sorted run of positions. A batch gathers the runs of its keys, takes out what
is retracted, sorts the new ones in and compares the first n: work in proportion to the records of
the keys in the batch. A retraction takes away the first that arrived of the records equal to it.

With a time to live a key is forgotten, with all its records, when none was added to it or taken
away for so long (`ExpiringKeys`). Nothing is taken back for it. What is retracted later may be one
of the forgotten: a retraction of a record that is not held is skipped and counted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...core.constants import RETRACTIONS_SKIPPED
from ...core.errors import StateError
from ...state.backend import AccColumn
from ...state.key_index import CompositeIndex
from ...state.ttl import Lifetime
from ..base import Steps
from ..key_turns import Turns
from ..order_words import OrderWords
from .aside import Aside, layout_of_turns, records_of_turns
from .base import Layout, Records, TableOperator
from .differences import Differences
from .expiring_keys import STORED, ExpiringKeys
from .grown import bounds, fill_to, reindexed
from .kept_rows import KeptRows
from .runs import Runs

_SPARE = 1024

Changes = tuple[tuple[Int64s, Int64s], tuple[Int64s, Int64s], Int64s]
"""The first n of some keys before and after (bounds and positions), and the positions taken out."""


class AllRows:
    """`_codes[position]`: number of the row's content, equal rows share it. `last`: of records
    equal in the order the later comes first, and the order is reversed."""

    def __init__(
        self,
        operator: TableOperator,
        layout: Layout,
        order: OrderWords,
        n: int,
        differences: Differences,
        last: bool = False,
        life: Lifetime | None = None,
    ) -> None:
        self._operator = operator
        self._layout = layout
        self._order = order
        self._n = n
        self._differences = differences
        self._last = last
        self._lenient = life is not None
        """Whether retractions of what is not held are skipped."""
        state = operator.ctx.keyed_state
        self._stored = None if life is None else life.column(STORED)
        """A number of rows that says by which time they are forgotten, so that others are refused
        by name: the stamps themselves are the keys'."""
        numbers = () if self._stored is None else (AccColumn(self._stored, "int64"),)
        self._rows = KeptRows(layout, state, numbers=numbers)
        self._keys: CompositeIndex | ExpiringKeys = CompositeIndex(layout.keys)
        self._content = self._new_content()
        self._codes = np.empty(0, dtype=np.int64)
        self._runs = Runs()
        if life is not None:
            self._keys = ExpiringKeys(operator, layout.keys, life, self._empty, self._runs.keep)
        for positions in self._rows.restored():
            codes = self._content.upsert(self._rows.content(positions))
            slots = self._keys.upsert(self._rows.keys(positions))
            self._merge(slots, codes, positions, None)

    def update(self, records: Records) -> Steps:
        slots = self._keys.upsert(records.keys.columns)
        if isinstance(self._keys, ExpiringKeys):
            turns = self._keys.take_turns(slots, records)
            self._empty(turns.stale)
            if turns.of_rows is not None:
                yield from self._in_turns(records, slots, turns)
                self._shrink()
                return
        yield from self._update(records, slots)
        self._shrink()

    def _in_turns(self, records: Records, slots: Int64s, turns: Turns) -> Steps:
        """Some keys expire within the batch."""
        first, between, last = turns.parts()
        yield from self._update(records.take(first), slots[first])
        if len(between):
            rules = (self._order, self._n, self._differences, self._last)
            brief = AllRows(Aside(self._operator), layout_of_turns(self._layout), *rules)
            brief._lenient = True
            yield from brief.update(records_of_turns(records, turns.numbers(slots), between))
        self._empty(np.unique(slots[last]))
        yield from self._update(records.take(last), slots[last])

    def _update(self, records: Records, slots: Int64s) -> Steps:
        codes = self._content.upsert(self._rows.content_of(records))
        if self._lenient and records.retracted is not None and records.retracted.any():
            rows = self._sound(slots, codes, records.retracted)
            if not len(rows):
                return
            if len(rows) < len(records):
                records, slots, codes = records.take(rows), slots[rows], codes[rows]
        before, after, gone = self._take_in(records, slots, codes)
        yield from self._differences.emit(self._operator, self._rows, *before, *after)
        self._rows.release(gone)

    def _take_in(self, records: Records, slots: Int64s, codes: Int64s) -> Changes:
        taken = records.retracted
        rows = None if taken is None else np.flatnonzero(~taken)
        count = len(records) if rows is None else len(rows)
        known = None if self._stored is None else {self._stored: np.zeros(count, dtype=np.int64)}
        new = self._rows.add(records, rows, known)
        return self._merge(slots, codes, new, taken)

    def _sound(self, slots: Int64s, codes: Int64s, taken: Bools) -> Int64s:
        """All rows but the retractions of what is not held when they come: it was forgotten."""
        from ..kernels.expiry import find_unheld

        self._runs.grow(len(self._keys))
        known, owners = np.unique(codes, return_inverse=True)
        held = self._codes[self._runs.gather(np.unique(slots))[1]]
        at = np.minimum(np.searchsorted(known, held), len(known) - 1)
        counts = np.bincount(at[known[at] == held], minlength=len(known)).astype(np.int64)
        unheld = np.empty(len(codes), dtype=np.bool_)
        found = find_unheld(owners.astype(np.int64), taken, counts, unheld)
        if found:
            self._operator.ctx.metrics.count(RETRACTIONS_SKIPPED, found)
        return np.flatnonzero(~unheld)

    def _empty(self, slots: Int64s) -> None:
        """Keep nothing of these keys."""
        self._runs.grow(len(self._keys))
        sizes, positions = self._runs.gather(slots)
        self._rows.release(positions)
        self._runs.replace(slots, np.zeros_like(sizes), positions[:0])

    def _merge(
        self, of_records: Int64s, codes: Int64s, new: Int64s, taken: Bools | None
    ) -> Changes:
        """Slots and contents of records; which of them take one away (None: none); the positions of
        the others, in order of arrival."""
        slots, inverse = np.unique(of_records, return_inverse=True)
        self._runs.grow(len(self._keys))
        if taken is None:
            taken = np.zeros(len(codes), dtype=np.bool_)
        sizes, held = self._runs.gather(slots)
        before = _firsts(sizes, held, self._n)
        if len(new):
            self._codes = fill_to(self._codes, int(new.max()) + 1, 0)
            self._codes[new] = codes[~taken]
        owners = np.repeat(np.arange(len(slots)), sizes)
        entries = np.concatenate([held[::-1] if self._last else held, new])
        owners = np.concatenate([owners[::-1] if self._last else owners, inverse[~taken]])
        gone = self._retract(entries, codes[taken])
        out = entries[gone]
        entries, owners = self._sorted(entries[~gone], owners[~gone])
        sizes = np.bincount(owners, minlength=len(slots))
        self._runs.replace(slots, sizes, entries)
        return before, _firsts(sizes, entries, self._n), out

    def _retract(self, entries: Int64s, codes: Int64s) -> Bools:
        """Which entries, given in order of arrival, are taken away by retractions of `codes`."""
        gone = np.zeros(len(entries), dtype=np.bool_)
        if not len(codes):
            return gone
        wanted, counts = np.unique(codes, return_counts=True)
        mine = self._codes[entries]
        at = np.minimum(np.searchsorted(wanted, mine), len(wanted) - 1)
        candidates = np.flatnonzero(wanted[at] == mine)
        order = candidates[np.argsort(at[candidates], kind="stable")]
        groups = at[order]
        found = np.bincount(groups, minlength=len(wanted))
        if (found < counts).any():
            raise StateError(
                f"operator '{self._operator.ctx.name}', subtask {self._operator.ctx.subtask}: "
                f"{int((counts - found).clip(0).sum())} records are retracted that it does not "
                "hold: the input is no complete changelog (an upsert changelog lacks -U)"
            )
        nth = np.arange(len(order)) - bounds(found)[groups]
        gone[order[nth < counts[groups]]] = True
        return gone

    def _sorted(self, entries: Int64s, owners: Int64s) -> tuple[Int64s, Int64s]:
        """Entries in order of arrival, by owner and then order."""
        if self._last:
            entries, owners = entries[::-1], owners[::-1]
        width = self._order.width
        columns = self._rows.columns(self._order.columns, entries)
        words = self._order.of(columns, self._last).reshape(-1, width) if width else None
        keys = [] if words is None else [words[:, j] for j in reversed(range(width))]
        order = np.lexsort([*keys, owners])
        return entries[order], owners[order]

    def _shrink(self) -> None:
        """Forget keys and contents that are no more, when they are the most."""
        if isinstance(self._keys, CompositeIndex):
            live = self._runs.live()
            if len(self._keys) > 2 * len(live) + _SPARE:
                self._keys = reindexed(self._keys, self._layout.keys, live)
                self._runs.keep(live)
        if len(self._content) > 2 * len(self._rows.table) + _SPARE:
            positions = self._runs.gather(np.arange(len(self._keys)))[1]
            self._content = self._new_content()
            self._codes[positions] = self._content.upsert(self._rows.content(positions))

    def _new_content(self) -> CompositeIndex:
        layout = self._layout
        kinds = [*([] if layout.named else layout.keys.types), *layout.columns.types]
        schema = pa.schema([pa.field(f"c{i}", kind) for i, kind in enumerate(kinds)])
        return CompositeIndex(schema)


def _firsts(sizes: Int64s, entries: Int64s, n: int) -> tuple[Int64s, Int64s]:
    """The first n of each run: their bounds, and all in a row."""
    place = np.arange(len(entries)) - np.repeat(bounds(sizes)[:-1], sizes)
    return bounds(np.minimum(sizes, n)), entries[place < n]

"""Top-n over a changelog: all records of each key are kept, since any may become one of the first.

Per key there is one sorted run of positions. A batch gathers the runs of its keys, takes out what
is retracted, sorts the new ones in and compares the first n: work in proportion to the records of
the keys in the batch. A retraction takes away the first that arrived of the records equal to it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...core.errors import StateError
from ...state.key_index import CompositeIndex
from ..base import Steps
from .base import Layout, Records, TableOperator
from .differences import Differences
from .grown import bounds, fill_to, reindexed
from .kept_rows import KeptRows
from .order_words import OrderWords
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
    ) -> None:
        self._operator = operator
        self._layout = layout
        self._order = order
        self._n = n
        self._differences = differences
        self._last = last
        self._rows = KeptRows(layout, operator.ctx.keyed_state)
        self._index = CompositeIndex(layout.keys)
        self._content = self._new_content()
        self._codes = np.empty(0, dtype=np.int64)
        self._runs = Runs()
        for positions in self._rows.restored():
            codes = self._content.upsert(self._rows.content(positions))
            self._merge(self._rows.keys(positions), codes, positions, None)

    def update(self, records: Records) -> Steps:
        before, after, gone = self._take_in(records)
        yield from self._differences.emit(self._operator, self._rows, *before, *after)
        self._rows.release(gone)
        self._shrink()

    def _take_in(self, records: Records) -> Changes:
        codes = self._content.upsert(self._rows.content_of(records))
        taken = records.retracted
        rows = None if taken is None else np.flatnonzero(~taken)
        new = self._rows.add(records, rows)
        return self._merge(records.keys.columns, codes, new, taken)

    def _merge(
        self, keys: list[pa.Array], codes: Int64s, new: Int64s, taken: Bools | None
    ) -> Changes:
        """Keys and contents of records; which of them take one away (None: none); the positions of
        the others, in order of arrival."""
        slots, inverse = np.unique(self._index.upsert(keys), return_inverse=True)
        self._runs.grow(len(self._index))
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
        live = self._runs.live()
        if len(self._index) > 2 * len(live) + _SPARE:
            self._index = reindexed(self._index, self._layout.keys, live)
            self._runs.keep(live)
        if len(self._content) > 2 * len(self._rows.table) + _SPARE:
            positions = self._runs.gather(np.arange(len(self._index)))[1]
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

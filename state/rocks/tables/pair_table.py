"""Pairs of key and value, and a head per key, of which any may lie in RocksDB.

A head is the row of its key with no value, so it lies beside its pairs. In memory it links to the
first of its pairs there, which link to each other; it leaves after them, for its slot says whose
they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core.arrays import Bools, Int64s, Slots
from ....core.growing import Growing
from ....core.taking import null_array
from ..database.layouts import Pair
from .slot_rows import pieces
from .slot_table import LOADED, PIECE_BYTES, ColdSlotTable

PAIRS: Final = "pairs"
"""Of a head, how many pairs its key has; -1 of a pair."""

LINKS = 20
"""Bytes per slot of what links pairs."""


def is_head(row: bytes) -> bool:
    """Whether a row, which begins with `PAIRS`, is a head's."""
    return row[7] < 0x80


class PairTable(ColdSlotTable):
    """Invariants: a live pair's head is live; `_held` of a head is the number of its live pairs;
    each pair that has a slot, live or not, is linked to its head once."""

    _owner: Growing
    """Per pair, its head; -1 of heads."""
    _link: Growing
    """See `KeyedValuesFace.links`."""
    _held: Growing
    """Per head, how many of its pairs are in memory."""

    def begin(self) -> None:
        """Once, before all else."""
        self._owner, self._link = Growing("int64", -1), Growing("int64", -1)
        self._held = Growing("int32", 0)
        self._width += LINKS

    @property
    def links(self) -> Int64s:
        links: Int64s = self._link.array
        return links

    def heads(self, keys: list[pa.Array]) -> Slots:
        """The heads of these keys, of storage types."""
        slots = self._bring([*keys, self._no_values(len(keys[0]))])
        counts = self._numbers.array(PAIRS)
        counts[slots[counts[slots] < 0]] = 0  # those that are new
        return slots

    def find_heads(self, keys: list[pa.Array]) -> Slots:
        """The same, -1 where there is none."""
        columns = [*keys, self._no_values(len(keys[0]))]
        return self.find(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def pairs(self, heads: Slots, values: pa.Array) -> Slots:
        """Of these heads, with values of the storage type."""
        before = len(self._index)
        slots = self._bring([*self._index.take(heads)[:-1], values])
        self._owner.array[slots] = heads
        new = np.arange(before, len(self._index))
        self._chain(new)
        back = np.concatenate([new, self._back])
        np.add.at(self._held.array, self._owner.array[back], 1)
        return slots

    def values(self, pairs: Slots) -> pa.Array:
        return self._index.take(pairs)[-1]

    def keys_of(self, slots: Slots) -> list[pa.Array]:
        return self._index.take(slots)[:-1]

    def owners(self, pairs: Slots) -> Slots:
        owners: Slots = self._owner.array[pairs]
        return owners

    def elsewhere(
        self, under: Iterable[Iterator[Pair]]
    ) -> Iterator[tuple[list[bytes], Slots, pa.Array, npt.NDArray[Any]]]:
        """Of these rows in RocksDB, of keys whose heads are here, those of pairs that have no
        slots: where they lie, heads, values and numbers. In pieces."""
        found = (pair for pair in chain.from_iterable(under) if not is_head(pair[1]))
        rows = self._state.rows
        for piece in pieces(found, LOADED, PIECE_BYTES):
            places, packed = [place for place, _ in piece], [row for _, row in piece]
            columns = rows.keys_in(places, packed, self._name)
            away = np.flatnonzero(~self.holds(columns))
            if len(away):
                at = pa.array(away)
                columns = [column.take(at) for column in columns]
                owners = self._index.find([*columns[:-1], self._no_values(len(away))])
                numbers = rows.unpacked([packed[row] for row in away.tolist()])
                yield [places[row] for row in away.tolist()], owners, columns[-1], numbers

    def away(self, heads: Slots) -> Slots:
        """Those of these heads that have pairs in RocksDB alone."""
        more = self._numbers.array(PAIRS)[heads] > self._held.array[heads]
        return heads[more]

    def unwritten(self) -> Slots:
        """Rows that RocksDB does not hold as they are."""
        return np.flatnonzero(self._written.array[: len(self._index)])

    def write_out(self, slots: Slots) -> list[Pair]:
        """What is to be put into RocksDB so that it holds these rows as they are."""
        places, rows = self._packed(slots, {})
        self._written.array[slots] = False
        self._older.array[slots] = True
        return list(zip(places, rows, strict=True))

    def validate(self) -> None:
        super().validate()
        count = len(self._index)
        owners, live = self._owner.array[:count], self._live(0, count)
        pairs = np.flatnonzero(live & (owners >= 0))
        assert live[owners[pairs]].all()
        held = np.bincount(owners[pairs], minlength=count)
        assert (held == self._held.array[:count]).all()
        counts = self._numbers.array(PAIRS)[:count]
        assert (counts[pairs] == -1).all()
        heads = np.flatnonzero(live & (owners < 0))
        assert (counts[heads] >= held[heads]).all()
        linked: list[int] = []
        for head in np.flatnonzero(owners < 0).tolist():
            at = int(self._link.array[head])
            while at >= 0:
                assert owners[at] == head
                linked.append(at)
                at = int(self._link.array[at])
        assert sorted(linked) == np.flatnonzero(owners >= 0).tolist()

    def _bring(self, columns: list[pa.Array]) -> Slots:
        """Slots of these rows, from RocksDB where they lie there; those that are new are to be
        written, of the others whatever is touched."""
        before = len(self._index)
        slots = self._upsert(columns)
        new = np.concatenate([np.arange(before, len(self._index)), self._back])
        self._written.array[new] = True
        if self.groups and len(new):
            self._load(new)
            self._written.array[new[self._older.array[new]]] = False
        return slots

    def _upsert(self, columns: list[pa.Array]) -> Slots:
        slots = super()._upsert(columns)
        for links in (self._owner, self._link, self._held):
            links.reserve(len(self._index))
        return slots

    def _chain(self, new: Slots) -> None:
        """Link these pairs, which are not linked yet."""
        if not len(new):
            return
        links, owners = self._link.array, self._owner.array[new]
        order = np.argsort(owners, kind="stable")
        new, owners = new[order], owners[order]
        first = np.ones(len(new), dtype=np.bool_)
        first[1:] = owners[1:] != owners[:-1]
        last = np.append(first[1:], True)
        links[new[~first]] = new[:-1][~first[1:]]
        links[new[first]] = links[owners[first]]
        links[owners[last]] = new[last]

    def _live(self, start: int, stop: int) -> Bools:
        """Which of these slots have rows."""
        return super()._may_leave(start, stop)

    def _may_leave(self, start: int, stop: int) -> Bools:
        may: Bools = self._live(start, stop) & (self._held.array[start:stop] == 0)
        return may

    def _leave(self, slots: Slots) -> None:
        super()._leave(slots)
        owners = self._owner.array[slots]
        np.subtract.at(self._held.array, owners[owners >= 0], 1)

    def _renumber(self) -> Slots:
        moved = super()._renumber()
        live = np.flatnonzero(moved >= 0)
        owners = self._owner.array[live]
        owners = np.where(owners < 0, -1, moved[owners])
        self._owner = Growing.over(owners, -1)
        self._held = Growing.over(self._held.array[live], 0)
        self._link = Growing.over(np.full(len(live), -1, np.int64), -1)
        self._chain(np.flatnonzero(owners >= 0))
        return moved

    def _no_values(self, count: int) -> pa.Array:
        return null_array(count, self._types[-1])

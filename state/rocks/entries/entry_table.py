"""Entries of keys of which some lie in RocksDB: see `state.away` for what the operator does.

Rows are in the task's database, whose files incremental checkpoints have, so a key that left and is
not touched is not written again. When each is due says a second database, which none has (`dues`).
What comes back is deleted there: RocksDB holds just the keys that are away. Deletes wait while the
files of a checkpoint are still to be linked.

Which keys leave says a clock: a hand goes over their numbers, and takes those that were not asked
for since it came by last, nor again since they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa

from ....core.arrays import Bools, Slots
from ....core.elements import MAX_TIMESTAMP
from ....core.errors import StateError
from ....core.growing import Growing
from ...away import AwayEntries, Brought, Due, Entries, first_due
from ...change_bits import Bits
from ...entry_table import EntryFreeze, MemoryEntryTable
from ...increments import Since
from ...live_keys import LiveKeys
from ...stored import AccColumn, StateTable
from ...whole import Freeze
from ..database.clock_hand import ClockHand
from ..database.freeze import PieceFreeze
from ..database.layouts import Layout, Pair, tables_of
from ..database.rows_database import RowsDatabase
from ..database.task_database import DatabaseView, TaskDatabase
from ..tables.slot_rows import SlotRows
from .dues import Dues
from .entry_rows import (
    counts_of,
    cut,
    entries_in,
    fill_entries,
    flat_columns,
    owned_layout,
    pieces_of,
)

PIECE = 1 << 16
"""So many entries that are restored, or keys that leave, are in hand at once."""

LIVE = 2 / 3
"""How much of what fits into memory are entries in use; the rest is room for those of a batch."""

FEW = 16
"""So many keys at least come back at once because they are due."""

_BESIDE = 9
"""Bytes per key beside its number: where its entries begin, and a mark."""


_KEY = 64
"""Bytes of a key of which nothing is known yet, about."""


class ColdEntryTable(MemoryEntryTable, AwayEntries):
    """See the module. `database`: the task's; `beside`: for what no checkpoint has."""

    def __init__(
        self,
        name: str,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        owner: str,
        due: Due,
        database: TaskDatabase,
        beside: RowsDatabase,
        max_parallelism: int,
    ) -> None:
        super().__init__(name, keys, columns, owner)
        self._due = due
        self._database = database
        flat = flat_columns(columns, owner)
        self._layout = owned_layout(self._keys.kept, flat)
        prefix, here = database.new_state(name, "entries", self._layout)
        kept = self._keys.kept
        self._rows = SlotRows(prefix, kept, flat, len(kept), max_parallelism)
        self._dues = Dues(name, beside)
        self.spilled = self.loaded = 0
        """Keys written to RocksDB, and read from it, so far."""
        self._away = 0
        """Keys that are away."""
        self._asked = Growing("bool", 0)
        """Per key, whether it was asked for again since it came, and since the hand came by."""
        self._hand = ClockHand()
        self._deletes: dict[bytes, None] = {}
        """Places of keys that came back."""
        self._entry = sum(np.dtype(column.dtype).itemsize for column in columns)
        database.budget.join(self)
        if here:
            self._adopt()

    @property
    def away(self) -> AwayEntries:
        return self

    @property
    def keys_away(self) -> int:
        return self._away

    @property
    def soonest(self) -> int:
        return self._dues.soonest if self._away else MAX_TIMESTAMP

    @property
    def used(self) -> int:
        """Bytes in memory. Other threads ask, too."""
        return self._keys.nbytes + _BESIDE * len(self._keys) + self._entry * len(self)

    def numbers(self, keys: pa.RecordBatch) -> Slots:
        before = len(self._keys)
        numbers = super().numbers(keys)
        self._mark()
        self._asked.array[numbers] = True
        self._asked.array[before : len(self._keys)] = False
        return numbers

    def take(self, numbers: Slots) -> Brought:
        if not self._away or not len(numbers):
            return self._none()
        keys = self._keys.take_kept(numbers)
        groups = self._rows.groups(keys)
        order = self._rows.order(keys, groups)
        at = pa.array(order)
        places = self._rows.places([key.take(at) for key in keys], 0, groups[order])
        found = self._get(places)
        pairs = [(p, row) for p, row in zip(places, found, strict=True) if row is not None]
        there = (
            order[[at for at, row in enumerate(found) if row is not None]] if pairs else order[:0]
        )
        brought, dues = self._brought(numbers[there], pairs)
        self._dues.remove([place[2:] for place, _ in pairs], dues)
        return brought

    def bound(self, after: int, until: int) -> int:
        limit = self._database.budget.limit(self)
        most = int(limit * LIVE) // (2 * (self._entry + _BESIDE))
        return self._dues.nth(max(most, FEW), after, until)

    def take_due(self, until: int) -> Brought:
        parts = [self._none()]
        for rests in self._dues.until(until) if self._away else ():
            places = sorted([self._rows.prefix + rest for rest in rests])
            pairs = [
                (place, row)
                for place, row in zip(places, self._get(places), strict=True)
                if row is not None
            ]
            if len(pairs) < len(places):
                raise StateError(
                    f"entries '{self._name}': {len(places) - len(pairs)} of {len(places)} keys are "
                    "not in the local RocksDB, where they were put: the task's local files were "
                    "changed by somebody else; restart the job from its last checkpoint"
                )
            keys = pa.RecordBatch.from_arrays(self._rows.keys(places), schema=self._keys.kept)
            numbers = self._keys.numbers(keys)
            self._mark()
            parts.append(self._brought(numbers, pairs)[0])
        return Brought(
            np.concatenate([part.owners for part in parts]),
            np.concatenate([part.entries for part in parts]),
        )

    def put(self, slots: Slots, brought: Brought) -> None:
        self.touch(slots)
        fill_entries(self._numbers.columns, self._arrays(), slots, brought.entries)
        self._owners()[slots] = brought.owners

    def leaving(self, keys: int, entries: int) -> int:
        limit = self._database.budget.limit(self)
        if self._database.waits(self.used, limit):
            return 0
        self._delete()
        if not keys or (self.used <= limit and not self.spilled):
            return 0
        known = max(len(self._keys), 1)
        each = self._entry * entries / keys + 2 * (self._keys.nbytes / known + _BESIDE)
        return max(0, keys - int(LIVE * limit / each))

    def idle(self, most: int, may_leave: Callable[[int, int], Bools]) -> Slots:
        return self._hand.take(most, len(self._keys), self._asked.array, may_leave)

    def leave(self, numbers: Slots, slots: Slots) -> None:
        for some, held in _parts(numbers, slots, self._owners()):
            entries = entries_in(
                self._numbers.columns, self._arrays(), held, self._rows.blank(len(held))
            )
            self._send(self._keys, some, self._owners()[held], entries)
        self._asked.array[numbers] = False

    def sparse(self, keys: int, entries: int) -> bool:
        gone = 4 * entries < 3 * len(self) or 4 * keys < 3 * len(self._keys)
        return gone and self.used > self._database.budget.limit(self)

    def compact(self, slots: Slots) -> None:
        owners = self._owners()[slots]
        kept = np.unique(owners)
        self._numbers = self._numbers.gather(slots)
        self._size = len(slots)
        self._changes.renumbered()
        self._owners()[: len(slots)] = np.searchsorted(kept, owners)
        self._keys.keep(kept)
        self._keep_marks(kept)

    def tidy_owners(self, used: int, live: Callable[[], Slots]) -> Slots | None:
        moved = super().tidy_owners(used, live)
        if moved is not None:
            self._keep_marks(np.flatnonzero(moved >= 0))
        return moved

    def freeze(self, name: str, changes: tuple[Bits, int] | None = None) -> ColdEntryFreeze:
        self._delete()
        hot = super().freeze(name, changes)
        view = None if self._database.by_files or not self._away else self._database.view()
        return ColdEntryFreeze(
            hot.name,
            hot.owner,
            hot.keys,
            hot.owners,
            hot.stored,
            hot.numbers,
            hot.values,
            hot.changes,
            hot.layer,
            prefix=self._rows.prefix,
            layout=self._layout,
            view=view,
        )

    def freeze_since(self, name: str, since: Since) -> tuple[Freeze, bool]:
        """What changed in memory, where the checkpoint has RocksDB's files as they are right after
        this, or nothing is away: entries that left count as removed."""
        self._delete()
        if self._away and not self._database.by_files:
            return self.freeze(name), False
        return super().freeze_since(name, since)

    def shown(self) -> Callable[[], Iterable[bytes]]:
        """Places in RocksDB whose rows do not count: there are none."""
        return tuple

    def restore(self, tables: Iterable[StateTable]) -> None:
        limit = self._database.budget.limit(self)
        for table in tables:
            for piece in pieces_of(table, PIECE):
                more = piece.data.num_rows * (self._entry + _KEY)
                if self.used + more <= LIVE * limit or not self._restored_away(piece):
                    super().restore([piece])
                    self._mark()

    def close(self) -> None:
        self._database.budget.leave(self)

    def validate(self) -> None:
        """Assert the invariants."""
        pairs = [pair for pair in self._stored() if pair[0] not in self._deletes]
        assert len(pairs) == self._away
        keys = self._rows.keys([place for place, _ in pairs])
        if pairs:
            here = self._keys.find(keys)
            owners = self._owners()[: len(self)]
            assert not np.isin(here[here >= 0], owners).any()
        dues = sorted(zip(self._dues_of([row for _, row in pairs]).tolist(), pairs, strict=True))
        assert self._dues.listed() == [(due, place[2:]) for due, (place, _) in dues]
        assert not dues or self.soonest <= dues[0][0]

    def _adopt(self) -> None:
        """What came with files is away."""
        found = self._stored()
        while piece := list(islice(found, PIECE)):
            self._away += len(piece)
            self._dues.add([p[2:] for p, _ in piece], self._dues_of([row for _, row in piece]))

    def _restored_away(self, piece: StateTable) -> bool:
        """Whether these entries could be put into RocksDB: not where some of their keys have others
        in memory."""
        keys, columns, owner = self._declared
        table = MemoryEntryTable(self._name, keys, columns, owner)
        table.restore([piece])
        every = np.arange(len(table._keys))
        kept = table._keys.take_kept(every)
        if (self._keys.find(kept) >= 0).any():
            return False
        held = np.arange(len(table))
        arrays = {column.name: table.column(column.name) for column in columns}
        entries = entries_in(columns, arrays, held, self._rows.blank(len(held)))
        self._send(table._keys, every, table._owners()[held], entries)
        return True

    def _send(self, known: LiveKeys, numbers: Slots, owners: Slots, entries: Entries) -> None:
        """Into RocksDB, where none of these keys is, with all of their entries, which are these."""
        keys = known.take_kept(numbers)
        groups = self._rows.groups(keys)
        order = self._rows.order(keys, groups)
        at = pa.array(order)
        places = self._rows.places([key.take(at) for key in keys], 0, groups[order])
        rank = np.empty(int(numbers.max()) + 1, dtype=np.int64)
        rank[numbers[order]] = np.arange(len(numbers))
        ranks = rank[owners]
        entries = entries[np.argsort(ranks, kind="stable")]
        counts = np.bincount(ranks, minlength=len(numbers))
        rows, dues = cut(entries, counts), first_due(self._due(entries), counts)
        for place in places if self._deletes else ():
            self._deletes.pop(place, None)
        self._database.write([], list(zip(places, rows, strict=True)))
        self._dues.add([place[2:] for place in places], dues)
        self._away += len(places)
        self.spilled += len(places)

    def _brought(self, numbers: Slots, pairs: list[Pair]) -> tuple[Brought, Slots]:
        """These keys are away no longer; when each was due."""
        data = [row for _, row in pairs]
        counts = counts_of(self._rows, data)
        entries = self._rows.unpacked(data)
        self._deletes.update(dict.fromkeys(place for place, _ in pairs))
        self._away -= len(pairs)
        self.loaded += len(pairs)
        return Brought(np.repeat(numbers, counts), entries), first_due(self._due(entries), counts)

    def _none(self) -> Brought:
        return Brought(np.empty(0, np.int64), self._rows.blank(0))

    def _dues_of(self, rows: list[bytes]) -> Slots:
        return first_due(self._due(self._rows.unpacked(rows)), counts_of(self._rows, rows))

    def _get(self, places: list[bytes]) -> list[bytes | None]:
        found = self._database.get_many(places)
        if not self._deletes:
            return found
        gone = self._deletes
        return [None if place in gone else row for place, row in zip(places, found, strict=True)]

    def _stored(self) -> Iterator[Pair]:
        return self._database.scan(self._rows.prefix)

    def _delete(self) -> None:
        if self._deletes:
            deletes, self._deletes = self._deletes, {}
            self._database.write(list(deletes), [])

    def _arrays(self) -> dict[str, np.ndarray]:
        return {c.name: self._numbers.array(c.name) for c in self._numbers.columns}

    def _mark(self) -> None:
        self._asked.reserve(len(self._keys))

    def _keep_marks(self, kept: Slots) -> None:
        """Only these keys are known any more, numbered in this order."""
        self._asked = Growing.over(self._asked.array[kept], 0)
        self._hand.moved(kept)


@dataclass(frozen=True, kw_only=True)
class ColdEntryFreeze(EntryFreeze, PieceFreeze):
    """A point in time of entries, in memory and in RocksDB."""

    prefix: bytes
    layout: Layout
    view: DatabaseView | None

    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        if self.view is not None:
            pairs = self.view.scan(self.prefix)
            yield from tables_of(self.name, "entries", self.layout, pairs, max_parallelism)
        table = self.table(max_parallelism)
        if table is not None:
            yield table


def _parts(numbers: Slots, slots: Slots, owners: Slots) -> Iterator[tuple[Slots, Slots]]:
    """Some keys at a time, with their slots."""
    if len(numbers) <= PIECE:
        yield numbers, slots
        return
    held = owners[slots]
    for start in range(0, len(numbers), PIECE):
        some = numbers[start : start + PIECE]
        yield some, slots[np.isin(held, some)]

"""Entries of keys of which some lie in RocksDB: see `state.away` for what the operator does.

Rows are in the task's database, whose files incremental checkpoints have, so a key that left and is
not touched is not written again. When each is due says a second database, which none has (`dues`).
What comes back is deleted there: RocksDB holds just the keys that are away. Deletes wait while the
files of a checkpoint are still to be linked.

Which keys leave says a clock: a hand goes over their numbers, and takes those that were not asked
for since it came by last, nor again since they came.

Values under codes leave with their entries, and get new codes when these come back. Keys that are
objects are found by their bytes; the code of one that is away is forgotten with its number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa

from ....core.arrays import Bools, Slots
from ....core.elements import MAX_TIMESTAMP
from ....core.errors import StateError
from ....core.growing import Growing
from ...away import AwayEntries, Brought, Due, never
from ...change_bits import Bits
from ...entry_table import MemoryEntryTable
from ...increments import Since
from ...key_types import one_of_each
from ...object_keys import ObjectKeyType
from ...stored import AccColumn, StateTable
from ...value_store import MakeStores
from ...whole import Freeze
from ..database.clock_hand import ClockHand
from ..database.layouts import Pair, tables_of
from ..database.rows_database import RowsDatabase
from ..database.task_database import TaskDatabase
from .dues import Dues, NoDues
from .entry_forms import Owned
from .entry_freeze import ColdEntryFreeze
from .entry_rows import fill_entries, pieces_of
from .key_pickles import KeyPickles
from .packing import Packing, parts

PIECE, PIECE_BYTES = 1 << 16, 16 << 20
"""So many entries that are restored, or keys that leave, are in hand at once, or so many bytes of
them where there are values."""

LIVE = 2 / 3
"""How much of what fits into memory are entries in use; the rest is room for those of a batch."""

FEW = 16
"""So many keys at least come back at once because they are due."""

AT_ONCE = 16
"""Of so many keys with values one leaves, or none: to forget values is to look at all there are."""

_BESIDE = 9
"""Bytes per key beside its number: where its entries begin, and a mark."""

_OBJECT = 200
"""Bytes of a key that is an object: a guess, as of `ObjectKeys.nbytes`."""

_KEY = 64
"""Bytes of a key of which nothing is known yet, about."""


class ColdEntryTable(MemoryEntryTable, AwayEntries):
    """See the module. `database`: the task's; `beside`: for what no checkpoint has. `values`: of
    which all have bytes."""

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
        values: MakeStores | None = None,
    ) -> None:
        super().__init__(name, keys, columns, owner, values)
        self._database = database
        self._packing = Packing(name, keys, columns, owner, values or {}, due)
        layout = self._packing.layout
        self._prefix, here = database.new_state(name, "entries", layout)
        self._packing.under(self._prefix, max_parallelism)
        self._max_parallelism = max_parallelism
        kind = keys.types[0]
        self._objects = kind.keys if isinstance(kind, ObjectKeyType) else None
        """What codes of keys stand for; None: keys are columns."""
        self._pickles = self._packing.pickles(self)
        self._dues = NoDues() if due is never else Dues(name, beside)
        self.spilled = self.loaded = 0
        """Keys written to RocksDB, and read from it, so far."""
        self._away = self._away_bytes = 0
        """Keys that are away, and bytes of their rows."""
        self._asked = Growing("bool", 0)
        """Per key, whether it was asked for again since it came, and since the hand came by."""
        self._hand = ClockHand()
        self._deletes: dict[bytes, None] = {}
        """Places of keys that came back."""
        self._entry = sum(np.dtype(column.dtype).itemsize for column in columns)
        self._beside = _BESIDE + (0 if self._objects is None else _OBJECT)
        self._each = float("inf")
        """Bytes of a key's values, as far as is known: when nothing else was in the stores."""
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
        keys = self._keys.nbytes + self._beside * len(self._keys)
        return keys + self._entry * len(self) + self._value_bytes

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
        numbers, places = self._packing.places(self, numbers)
        found = self._get(places)
        there = np.array([row is not None for row in found], dtype=np.bool_)
        pairs = [(p, row) for p, row in zip(places, found, strict=True) if row is not None]
        owned = self._packing.read([row for _, row in pairs])
        self._dues.remove([place[2:] for place, _ in pairs], self._packing.dues(owned))
        return self._brought(numbers[there], pairs, owned)

    def bound(self, after: int, until: int) -> int:
        limit, each = self._database.budget.limit(self), 2 * (self._entry + self._beside)
        if self.stores:
            each += 2 * self._away_bytes // max(self._away, 1)
        return self._dues.nth(max(int(limit * LIVE) // each, FEW), after, until)

    def take_due(self, until: int) -> Brought:
        brought = [self._none()]
        for rests in self._dues.until(until) if self._away else ():
            places = sorted([self._prefix + rest for rest in rests])
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
            owned = self._packing.read([row for _, row in pairs])
            numbers = self._keys.numbers(self._packing.keys(places, owned))
            self._mark()
            brought.append(self._brought(numbers, pairs, owned))
        return Brought(
            np.concatenate([part.owners for part in brought]),
            np.concatenate([part.entries for part in brought]),
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
        if self.stores and self.used > limit:
            self._forget_values(keys)
        if not keys or (self.used <= limit and not self.spilled):
            return 0
        known = max(len(self._keys), 1)
        each = self._entry * entries / keys + 2 * (self._keys.nbytes / known + self._beside)
        if self.stores:
            each += min(self._each, self._value_bytes / keys)
        count = max(0, keys - int(LIVE * limit / each))
        return max(count, keys // AT_ONCE) if self.stores and count else count

    def idle(self, most: int, may_leave: Callable[[int, int], Bools]) -> Slots:
        count, asked = len(self._keys), self._asked.array
        if self._pickles is None:
            return self._hand.take(most, count, asked, may_leave)
        found = self._hand.take(most, count, asked, self._pickles.but_those(may_leave))
        return self._pickles.movable(self._keys, found)

    def leave(self, numbers: Slots, slots: Slots) -> None:
        self._send(self, numbers, slots, self._owners(), self._pickles)
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
        self._forget_values(len(kept))

    def tidy_owners(self, used: int, live: Callable[[], Slots]) -> Slots | None:
        moved = super().tidy_owners(used, live)
        if moved is not None:
            self._keep_marks(np.flatnonzero(moved >= 0))
        return moved

    def freeze(self, name: str, changes: tuple[Bits, int] | None = None) -> ColdEntryFreeze:
        self._delete()
        hot = super().freeze(name, changes)
        view = None if self._database.by_files or not self._away else self._database.view()
        return ColdEntryFreeze.of(hot, self._prefix, self._packing.layout, view)

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
            rows, most = table.data.num_rows, PIECE
            if self.stores:
                most = max(1, min(most, PIECE_BYTES * rows // max(table.data.nbytes, 1)))
            for piece in pieces_of(table, most):
                more = piece.data.num_rows * (self._entry + _KEY)
                more += piece.data.nbytes if self.stores else 0
                if self.used + more > LIVE * limit:
                    piece = self._restored_away(piece)
                if piece.data.num_rows:
                    super().restore([piece])
                    self._mark()

    def close(self) -> None:
        self._database.budget.leave(self)

    def validate(self) -> None:
        """Assert the invariants."""
        pairs = [pair for pair in self._stored() if pair[0] not in self._deletes]
        assert len(pairs) == self._away
        rows = [row for _, row in pairs]
        assert sum(map(len, rows)) == self._away_bytes
        if pairs:
            of = self._name, "entries", self._packing.layout, pairs, self._max_parallelism
            parted = [self._packing.apart(table) for table in tables_of(*of)]
            here = np.concatenate([self._here(table) for table in parted])
            owners = self._owners()[: len(self)]
            assert not np.isin(here[here >= 0], owners).any()
        self._dues.validate([place[2:] for place, _ in pairs], self._packing.dues_of(rows))

    def _adopt(self) -> None:
        """What came with files is away."""
        found = self._stored()
        while piece := list(islice(found, PIECE)):
            self._away += len(piece)
            self._away_bytes += sum(len(row) for _, row in piece)
            dues = self._packing.dues_of([row for _, row in piece])
            self._dues.add([place[2:] for place, _ in piece], dues)

    def _restored_away(self, piece: StateTable) -> StateTable:
        """Put these entries into RocksDB; what is left of them, which has to be in memory: of keys
        that have others there, or cannot lie elsewhere."""
        table = self._packing.apart(piece)
        pickles = self._packing.pickles(table)
        numbers = np.flatnonzero(self._here(table) < 0)
        if pickles is not None:
            numbers = pickles.movable(table.known, numbers)
        owners = table._owners()[: len(table)]
        goes = np.isin(owners, numbers)
        self._send(table, numbers, np.flatnonzero(goes), owners, pickles)
        if self._objects is not None:  # of what types keys are is to be known
            self._objects.column(one_of_each(self._packing.held(table)))
        return replace(piece, data=piece.data.filter(pa.array(~goes)))

    def _here(self, table: MemoryEntryTable) -> Slots:
        """The numbers here of a table's keys, -1 for those that have none."""
        if self._objects is None:
            return self._keys.find(table.known.take_kept(np.arange(table.owners)))
        return self._keys.find([pa.array(self._objects.find(self._packing.held(table)))])

    def _send(
        self,
        table: MemoryEntryTable,
        numbers: Slots,
        slots: Slots,
        owners: Slots,
        pickles: KeyPickles | None,
    ) -> None:
        """Put these keys of a table into RocksDB, where none of them is, with all their entries,
        which are in these slots. `owners`: of all slots."""
        most, values = PIECE, sum([store.nbytes for store in table.stores.values()])
        if values and len(slots):
            entries = max(PIECE_BYTES * len(table) // values, 1)
            most = max(1, min(most, entries * len(numbers) // len(slots)))
        for some, held, whose in parts(numbers, slots, owners, most):
            if not len(some):
                continue
            packed = self._packing.packed(table, some, held, whose, pickles)
            for place in packed.places if self._deletes else ():
                self._deletes.pop(place, None)
            self._database.write([], list(zip(packed.places, packed.rows, strict=True)))
            self._dues.add([place[2:] for place in packed.places], packed.dues)
            self._away += len(some)
            self._away_bytes += sum([len(row) for row in packed.rows])
            self.spilled += len(some)

    def _brought(self, numbers: Slots, pairs: list[Pair], owned: Owned) -> Brought:
        """These keys are away no longer."""
        self._deletes.update(dict.fromkeys([place for place, _ in pairs]))
        self._away -= len(pairs)
        self._away_bytes -= sum([len(row) for _, row in pairs])
        self.loaded += len(pairs)
        entries = self._packing.entries(owned, self.stores)
        return Brought(np.repeat(numbers, owned.counts), entries)

    def _none(self) -> Brought:
        return Brought(np.empty(0, np.int64), self._packing.blank(0))

    def _forget_values(self, keys: int) -> None:
        """Have no values but those of entries in memory, of so many keys."""
        if not self.stores:
            return
        self._numbers.touch_all(changed=False)
        for name, store in self.stores.items():
            store.compact(self.column(name)[: len(self)])
        self._each = self._value_bytes / max(keys, 1)

    @property
    def _value_bytes(self) -> int:
        """Of all values, those that nobody needs any more included."""
        return sum([store.nbytes for store in list(self.stores.values())])

    def _get(self, places: list[bytes]) -> list[bytes | None]:
        found = self._database.get_many(places)
        if not self._deletes:
            return found
        gone = self._deletes
        return [None if place in gone else row for place, row in zip(places, found, strict=True)]

    def _stored(self) -> Iterator[Pair]:
        return self._database.scan(self._prefix)

    def _delete(self) -> None:
        if self._deletes:
            deletes, self._deletes = self._deletes, {}
            self._database.write(list(deletes), [])

    def _arrays(self) -> dict[str, np.ndarray]:
        return {c.name: self._numbers.array(c.name) for c in self._numbers.columns}

    def _mark(self) -> None:
        self._asked.reserve(len(self._keys))
        if self._pickles is not None:
            self._pickles.reserve(len(self._keys))

    def _keep_marks(self, kept: Slots) -> None:
        """Only these keys are known any more, numbered in this order."""
        self._asked = Growing.over(self._asked.array[kept], 0)
        self._hand.moved(kept)
        if self._pickles is not None:
            self._pickles.keep(kept)

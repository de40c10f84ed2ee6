"""A slot table of which rows may lie in RocksDB: those in use have slots.

Only for operators that ask for the slots of each batch anew (`KeyedStateBackend.table`, `cold`).
Keys that are new to a batch are looked for in RocksDB, all at once, and their numbers put into
their new slots.

A row that leaves is released, as if its key had gone; if it was written since it came, it is put
into RocksDB first. So the table's record of changes knows that it left, and slots stay as they are
until the dead ones take too much room. Which rows leave says a clock: a hand goes over the slots,
and takes those that were not asked for since it came by last, nor again since they came.

What RocksDB holds of a key that has a slot is older, or the same, and does not count (`_older`).

Values under codes leave with the row, and get new codes when it comes back. What they leave behind
in their stores goes when the table is made smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core.arrays import Bools, Slots
from ....core.batch import take_column
from ....core.growing import Growing
from ...object_keys import STORED
from ...slot_encoding import DEAD
from ...slot_table import MemorySlotTable
from ...stored import AccColumn
from ...value_store import Stores, Values
from ..database.clock_hand import ClockHand
from .key_columns import plain_column
from .object_rows import PICKLE
from .slot_rows import SlotRows, pieces
from .valued_rows import new_codes

LOADED = 1 << 16
"""So many rows of a namespace are read at once where all are needed."""

_FLAGS = 5
"""Bytes per slot beside its numbers."""

_OBJECT = 200
"""Bytes of a key that is an object: a guess, as of `ObjectKeys.nbytes`."""

PIECE_BYTES = 4 << 20
"""So many bytes of rows are made or read at once, about."""


class ColdRows(Protocol):
    """What a table asks of the state that it is one of: its rows in RocksDB."""

    rows: SlotRows
    loaded: int
    """Rows read from RocksDB so far."""

    def get(self, places: list[bytes]) -> list[bytes | None]:
        """The rows that lie there."""

    def stored(self, group: int, namespace: int) -> Iterator[tuple[bytes, bytes]]:
        """What RocksDB holds of a namespace and a key group, and where."""

    def delete(self, places: Iterable[bytes]) -> None:
        """In RocksDB; no later than the next batch begins."""


class ColdSlotTable(MemorySlotTable):
    """The rows in use of one namespace."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        columns: Sequence[AccColumn],
        room: int,
        state: ColdRows,
        namespace: int,
        stores: Stores | None = None,
    ) -> None:
        super().__init__(name, schema, columns, room, stores)
        self._state = state
        self.namespace = namespace
        self.groups: set[int] = set()
        """Key groups of which RocksDB may hold rows."""
        self._used = Growing("bool", 0)
        """Per slot, whether it was asked for again since it came, and since the hand came by."""
        self._written = Growing("bool", 0)
        """Per slot, whether RocksDB does not hold its row as it is."""
        self._older = Growing("bool", 0)
        """Per slot, whether RocksDB holds a row of its key."""
        self._hand = ClockHand()
        self._back: Slots = _NONE
        """Slots that the last `upsert` found dead."""
        self._stays = Growing("bool", 0)
        """Per slot, whether its key, an object, cannot be put into RocksDB."""
        self._width = sum(np.dtype(column.dtype).itemsize for column in columns) + _FLAGS
        if state.rows.of_objects:
            self._width += _OBJECT
        self._each = float("inf")
        """Bytes of a row's values, as far as is known: when nothing else was in the stores."""

    @property
    def live(self) -> int:
        """Rows in memory."""
        return len(self._index) - self._gone

    @property
    def used(self) -> int:
        """Bytes in memory."""
        return self._index.nbytes + self._width * len(self._index) + self._value_bytes

    def bytes_for(self, rows: int) -> int:
        """Bytes of so many rows that are like these."""
        return self._index.bytes_for(rows) + self._width * rows + int(self.each * rows)

    @property
    def each(self) -> float:
        """Bytes of a row's values, about."""
        return min(self._each, self._value_bytes / max(self.live, 1)) if self.stores else 0.0

    def piece(self, most: int) -> int:
        """How many rows are to leave at once, `most` at most."""
        return max(1, min(most, PIECE_BYTES * self.live // max(self._value_bytes, 1)))

    def upsert(self, columns: list[pa.Array]) -> Slots:
        before = len(self._index)
        slots = self._upsert(columns)
        self._written.array[slots] = True
        if self.groups:
            new = np.concatenate([np.arange(before, len(self._index)), self._back])
            if len(new):
                self._load(new)
        return slots

    def find(self, keys: pa.RecordBatch) -> Slots:
        slots = super().find(keys)
        self._used.array[slots[slots >= 0]] = True
        missing = np.flatnonzero(slots < 0)
        if not self.groups or not len(missing):
            return slots
        pairs = zip(self._columns(keys), self._state.rows.kinds, strict=True)
        columns = [
            plain_column(take_column(column, pa.array(missing)), kind) for column, kind in pairs
        ]
        placed = self._state.rows.placed(columns)
        if placed is not None and not placed.all():
            rows_placed = np.flatnonzero(placed)
            missing, at = missing[rows_placed], pa.array(rows_placed)
            columns = [column.take(at) for column in columns]
        data = self._state.get(self._state.rows.places(columns, self.namespace))
        there = np.flatnonzero([row is not None for row in data])
        if len(there):
            some = [column.take(pa.array(there)) for column in columns]
            rows = [row for row in data if row is not None]
            slots[missing[there]] = self._take_in(some, rows)
        return slots

    def recall(self, keys: pa.RecordBatch) -> None:
        if self.groups:
            self.find(keys)

    def touch(self, slots: Slots) -> None:
        super().touch(slots)
        self._written.array[slots[slots >= 0]] = True

    def touch_all(self) -> None:
        super().touch_all()
        self._written.array[: len(self._index)] = True

    def keys(self) -> pa.RecordBatch:
        """Of all rows, which are in memory from here on until the next batch."""
        self.load_all()
        return super().keys()

    def holds(self, columns: list[pa.Array]) -> Bools:
        """Which of these keys, of storage types, have rows in memory."""
        here = self._index.find(columns)
        held: Bools = here >= 0
        if self._gone:
            assert self._dead is not None
            held &= ~self._dead.array(DEAD)[here]
        return held

    def load_all(self) -> None:
        """Have all rows in memory."""
        for columns, _, rows in self._elsewhere():
            self._take_in(columns, rows)

    def scan(self, *names: str) -> Iterator[tuple[npt.NDArray[Any], ...]]:
        yield from super().scan(*names)
        for _, _, rows in self._elsewhere():
            numbers = self._state.rows.unpacked(rows)
            yield tuple(numbers[name] for name in names)

    def bring(self, column: str, wanted: Callable[[npt.NDArray[Any]], Bools]) -> None:
        for columns, _, rows in self._elsewhere():
            at = np.flatnonzero(wanted(self._state.rows.unpacked(rows)[column]))
            if len(at):
                some = [one.take(pa.array(at)) for one in columns]
                self._take_in(some, [rows[row] for row in at.tolist()])

    def forget(self, column: str, gone: Callable[[npt.NDArray[Any]], Bools]) -> None:
        for _, places, rows in self._elsewhere():
            over = gone(self._state.rows.unpacked(rows)[column])
            self._state.delete([places[row] for row in np.flatnonzero(over).tolist()])

    def _elsewhere(self) -> Iterator[tuple[list[pa.Array], list[bytes], list[bytes]]]:
        """Rows that have no slots: keys, places and rows, in parts. Rows of a part may come into
        slots before the next."""
        for group in sorted(self.groups):
            found = self._state.stored(group, self.namespace)
            for piece in pieces(found, LOADED, PIECE_BYTES):
                places, packed = [place for place, _ in piece], [row for _, row in piece]
                columns = self._state.rows.keys_in(places, packed, self._name)
                missing = np.flatnonzero(~self.holds(columns))
                if len(missing):
                    some = [column.take(pa.array(missing)) for column in columns]
                    at = missing.tolist()
                    yield some, [places[row] for row in at], [packed[row] for row in at]

    def release(self, slots: Slots) -> None:
        older = slots[self._older.array[slots]]
        if len(older):
            places = self._state.rows.places(self._index.take(older), self.namespace)
            self._state.delete(places)
        self._leave(slots)

    def idle(self, most: int) -> Slots:
        """Up to `most` rows that leave next."""
        return self._hand.take(most, len(self._index), self._used.array, self._may_leave)

    def _may_leave(self, start: int, stop: int) -> Bools:
        """Which of these slots have rows that may leave."""
        may = np.ones(stop - start, dtype=np.bool_)
        if self._dead is not None:
            may &= ~self._dead.array(DEAD)[start:stop]
        if self._state.rows.of_objects:
            may &= ~self._stays.array[start:stop]
        return may

    def evict(self, slots: Slots) -> tuple[list[bytes], list[bytes]]:
        """These rows leave: places and rows of those that are to be put into RocksDB."""
        written, pickles = slots[self._written.array[slots]], dict[str, pa.Array]()
        if len(written) and self._state.rows.of_objects:
            written, pickles = self._movable(written)
            slots = slots[~self._stays.array[slots]]
        places, packed = self._packed(written, pickles)
        self._leave(slots)
        return places, packed

    def _packed(
        self, slots: Slots, pickles: Mapping[str, pa.Array]
    ) -> tuple[list[bytes], list[bytes]]:
        """Places and rows of these slots, sorted as they lie in RocksDB, about."""
        if not len(slots):
            return [], []
        rows, keys = self._state.rows, self._index.take(slots)
        groups = rows.groups(keys)
        order = rows.order(keys, groups)
        slots, groups = slots[order], groups[order]
        keys = [key.take(order) for key in keys]
        self.groups.update(np.unique(groups).tolist())
        places = rows.places(keys, self.namespace, groups)
        arrays = {c.name: self._numbers.array(c.name) for c in self._numbers.columns}
        values = {name: store.stored(arrays[name][slots]) for name, store in self._stores}
        values |= {name: array.take(pa.array(order)) for name, array in pickles.items()}
        return places, rows.packed(arrays, slots, values)

    def _movable(self, slots: Slots) -> tuple[Slots, dict[str, pa.Array]]:
        """Those of these slots whose keys, which are objects, have places and pickles, with these;
        the others stay, from here on."""
        keys = self._index.take(slots)
        placed = self._state.rows.placed(keys)
        assert placed is not None
        self._stays.array[slots[~placed]] = True
        slots, keys = slots[placed], [key.filter(pa.array(placed)) for key in keys]
        pickles = self._state.rows.pickles(keys, self._name)
        fine = np.array([data is not None for data in pickles], dtype=np.bool_)
        self._stays.array[slots[~fine]] = True
        kept = [data for data in pickles if data is not None]
        return slots[fine], {PICKLE: pa.array(kept, STORED)}

    def adopt(self, groups: Collection[int]) -> None:
        """RocksDB holds rows of these key groups that this has not put there."""
        self.groups.update(groups)

    def compact(self) -> None:
        """Take no more room than the rows in memory need. Slots get new numbers."""
        self._renumber()
        self.forget_values()

    def forget_values(self) -> None:
        """Have no values but those of the rows in memory."""
        if not self.stores:
            return
        self._numbers.touch_all(changed=False)
        for name, store in self._stores:
            store.compact(self._numbers.array(name)[: len(self._index)])
        self._each = self._value_bytes / max(self.live, 1)

    def older(self) -> Bools:
        """A copy of which slots have rows in RocksDB, too."""
        return self._older.array[: len(self._index)].copy()

    def validate(self) -> None:
        super().validate()
        count = len(self._index)
        if self._dead is not None:
            dead = self._dead.array(DEAD)[:count]
            assert not self._older.array[:count][dead].any()
        assert (self._written.array | self._older.array)[:count].sum() == self.live

    def _renumber(self) -> Slots:
        moved = super()._renumber()
        live = np.flatnonzero(moved >= 0)
        for name in ("_used", "_written", "_older", "_stays"):
            setattr(self, name, Growing.over(getattr(self, name).array[live], 0))
        self._hand.moved(live)
        return moved

    def _revive(self, slots: Slots) -> Slots:
        self._back = super()._revive(slots)
        return self._back

    def _upsert(self, columns: list[pa.Array]) -> Slots:
        """As `upsert`; nothing is looked for in RocksDB."""
        before, self._back = len(self._index), _NONE
        slots = super().upsert(columns)
        count = len(self._index)
        for flags in (self._used, self._written, self._older, self._stays):
            flags.reserve(count)
        self._used.array[slots] = True
        self._used.array[before:count] = False
        self._used.array[self._back] = False
        return slots

    def _load(self, slots: Slots) -> None:
        """Take from RocksDB what it has of these new slots."""
        rows, keys = self._state.rows, self._index.take(slots)
        placed = rows.placed(keys)
        if placed is not None and not placed.all():
            slots, keys = slots[placed], [key.filter(pa.array(placed)) for key in keys]
        groups = rows.groups(keys)
        order = rows.order(keys, groups)
        slots, groups, keys = slots[order], groups[order], [key.take(order) for key in keys]
        data = self._state.get(rows.places(keys, self.namespace, groups))
        there = [at for at, row in enumerate(data) if row is not None]
        if there:
            self._fill_in(slots[there], [row for row in data if row is not None])

    def _take_in(self, columns: list[pa.Array], rows: list[bytes]) -> Slots:
        """Slots of these keys, which had none, with the rows that RocksDB holds of them."""
        slots = self._upsert(columns)
        self._written.array[slots] = False
        self._fill_in(slots, rows)
        return slots

    def _fill_in(self, slots: Slots, rows: list[bytes]) -> None:
        numbers, values = self._state.rows.read(rows)
        for name in numbers.dtype.names or ():
            self._numbers.array(name)[slots] = numbers[name]
        for name, array in values.items():
            self._numbers.array(name)[slots] = new_codes(self.stores[name], array)
        self._older.array[slots] = True
        self._state.loaded += len(slots)

    @property
    def _stores(self) -> list[tuple[str, Values]]:
        return list(self.stores.items())

    @property
    def _value_bytes(self) -> int:
        """Of all values, those that nobody needs any more included."""
        return sum(store.nbytes for store in list(self.stores.values()))

    def _leave(self, slots: Slots) -> None:
        super().release(slots)
        for flags in (self._used, self._written, self._older, self._stays):
            flags.array[slots] = False


_NONE: Slots = np.empty(0, dtype=np.int64)

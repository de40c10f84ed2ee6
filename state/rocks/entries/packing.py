"""Entries of one state between slots of tables and rows in RocksDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ....core.arrays import Int64s, Slots
from ....core.key_kinds import held_keys
from ...away import Due, Entries, first_due
from ...entry_table import MemoryEntryTable
from ...live_keys import LiveKeys
from ...object_keys import ObjectKeys, ObjectKeyType
from ...stored import AccColumn, StateTable
from ...value_store import MakeStores, Stores
from ..tables.slot_layout import make_rows
from ..tables.slot_rows import SlotRows
from ..tables.valued_rows import new_codes, values_schema
from .entry_forms import Owned, make_form
from .entry_rows import entries_in, flat_columns, kept_keys, owned_layout
from .key_pickles import KeyPickles


@dataclass(frozen=True)
class Packed:
    """What is to be put into RocksDB; one of each for every key."""

    places: list[bytes]
    rows: list[bytes]
    dues: Int64s


class Packing:
    """Of a state that is declared so. `values`: of which all have bytes."""

    def __init__(
        self,
        name: str,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        owner: str,
        values: MakeStores,
        due: Due,
    ) -> None:
        self._name = name
        self._declared = keys, tuple(columns), owner, values
        self._columns = columns
        self._due = due
        self._flat, self._coded = flat_columns(columns, owner), values_schema(columns, values)
        self._kept = kept_keys(LiveKeys(keys))
        self.layout = owned_layout(self._kept, self._flat, self._coded)
        self.of_objects = isinstance(keys.types[0], ObjectKeyType)
        self._form = make_form(self._flat, self._coded, self.of_objects)
        self._fields = np.dtype([(column.name, column.dtype) for column in self._flat])
        """Of entries in hand: numbers and codes."""
        self.rows: SlotRows
        """What tells places, by the keys of the state's own table."""

    def under(self, prefix: bytes, max_parallelism: int) -> None:
        """Once, before all that follows: where rows lie."""
        of = prefix, self._kept, self._flat, len(self._kept), max_parallelism
        self.rows = make_rows(*of, self._coded)

    def blank(self, count: int) -> Entries:
        """Entries to be filled."""
        return np.empty(count, dtype=self._fields)

    def apart(self, piece: StateTable) -> MemoryEntryTable:
        """A table of these entries alone. If keys are objects, it has codes of its own, which are
        forgotten with it: keys that pass through are not to be known for longer."""
        keys, columns, owner, values = self._declared
        if self.of_objects:
            objects = _objects_of(keys.types[0]).apart()  # schemas do not keep it, tables do
            keys = pa.schema([pa.field(keys.names[0], objects.kind)])
        table = MemoryEntryTable(self._name, keys, columns, owner, values)
        table.restore([piece])
        return table

    def held(self, table: MemoryEntryTable) -> list[Any]:
        """The keys of a table, which are objects, as they are held."""
        codes = table.known.take_kept(np.arange(table.owners))[0]
        return held_keys(_objects_of(table.known.kinds[0]).objects(codes))

    def pickles(self, table: MemoryEntryTable) -> KeyPickles | None:
        """Of the keys of a table; None if keys are columns."""
        if not self.of_objects:
            return None
        made = KeyPickles(self._rows_of(table), self._name)
        made.reserve(table.owners)
        return made

    def places(self, table: MemoryEntryTable, numbers: Slots) -> tuple[Slots, list[bytes]]:
        """Those of these keys that have places, about in the order in which they lie, and the
        places."""
        rows, keys = self._rows_of(table), table.known
        columns = keys.take_kept(numbers)
        placed = rows.placed(columns)
        if placed is not None and not placed.all():
            numbers = numbers[placed]
            columns = keys.take_kept(numbers)
        groups = rows.groups(columns)
        order = rows.order(columns, groups)
        at = pa.array(order)
        return numbers[order], rows.places([c.take(at) for c in columns], 0, groups[order])

    def packed(
        self,
        table: MemoryEntryTable,
        numbers: Slots,
        slots: Slots,
        owners: Slots,
        pickles: KeyPickles | None,
    ) -> Packed:
        """These keys of a table (distinct, which can leave), with all their entries, which are in
        these slots; `owners`: whose each is."""
        made = {} if pickles is None else pickles.of(table.known, numbers)
        numbers, places = self.places(table, numbers)
        rank = np.empty(int(numbers.max()) + 1, dtype=np.int64)
        rank[numbers] = np.arange(len(numbers))
        ranks = rank[owners]
        slots = slots[np.argsort(ranks, kind="stable")]
        counts = np.bincount(ranks, minlength=len(numbers))
        arrays = {column.name: table.column(column.name) for column in self._columns}
        entries = entries_in(self._columns, arrays, slots, self.blank(len(slots)))
        values = {
            name: store.stored(np.ascontiguousarray(entries[name]))
            for name, store in table.stores.items()
        }
        keys = [made[number] for number in numbers.tolist()] if made else []
        rows = self._form.packed(counts, self._form.numbers_of(entries), values, keys)
        return Packed(places, rows, first_due(self._due(entries), counts))

    def read(self, rows: Sequence[bytes]) -> Owned:
        return self._form.read(rows)

    def keys(self, places: Sequence[bytes], owned: Owned) -> pa.RecordBatch:
        """The keys that lie there. Of objects the codes in the state's own table, which from here
        on are known."""
        if owned.pickles is None:
            columns = self.rows.keys(places)
        else:
            stored = pa.chunked_array([owned.pickles])
            columns = [_objects_of(self._kept.types[0]).restored(stored, self._name)]
        return pa.RecordBatch.from_arrays(columns, names=self._kept.names)

    def entries(self, owned: Owned, stores: Stores) -> Entries:
        """What rows hold, with new codes in these stores."""
        if not stores:
            return owned.numbers
        entries = self.blank(len(owned.numbers))
        for name in owned.numbers.dtype.names or ():
            entries[name] = owned.numbers[name]
        for name, store in stores.items():
            entries[name] = new_codes(store, owned.values[name])
        return entries

    def dues(self, owned: Owned) -> Int64s:
        """When each key is due."""
        return first_due(self._due(owned.numbers), owned.counts)

    def dues_of(self, rows: Sequence[bytes]) -> Int64s:
        """The same, where nothing else is asked for."""
        counts, numbers = self._form.numbers(rows)
        return first_due(self._due(numbers), counts)

    def _rows_of(self, table: MemoryEntryTable) -> SlotRows:
        """What tells places, by the keys of a table."""
        return self.rows.by(_objects_of(table.known.kinds[0])) if self.of_objects else self.rows


def parts(
    numbers: Slots, slots: Slots, owners: Slots, most: int
) -> Iterator[tuple[Slots, Slots, Slots]]:
    """So many keys at a time, with their slots and whose each is. `owners`: of all slots."""
    held = owners[slots]
    if len(numbers) <= most:
        yield numbers, slots, held
        return
    for start in range(0, len(numbers), most):
        some = numbers[start : start + most]
        here = np.isin(held, some)
        yield some, slots[here], held[here]


def _objects_of(kind: pa.DataType) -> ObjectKeys:
    assert isinstance(kind, ObjectKeyType)
    return kind.keys

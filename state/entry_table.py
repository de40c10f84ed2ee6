"""Entries of keys, numbered by their operator: any number per key, such as open sessions.

Slots are the operator's affair (a kernel opens and closes them); the keys, what is stored per
entry, and snapshots are this table's. An entry says whose it is by the number of its key in one of
its columns, negative where it is none.

Snapshot: `__key_group | key.<column>... | acc.<column>...`, one row per entry; with its slot as
`__slot` where later snapshots may continue it (`increments`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Bools, Slots
from ..core.errors import StateError
from ..core.taking import null_array
from .backend import KEY_GROUP, AccColumn, StateTable
from .change_bits import Bits, slots_of
from .column_face import EntryState
from .column_migration import fitted
from .group_sort import sorted_by_group
from .increments import (
    EVERY_GROUP,
    IDENTITY,
    REMOVED,
    SCOPE,
    SLOT,
    Continuity,
    Layer,
    Since,
    columns_text,
)
from .key_index import Frozen
from .live_keys import LiveKeys
from .names import KEY_PREFIX
from .numbered_table import NumberedTable
from .object_keys import ObjectKeyType
from .slot_changes import MOST_CHANGED, SlotChanges
from .slot_columns import FrozenColumns
from .slot_encoding import encoded
from .stored_keys import StoredKeys, key_read, stored_type
from .table_state import encoded_rows, fill_columns, stored_schema
from .value_store import Codes, MakeStores
from .whole import Freeze, WholeState


class MemoryEntryTable(NumberedTable, EntryState, WholeState):
    """See the module. Invariant: owners are negative, or numbers of keys."""

    def __init__(
        self,
        name: str,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        owner: str,
        values: MakeStores | None = None,
    ) -> None:
        super().__init__(columns, stores={name: make() for name, make in (values or {}).items()})
        self._name = name
        self._keys = LiveKeys(keys)
        self._owner = owner
        self._declared = (keys, tuple(columns), owner)
        self._continuity = Continuity()
        self._changes = SlotChanges()

    def numbers(self, keys: pa.RecordBatch) -> Slots:
        return self._keys.numbers(keys)

    def take_owners(self, numbers: Slots) -> list[pa.Array]:
        return self._keys.take(numbers)

    def take_keys(self, slots: Slots) -> list[pa.Array]:
        return self._keys.take(self._owners()[slots])

    @property
    def known(self) -> LiveKeys:
        """The keys that have numbers."""
        return self._keys

    @property
    def owners(self) -> int:
        return len(self._keys)

    def tidy(self) -> None:
        for name, store in self.stores.items():
            if store.crowded:
                self._numbers.touch_all(changed=False)
                store.compact(self.column(name)[: len(self)])

    def tidy_owners(self, used: int, live: Callable[[], Slots]) -> Slots | None:
        if not self._keys.crowded(used):
            return None
        kept = live()
        moved = np.full(len(self._keys), -1, dtype=np.int64)
        moved[kept] = np.arange(len(kept))
        self._numbers.touch_all(changed=False)
        owners = self._owners()[: len(self)]
        owners[owners >= 0] = moved[owners[owners >= 0]]
        self._keys.keep(kept)
        return moved

    def freeze(self, name: str, changes: tuple[Bits, int] | None = None) -> EntryFreeze:
        """The synchronous half of a snapshot; of these slots, as `change_bits.slots_of` takes them,
        if not of all."""
        return EntryFreeze(
            name,
            self._owner,
            [field.name for field in self._keys.kept],
            self._keys.freeze(),
            StoredKeys(self._keys.kinds),
            self._numbers.freeze(len(self), changes),
            {column: store.freeze() for column, store in self.stores.items()},
            changes,
        )

    def freeze_since(self, name: str, since: Since) -> tuple[Freeze, bool]:
        came, count = self._continuity.advance(since), len(self)
        if came == "unknown":
            self._changes.renumbered()
        changes = self._changes.advance(self._numbers, count, came != "failed")
        if changes is not None and changes[1] > count:  # slots were taken away
            self._changes.renumbered()
            changes = None
        if came == "unknown" or name in since.whole:
            changes = None
        if changes is None or SlotChanges.number(changes, count) > MOST_CHANGED * count:
            return replace(self.freeze(name), layer="base"), False
        return replace(self.freeze(name, changes), layer="delta"), True

    def restore(self, tables: Iterable[StateTable]) -> None:
        """Into an empty state. StateError if keys or columns are not those declared."""
        columns, kept, kinds = self._numbers.columns, self._keys.kept, self._keys.kinds
        stored = pa.schema(
            [
                field.with_type(stored_type(kind)) if isinstance(kind, ObjectKeyType) else field
                for field, kind in zip(kept, kinds, strict=True)
            ]
        )
        for table in tables:
            declared = stored_schema(
                stored, _without(columns, self._owner), self.stores, spaced=False
            )
            data = fitted(f"entries '{self._name}'", table.data, declared)
            first = len(self)
            self.resize(first + data.num_rows)
            slots = np.arange(first, len(self))
            pairs = zip(kept.names, kinds, strict=True)
            arrays = [key_read(data.column(KEY_PREFIX + n), k, self._name) for n, k in pairs]
            rows = pa.RecordBatch.from_arrays(arrays, names=kept.names)
            fill_columns(self, slots, _without(columns, self._owner), data)
            self._owners()[slots] = self._keys.numbers(rows)

    def check_same(self, keys: pa.Schema, columns: Sequence[AccColumn], owner: str) -> None:
        """Asking again for the name must mean the same entries."""
        if (keys, tuple(columns), owner) != self._declared:
            raise StateError(
                f"entries '{self._name}' are declared as {self._declared}, and are asked for as "
                f"{(keys, tuple(columns), owner)}"
            )

    def mark_objects(self, held: Bools) -> None:
        """Set the codes of objects that are in keys."""
        self._keys.mark_objects(held)

    @property
    def nbytes(self) -> int:
        values = sum(store.nbytes for store in self.stores.values())
        return self._keys.nbytes + self._numbers.nbytes + values

    def _owners(self) -> npt.NDArray[np.int64]:
        """Of all slots, writable."""
        for column in self._numbers.columns:
            array = self._numbers.array(column.name)
            if column.name == self._owner:
                return array
            if self._owner in column.words:
                words = array.view(np.int64).reshape(-1, len(column.words))
                return words[:, column.words.index(self._owner)]
        raise AssertionError(f"no column '{self._owner}'")


@dataclass(frozen=True)
class EntryFreeze:
    """A point in time of an entry table."""

    name: str
    owner: str
    keys: list[str]
    """The names of key columns."""
    owners: Frozen
    stored: StoredKeys
    numbers: FrozenColumns
    values: Mapping[str, Callable[[Codes], pa.Array]]
    changes: tuple[Bits, int] | None
    layer: Layer = "whole"

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if there is nothing."""
        arrays = self.numbers.arrays()
        owners = self._owners(arrays)
        if self.changes is None:
            data = self._rows(arrays, owners, np.flatnonzero(owners >= 0), max_parallelism)
            return StateTable(self.name, "entries", data, layer=self.layer) if len(data) else None
        slots = slots_of(*self.changes, self.numbers.count)
        if not len(slots):
            return None
        data = self._rows(arrays, owners, slots[owners[slots] >= 0], max_parallelism)
        data = data.append_column(REMOVED, pa.array(np.zeros(len(data), np.bool_)))
        replaced = slots[slots < self.changes[1]]
        known = {
            KEY_GROUP: pa.array(np.full(len(replaced), EVERY_GROUP, np.int32)),
            SLOT: pa.array(replaced),
            REMOVED: pa.array(np.ones(len(replaced), np.bool_)),
        }
        gone = [
            known.get(field.name, null_array(len(replaced), field.type)) for field in data.schema
        ]
        data = pa.concat_tables([pa.table(gone, schema=data.schema), data])
        metadata = {IDENTITY: columns_text([SLOT]), SCOPE: columns_text([SLOT])}
        return StateTable(self.name, "entries", data, metadata, "delta") if len(data) else None

    def _rows(
        self,
        arrays: Mapping[str, npt.NDArray[Any]],
        owners: npt.NDArray[np.int64],
        live: Slots,
        max_parallelism: int,
    ) -> pa.Table:
        """Those of these slots, which are somebody's, sorted by key group."""
        at = pa.array(owners[live])
        kept = [k.take(at) for k in self.owners()]
        some = {name: array[live] for name, array in arrays.items()}
        columns = encoded(self.numbers.columns, some, self.values)
        groups = np.empty(0, np.int32)
        if len(live):
            groups = self.stored.groups(kept, max_parallelism)
        stored = self.stored.stored(kept, self.name)
        keys = pa.RecordBatch.from_arrays(stored, names=self.keys)
        shown = [(column, array) for column, array in columns if column.name != self.owner]
        data = encoded_rows(groups, None, keys, shown)
        if self.layer != "whole":
            data = data.append_column(SLOT, pa.array(live))
        return sorted_by_group([data])

    def _owners(self, arrays: Mapping[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        for column in self.numbers.columns:
            if self.owner in column.words:
                words = arrays[column.name].view(np.int64).reshape(-1, len(column.words))
                return words[:, column.words.index(self.owner)]
        return arrays[self.owner]


def _without(columns: Sequence[AccColumn], name: str) -> list[AccColumn]:
    """The columns without that column or word."""
    kept = []
    for column in columns:
        if name in column.words:
            words = tuple(None if word == name else word for word in column.words)
            kept.append(AccColumn(column.name, column.dtype, column.initial, words))
        elif column.name != name:
            kept.append(column)
    return kept

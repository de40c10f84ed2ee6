"""Entries of keys, numbered by their operator: sessions in memory.

Slots are the operator's affair (a kernel opens and closes them); the keys, what is stored per
entry, and snapshots are this table's. An entry says whose it is by the number of its key in one of
its columns, negative where it is none.

Snapshot: `__key_group | key.<column>... | acc.<column>...`, one row per entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Slots
from ..core.batch import take_table
from ..core.errors import StateError
from .backend import AccColumn, EntryState, StateTable
from .key_groups import group_order, key_groups_of
from .key_index import Frozen
from .live_keys import LiveKeys
from .numbered_table import NumberedTable
from .slot_columns import FrozenColumns
from .slot_table import encoded
from .table_state import KEY_PREFIX, check_stored, encoded_rows, fill_columns, stored_schema
from .value_store import Codes, Values


class MemoryEntryTable(NumberedTable, EntryState):
    """See the module. Invariant: owners are negative, or numbers of keys."""

    def __init__(
        self,
        name: str,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        owner: str,
        values: Mapping[str, Values] | None = None,
    ) -> None:
        super().__init__(columns)
        self._name = name
        self._keys = LiveKeys(keys)
        self._owner = owner
        self._declared = (keys, tuple(columns), owner)
        self._values = dict(values or {})

    def numbers(self, keys: pa.RecordBatch) -> Slots:
        return self._keys.numbers(keys)

    def take_owners(self, numbers: Slots) -> list[pa.Array]:
        return self._keys.take(numbers)

    def take_keys(self, slots: Slots) -> list[pa.Array]:
        return self._keys.take(self._owners()[slots])

    @property
    def owners(self) -> int:
        return len(self._keys)

    def tidy(self) -> None:
        for name, store in self._values.items():
            if store.crowded:
                self.touch_all()
                store.compact(self.column(name)[: len(self)])

    def tidy_owners(self, used: int, live: Callable[[], Slots]) -> Slots | None:
        if not self._keys.crowded(used):
            return None
        kept = live()
        moved = np.full(len(self._keys), -1, dtype=np.int64)
        moved[kept] = np.arange(len(kept))
        self.touch_all()
        owners = self._owners()[: len(self)]
        owners[owners >= 0] = moved[owners[owners >= 0]]
        self._keys.keep(kept)
        return moved

    def freeze(self, name: str) -> EntryFreeze:
        """The synchronous half of a snapshot."""
        return EntryFreeze(
            name,
            self._owner,
            [field.name for field in self._keys.kept],
            self._keys.freeze(),
            self._numbers.freeze(len(self)),
            {column: store.freeze() for column, store in self._values.items()},
        )

    def restore(self, tables: Iterable[StateTable]) -> None:
        """Into an empty state. StateError if keys or columns are not those declared."""
        columns = self._numbers.columns
        kept = self._keys.kept
        for table in tables:
            check_stored(
                self._name,
                table.data.schema,
                stored_schema(kept, _without(columns, self._owner), self._values, spaced=False),
            )
            first = len(self)
            self.resize(first + table.data.num_rows)
            slots = np.arange(first, len(self))
            arrays = [
                pa.concat_arrays(table.data.column(KEY_PREFIX + n).chunks) for n in kept.names
            ]
            rows = pa.RecordBatch.from_arrays(arrays, schema=kept)
            fill_columns(self, slots, _without(columns, self._owner), self._values, table.data)
            self._owners()[slots] = self._keys.numbers(rows)

    def check_same(self, keys: pa.Schema, columns: Sequence[AccColumn], owner: str) -> None:
        """Asking again for the name must mean the same entries."""
        if (keys, tuple(columns), owner) != self._declared:
            raise StateError(
                f"entries '{self._name}' are declared as {self._declared}, and are asked for as "
                f"{(keys, tuple(columns), owner)}"
            )

    @property
    def nbytes(self) -> int:
        values = sum(store.nbytes for store in self._values.values())
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
    numbers: FrozenColumns
    values: Mapping[str, Callable[[Codes], pa.Array]]

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if there is nothing."""
        arrays = self.numbers.arrays()
        owners = self._owners(arrays)
        live = np.flatnonzero(owners >= 0)
        if not len(live):
            return None
        at = pa.array(owners[live])
        keys = pa.RecordBatch.from_arrays([k.take(at) for k in self.owners()], names=self.keys)
        some = {name: array[live] for name, array in arrays.items()}
        columns = encoded(self.numbers.columns, some, self.values)
        groups = key_groups_of(keys, max_parallelism)
        shown = [(column, array) for column, array in columns if column.name != self.owner]
        data = encoded_rows(groups, None, keys, shown)
        order = group_order(groups)
        return StateTable(self.name, "entries", take_table(data, pa.array(order)))

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

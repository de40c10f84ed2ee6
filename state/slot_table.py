"""Keys and what is stored per key: the column face in memory.

A key's slot is its number in the index, and an index gives numbers for good. Keys that are gone
keep their slots, marked as dead, until they are the most; then the others get new numbers (`tidy`),
and the operator is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Bools, Slots
from ..core.errors import StateError, TypeMismatchError
from .backend import AccColumn
from .change_bits import Bits
from .column_face import SlotTable
from .column_index import FIRST_SLOTS
from .key_index import CompositeIndex, Frozen, as_declared
from .numbered_table import NumberedTable
from .slot_changes import FrozenChanges, SlotChanges
from .slot_columns import FrozenColumns, SlotColumns
from .slot_encoding import DEAD, encoded
from .value_store import Codes, Stores

SPARE = 1024
"""So many dead keys are not worth looking at."""


@dataclass(frozen=True)
class FrozenTable:
    """One table at a point in time. `dead`: which slots are left out, None for none."""

    keys: Frozen
    numbers: FrozenColumns
    dead: FrozenColumns | None
    values: Mapping[str, Callable[[Codes], pa.Array]]

    def read(self) -> tuple[list[pa.Array], list[tuple[AccColumn, pa.Array]]]:
        """Key columns and columns of the live slots; once, on any thread."""
        keys, live = self.keys(), None
        if self.dead is not None:
            live = np.flatnonzero(~self.dead.take()[DEAD])
            at = pa.array(live)
            keys = [key.take(at) for key in keys]
        return keys, encoded(self.numbers.columns, self.numbers.take(live), self.values)


class MemorySlotTable(SlotTable):
    """Invariants: columns have room for len(self); entries at and beyond len(self), and those of
    dead slots, are initial unless a caller wrote there; `_gone` of the dead flags are set."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        columns: Sequence[AccColumn],
        room: int = FIRST_SLOTS,
        stores: Stores | None = None,
    ) -> None:
        """`room`: for so many keys from the start; a power of two."""
        self._name = name
        self._schema = schema
        self._types = list(schema.types)
        self.stores = dict(stores or {})
        self._index = CompositeIndex(schema, room)
        self._numbers = SlotColumns(columns, room)
        self._room = room
        self._dead: SlotColumns | None = None
        """None until a key has gone."""
        self._gone = 0
        self._changes: SlotChanges | None = None
        """None until a snapshot wants to be continued."""

    def __len__(self) -> int:
        return len(self._index)

    def slots(self, keys: pa.RecordBatch) -> Slots:
        return self.upsert(self._columns(keys))

    def find(self, keys: pa.RecordBatch) -> Slots:
        slots = self._index.find(self._columns(keys))
        if self._gone:
            assert self._dead is not None
            slots[(slots >= 0) & self._dead.array(DEAD)[slots]] = -1
        return slots

    def upsert(self, columns: list[pa.Array]) -> Slots:
        """`slots` for key columns of the declared types or of their storage types."""
        slots = self._index.upsert(columns)
        if len(self._index) > self._room:
            self._grow()
        self._numbers.touch(slots)
        if self._gone:
            self._revive(slots)
        return slots

    def column(self, name: str) -> npt.NDArray[Any]:
        try:
            return self._numbers.array(name)
        except StateError as error:
            raise StateError(f"table state '{self._name}': {error}") from None

    def touch(self, slots: Slots) -> None:
        self._numbers.touch(slots)

    def touch_all(self) -> None:
        self._numbers.touch_all()

    def gather(self, slots: Slots) -> NumberedTable:
        return NumberedTable.of(self._numbers.gather(slots), len(slots), self.stores)

    def mark_objects(self, held: Bools) -> None:
        """Set the codes of objects that are in keys, those gone included."""
        self._index.mark(self._types, held)

    def keys(self) -> pa.RecordBatch:
        pairs = zip(self._index.freeze()(), self._types, strict=True)
        columns = [as_declared(column, kind) for column, kind in pairs]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def freeze_keys(self) -> Frozen:
        return self._index.freeze()

    def take_keys(self, slots: Slots) -> list[pa.Array]:
        pairs = zip(self._index.take(slots), self._types, strict=True)
        return [as_declared(column, kind) for column, kind in pairs]

    def release(self, slots: Slots) -> None:
        if not len(slots):
            return
        if self._dead is None:
            self._dead = SlotColumns([AccColumn(DEAD, "bool", False)], self._room)
        self._numbers.reset(slots)
        self._dead.touch(slots)
        self._dead.array(DEAD)[slots] = True
        self._gone += len(slots)

    def tidy(self) -> Slots | None:
        for name, store in self.stores.items():
            if store.crowded:
                self._numbers.touch_all(changed=False)
                store.compact(self._numbers.array(name)[: len(self)])
        if self._dead is None or self._gone <= SPARE or 2 * self._gone <= len(self):
            return None
        return self._renumber()

    def _renumber(self) -> Slots:
        """Forget keys that are gone; as `tidy`."""
        live = np.arange(len(self))
        if self._dead is not None:
            live = np.flatnonzero(~self._dead.array(DEAD)[: len(self)])
        moved = np.full(len(self), -1, dtype=np.int64)
        moved[live] = np.arange(len(live))
        keys = self._index.take(live)
        self._numbers = self._numbers.gather(live)
        room = max(FIRST_SLOTS, 1 << max(0, len(live) - 1).bit_length())
        self._index, self._room = CompositeIndex(self._schema, room), len(live)
        if len(live):
            self._index.upsert(keys)
        self._dead, self._gone = None, 0
        self.renumbered()
        return moved

    def freeze(self) -> FrozenTable:
        """As it is now, without copying."""
        count = len(self)
        return FrozenTable(
            self._index.freeze(),
            self._numbers.freeze(count),
            self._dead.freeze(count) if self._dead is not None and self._gone else None,
            {name: store.freeze() for name, store in self.stores.items()},
        )

    @property
    def kinds(self) -> list[pa.DataType]:
        """The types of the key columns."""
        return self._types

    def renumbered(self) -> None:
        """No snapshot knows the slots as they are."""
        if self._changes is not None:
            self._changes.renumbered()

    def advance(self, completed: bool) -> tuple[Bits, int] | None:
        """As `SlotChanges.advance`, which goes before each freeze that later ones continue."""
        if self._changes is None:
            self._changes = SlotChanges()
        return self._changes.advance(self._numbers, len(self), completed)

    def freeze_changes(self, changes: tuple[Bits, int]) -> FrozenChanges:
        """These slots as they are now, without copying."""
        count = len(self)
        return FrozenChanges(
            self._index,
            self._numbers.freeze(count, changes),
            self._dead.freeze(count) if self._dead is not None and self._gone else None,
            {name: store.freeze() for name, store in self.stores.items()},
            *changes,
        )

    @property
    def nbytes(self) -> int:
        values = sum(store.nbytes for store in self.stores.values())
        return self._index.nbytes + self._numbers.nbytes + values

    def validate(self) -> None:
        """Assert the invariants."""
        if self._dead is not None:
            dead = self._dead.array(DEAD)[: len(self)]
            assert int(dead.sum()) == self._gone
            for column in self._numbers.columns:
                assert (self._numbers.array(column.name)[: len(self)][dead] == column.initial).all()

    def _columns(self, keys: pa.RecordBatch) -> list[pa.Array]:
        """Key columns of the declared types."""
        columns: list[pa.Array] = keys.columns
        if [column.type for column in columns] != self._types:
            return _fitted(self._name, keys, self._schema)
        return columns

    def _revive(self, slots: Slots) -> Slots:
        """Keys that had gone are there again: their slots, each once."""
        assert self._dead is not None
        dead = self._dead.array(DEAD)
        back = np.unique(slots[dead[slots]])
        if len(back):
            self._dead.touch(back)
            dead[back] = False
            self._gone -= len(back)
        return back

    def _grow(self) -> None:
        needed = len(self._index)
        self._numbers.reserve(needed)
        self._room = self._numbers.room if self._numbers.columns else needed
        if self._dead is not None:
            self._dead.reserve(self._room)


def _fitted(name: str, keys: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    """Key columns of other but convertible types, as those declared."""
    try:
        if keys.num_columns != len(schema):
            raise pa.ArrowInvalid(f"{keys.num_columns} columns instead of {len(schema)}")
        pairs = zip(keys.columns, schema.types, strict=True)
        return [column.cast(kind) for column, kind in pairs]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TypeMismatchError(
            f"table state '{name}': keys {text_of(keys.schema)} do not fit the declared keys "
            f"{text_of(schema)}: {error}"
        ) from error


def text_of(schema: pa.Schema) -> str:
    """Names and types, for messages."""
    return "[" + ", ".join(f"{field.name}: {field.type}" for field in schema) + "]"

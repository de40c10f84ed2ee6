"""Values of a table's slots, each with counts per view: what the two stores of them share.

`CountedValues` counts values up and down, `SeenValues` only notes that they were there. Stored:
`__key_group | key.<column>... | value | n0 | n1...`, one row per slot and value; the slot's key
comes from the table that owns the slots, frozen at the same time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ..core.arrays import Int64s, Slots, numpy_of
from ..core.batch import take_column
from ..core.errors import StateError
from .backend import KEY_GROUP, StateTable
from .carry import join
from .column_index import storage_type
from .column_migration import same_hashes
from .key_groups import group_order, key_groups_of
from .key_index import Frozen, as_declared
from .rows.texts import is_text, wide_text
from .stores import SlotOwner
from .whole import WholeWithoutCodes
from .widening import widened

KIND = "values"

KEY_PREFIX, VALUE, COUNT_PREFIX = "key.", "value", "n"

SLOT_BITS = 32
"""A pair of value and slot is a word: code << SLOT_BITS | slot."""

SLOT_MASK = (1 << SLOT_BITS) - 1

PART = 1 << 20
"""Stored pairs that are taken in at a time."""

Found = tuple[Slots, pa.Array, list[Int64s]]
"""Pairs: their slots, their values as they are stored, and per view their counts."""


class SlotValues(WholeWithoutCodes):
    """Values of slots. `views` conditions see them, each with counts of its own.

    Whoever asks the backend for it says which table owns the slots (`own`), before all else."""

    def __init__(self, name: str, keys: pa.Schema, kind: pa.DataType, views: int) -> None:
        self.kind = kind
        self.views = views
        self._name = name
        self._keys = keys
        self._owner: SlotOwner | None = None
        self._waiting: list[StateTable] = []
        """Restored, and not read yet: the owner is not known."""

    def own(self, table: SlotOwner) -> None:
        self._owner = table
        waiting, self._waiting = self._waiting, []
        for stored in waiting:
            data = self._fitted(stored.data)
            for start in range(0, data.num_rows, PART):
                self._fill(*self._found(table, data.slice(start, PART)))

    def check_same(
        self, wanted: type[SlotValues], keys: pa.Schema, kind: pa.DataType, views: int
    ) -> None:
        """Asking again for the name must mean the same values."""
        known, asked = (self._keys, self.kind, self.views), (keys, kind, views)
        if known != asked or type(self) is not wanted:
            raise StateError(
                f"values '{self._name}' are {type(self).__name__} of keys {self._keys.names}, type "
                f"{self.kind}, {self.views} views; they are asked for as {wanted.__name__} of keys "
                f"{keys.names}, type {kind}, {views} views"
            )

    def freeze(self, name: str) -> FrozenValues | _Carried:
        """The values as they are now, to be encoded on any thread; nothing is copied."""
        if self._owner is None:
            return _Carried(tuple(self._waiting))
        return FrozenValues(name, self._keys, self._owner.freeze_keys(), self._freeze())

    def restore(self, tables: Iterable[StateTable]) -> None:
        self._waiting = list(tables)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of all arrays, without those that values of text or other types take by
        themselves."""

    @abstractmethod
    def _freeze(self) -> Callable[[], Found]:
        """Makes all pairs that count anything, as they are now."""

    @abstractmethod
    def _fill(self, slots: Slots, values: pa.Array, counts: Sequence[Int64s]) -> None:
        """Take in pairs, distinct and new."""

    @property
    def _stored_kind(self) -> pa.DataType:
        return stored_kind(self.kind)

    def _fitted(self, stored: pa.Table) -> pa.Table:
        return fitted(stored, self._name, self._keys, self.kind, self.views)

    def _found(self, table: SlotOwner, stored: pa.Table) -> Found:
        """Stored pairs, with the slots that their keys have now."""
        columns = [pa.concat_arrays(column.chunks) for column in stored.columns[1:]]
        width = len(self._keys)
        keys = []
        for column, kind in zip(columns, self._keys.types, strict=False):
            plain = storage_type(kind)
            column = column if column.type == plain else column.cast(plain)
            keys.append(as_declared(column, kind))
        slots = table.slots(pa.RecordBatch.from_arrays(keys, schema=self._keys))
        return slots, columns[width], [numpy_of(column) for column in columns[width + 1 :]]


@dataclass(frozen=True)
class FrozenValues:
    """Values at a point in time."""

    name: str
    schema: pa.Schema
    keys: Frozen
    pairs: Callable[[], Found]

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if there are none."""
        slots, values, counts = self.pairs()
        if not len(slots):
            return None
        keys = self.keys()
        batch = pa.RecordBatch.from_arrays(keys, names=self.schema.names)
        groups = key_groups_of(batch, max_parallelism)[slots]
        order = group_order(groups)
        at, owners = pa.array(order), pa.array(slots[order])
        data = {KEY_GROUP: pa.array(groups[order])}
        for field, column in zip(self.schema, keys, strict=True):
            data[KEY_PREFIX + field.name] = take_column(_widened(column), owners)
        data[VALUE] = take_column(values, at)
        for view, numbers in enumerate(counts):
            data[f"{COUNT_PREFIX}{view}"] = pa.array(numbers[order])
        return StateTable(self.name, KIND, pa.table(data))


@dataclass(frozen=True)
class _Carried:
    """Restored tables that nobody has read."""

    tables: tuple[StateTable, ...]

    def table(self, max_parallelism: int) -> StateTable | None:
        return join(self.tables) if self.tables else None


def fitted(stored: pa.Table, name: str, keys: pa.Schema, kind: pa.DataType, views: int) -> pa.Table:
    """The stored columns of values in the types that they have now; StateError, which shows both,
    if that would change what a key or a value is."""
    wanted = [(KEY_PREFIX + field.name, stored_kind(field.type)) for field in keys]
    wanted += [(VALUE, stored_kind(kind))]
    wanted += [(f"{COUNT_PREFIX}{view}", pa.int64()) for view in range(views)]
    found = [(field.name, field.type) for field in stored.schema][1:]
    if found == wanted:
        return stored
    columns: list[pa.ChunkedArray | None] = [None]
    if [name for name, _ in found] == [name for name, _ in wanted]:
        pairs = zip(stored.columns[1:], wanted, strict=True)
        columns = [_wider(column, *named) for column, named in pairs]
    if any(column is None for column in columns):
        raise StateError(
            f"values '{name}' were stored as {_text(found)} and are declared as {_text(wanted)}: "
            "restore them as they were stored, or give the operator a new uid"
        )
    return pa.table([stored.column(0), *columns], names=stored.column_names)


def _wider(column: pa.ChunkedArray, name: str, kind: pa.DataType) -> pa.ChunkedArray | None:
    """The column in this type; None if that is not the same values, or keys of the same hash."""
    wide = widened(column, kind)
    return same_hashes(column, wide) if wide is not None and name.startswith(KEY_PREFIX) else wide


def stored_kind(kind: pa.DataType) -> pa.DataType:
    """The type in which values and keys of this type are stored."""
    plain = storage_type(kind)
    return wide_text(plain) if is_text(plain) else plain


def _widened(column: pa.Array) -> pa.Array:
    """A column as of `stored_kind`: a key that occurs a million times is a long text."""
    wide = stored_kind(column.type)
    if column.type == wide:
        return column
    return (column.dictionary_decode() if pa.types.is_dictionary(column.type) else column).cast(
        wide
    )


def _text(fields: Sequence[tuple[str, pa.DataType]]) -> str:
    return "[" + ", ".join(f"{name}: {kind}" for name, kind in fields) + "]"

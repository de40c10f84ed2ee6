"""The column face in memory: a family of tables, one per namespace, as state tables and back.

Snapshot: `__key_group | namespace | key.<column>... | acc.<column>...`, one row per key and
namespace. Dictionary-encoded and view key columns are stored plain, codes as what they stand for: a
key that is a Python object as its pickle (`stored_keys`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Bools, Slots, numpy_of
from ..core.errors import StateError
from ..core.taking import take_table
from .backend import KEY_GROUP, AccColumn, StateTable
from .column_face import SlotTable, TableState
from .column_index import FIRST_SLOTS
from .column_migration import fitted
from .group_sort import sorted_by_group
from .increments import Layer, Since
from .names import ACC_PREFIX, KEY_PREFIX, NAMESPACE
from .object_keys import ObjectKeyType
from .slot_table import FrozenTable, MemorySlotTable, text_of
from .stored_keys import StoredKeys, key_read, stored_type
from .value_store import MakeStores, Stores
from .whole import Freeze, WholeState

if TYPE_CHECKING:
    from .table_deltas import TableRecord

_MOST_ROOM = 1 << 16
"""A table gets room for as many keys as the one dropped last had, but for no more than this."""


class MemoryTableState(TableState, WholeState):
    """All namespaces of one table state. Single-threaded."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        accumulators: Sequence[AccColumn],
        key_columns: int | None = None,
        values: MakeStores | None = None,
    ) -> None:
        """`values`: makes what codes stand for, for each namespace by itself: so a namespace goes
        with all its values."""
        self._name = name
        self._values = dict(values or {})
        self._schema = schema
        self._key_columns = len(schema) if key_columns is None else key_columns
        self._accumulators = tuple(accumulators)
        self._tables: dict[int, MemorySlotTable] = {}
        self._room = FIRST_SLOTS
        """What a new table starts with: namespaces often are windows of about equal size."""
        self._record: TableRecord | None = None
        """Of changes; None until a snapshot wants to be continued."""

    def table(self, namespace: int = 0) -> MemorySlotTable:
        table = self._tables.get(namespace)
        if table is None:
            stores = {name: make() for name, make in self._values.items()}
            table = MemorySlotTable(
                self._name, self._schema, self._accumulators, self._room, stores
            )
            self._tables[namespace] = table
        return table

    def namespaces(self) -> list[int]:
        return sorted(self._tables)

    def drop(self, namespace: int) -> None:
        table = self._tables.pop(namespace, None)
        if table is not None:
            needed = 1 << max(0, len(table) - 1).bit_length()
            self._room = min(max(needed, FIRST_SLOTS), _MOST_ROOM)

    def check_same(
        self, schema: pa.Schema, accumulators: Sequence[AccColumn], key_columns: int | None
    ) -> None:
        """Asking again for the name must mean the same table."""
        if schema != self._schema or tuple(accumulators) != self._accumulators:
            raise StateError(
                f"table state '{self._name}' has keys {text_of(self._schema)} and accumulators "
                f"{list(self._accumulators)}; it is asked for with keys {text_of(schema)} and "
                f"accumulators {list(accumulators)}"
            )
        width = len(schema) if key_columns is None else key_columns
        if width != self._key_columns:
            raise StateError(
                f"table state '{self._name}' has {self._key_columns} key columns that decide the "
                f"key group; it is asked for with {width}"
            )

    def freeze(self, name: str) -> TableFreeze:
        """The synchronous half of a snapshot."""
        parts = [(n, self._tables[n].freeze()) for n in self.namespaces() if len(self._tables[n])]
        keys = StoredKeys(self._schema.types)
        return TableFreeze(name, self._schema, parts, self._key_columns, keys)

    def freeze_since(self, name: str, since: Since) -> tuple[Freeze, bool]:
        """Tables whose keys are objects are written whole: equal objects may have two pickles, by
        which nobody could tell that a row replaces another."""
        if any(isinstance(kind, ObjectKeyType) for kind in self._schema.types):
            return self.freeze(name), False
        if self._record is None:
            from .table_deltas import TableRecord

            self._record = TableRecord()
        stores = {column: make() for column, make in self._values.items()}
        declared = stored_schema(self._schema, self._accumulators, stores, spaced=True)
        delta = self._record.freeze(name, since, self._tables, declared, self._key_columns)
        if delta is None:
            return replace(self.freeze(name), layer="base"), False
        return delta, True

    def restore(self, tables: Iterable[StateTable]) -> None:
        """Into an empty state. StateError if keys or columns are not those declared."""
        for table in tables:
            stores = {name: make() for name, make in self._values.items()}
            declared = stored_schema(self._schema, self._accumulators, stores, spaced=True)
            data = fitted(f"table state '{self._name}'", table.data, declared)
            namespaces = numpy_of(data.column(NAMESPACE))
            for namespace in np.unique(namespaces).tolist():
                rows = take_table(data, pa.array(np.flatnonzero(namespaces == namespace)))
                self._fill(self.table(namespace), rows.combine_chunks())

    def _fill(self, table: MemorySlotTable, rows: pa.Table) -> None:
        slots = table.upsert(
            [
                key_read(rows.column(KEY_PREFIX + field.name), field.type, self._name)
                for field in self._schema
            ]
        )
        fill_columns(table, slots, self._accumulators, rows)

    def mark_objects(self, held: Bools) -> None:
        """Set the codes of objects that are in keys."""
        for table in self._tables.values():
            table.mark_objects(held)

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self._tables.values())


@dataclass(frozen=True)
class TableFreeze:
    """A point in time of a table state: its tables by namespace."""

    name: str
    schema: pa.Schema
    parts: list[tuple[int, FrozenTable]]
    key_columns: int
    stored: StoredKeys
    layer: Layer = "whole"

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if there is nothing."""
        pieces = []
        for namespace, frozen in self.parts:
            piece = self._rows(namespace, frozen, max_parallelism)
            if piece.num_rows:
                pieces.append(piece)
            del piece
        if not pieces:
            return None
        return StateTable(self.name, "table", sorted_by_group(pieces), layer=self.layer)

    def _rows(self, namespace: int, frozen: FrozenTable, max_parallelism: int) -> pa.Table:
        keys, columns = frozen.read()
        groups = self.stored.groups(keys[: self.key_columns], max_parallelism)
        shown = self.stored.stored(keys, self.name)
        batch = pa.RecordBatch.from_arrays(shown, names=self.schema.names)
        spaces = pa.array(np.full(len(batch), namespace, np.int64))
        return encoded_rows(groups, spaces, batch, columns)


def encoded_rows(
    groups: npt.NDArray[np.int32],
    namespaces: pa.Array | None,
    keys: pa.RecordBatch,
    columns: Sequence[tuple[AccColumn, pa.Array]],
) -> pa.Table:
    """One row per slot, as snapshots hold them."""
    data = {KEY_GROUP: pa.array(groups)}
    if namespaces is not None:
        data[NAMESPACE] = namespaces
    for name, column in zip(keys.schema.names, keys.columns, strict=True):
        data[KEY_PREFIX + name] = column
    for acc, column in columns:
        data[ACC_PREFIX + acc.name] = column
    return pa.table(data)


def fill_columns(
    table: SlotTable,
    slots: Slots,
    columns: Sequence[AccColumn],
    rows: pa.Table,
) -> None:
    """Put stored columns into these slots, which were touched."""
    for acc in columns:
        array = table.column(acc.name)
        if acc.words:
            words = array.view(np.int64).reshape(-1, len(acc.words))
            for at, name in enumerate(acc.words):
                if name is not None:
                    words[slots, at] = numpy_of(rows.column(ACC_PREFIX + name))
            continue
        stored = rows.column(ACC_PREFIX + acc.name)
        if acc.name in table.stores:
            flat = pa.concat_arrays(stored.chunks)
            codes = table.stores[acc.name].append(flat)
            array[slots] = np.where(numpy_of(flat.is_valid()), codes, -1)
        else:
            array[slots] = numpy_of(stored).astype(acc.dtype, copy=False)


def stored_schema(
    keys: pa.Schema,
    columns: Sequence[AccColumn],
    values: Stores,
    spaced: bool,
) -> pa.Schema:
    """Of state tables; `spaced`: with a namespace."""
    fields = [pa.field(KEY_GROUP, pa.int32())]
    if spaced:
        fields.append(pa.field(NAMESPACE, pa.int64()))
    for field in keys:
        fields.append(pa.field(KEY_PREFIX + field.name, stored_type(field.type)))
    for acc in columns:
        if acc.words:
            named = (name for name in acc.words if name is not None)
            fields += [pa.field(ACC_PREFIX + name, pa.int64()) for name in named]
        elif acc.name in values:
            fields.append(pa.field(ACC_PREFIX + acc.name, values[acc.name].wide))
        else:
            kind = pa.from_numpy_dtype(np.dtype(acc.dtype))
            fields.append(pa.field(ACC_PREFIX + acc.name, kind))
    return pa.schema(fields)

"""The column face in memory: per namespace a key index and one numpy array per accumulator.

Snapshot: `__key_group | namespace | key.<column>... | acc.<accumulator>...`, one row per key and
namespace. Dictionary-encoded and view key columns are stored plain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import numpy_of
from ..core.errors import StateError, TypeMismatchError
from ..core.growing import Growing
from .backend import KEY_GROUP, AccColumn, ColumnTable, Slots, StateTable, TableState
from .column_index import FIRST_SLOTS, storage_type
from .key_groups import group_order, key_groups_of
from .key_index import CompositeIndex, Frozen, as_declared

_MOST_ROOM = 1 << 16
"""A table gets room for as many keys as the one dropped last had, but for no more than this."""

NAMESPACE, KEY_PREFIX, ACC_PREFIX = "namespace", "key.", "acc."


class MemoryColumnTable(ColumnTable):
    """Invariants: every array in `_columns` is at least len(self) long; entries at and beyond
    len(self) are initial unless a caller wrote there."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        accumulators: Sequence[AccColumn],
        room: int = FIRST_SLOTS,
    ) -> None:
        """`room`: for so many keys from the start; a power of two."""
        self._name = name
        self._schema = schema
        self._types = list(schema.types)
        self._index = CompositeIndex(schema, room)
        self._columns = {acc.name: Growing(acc.dtype, acc.initial, room) for acc in accumulators}
        self._capacity = room

    def __len__(self) -> int:
        return len(self._index)

    def slots(self, keys: pa.RecordBatch) -> Slots:
        columns = keys.columns
        if [column.type for column in columns] != self._types:
            columns = _fitted(self._name, keys, self._schema)
        return self.upsert(columns)

    def upsert(self, columns: list[pa.Array]) -> Slots:
        """`slots` for key columns of the declared types or of their storage types."""
        slots = self._index.upsert(columns)
        if len(self._index) > self._capacity:
            self._grow()
        return slots

    def column(self, name: str) -> npt.NDArray[Any]:
        try:
            return self._columns[name].array
        except KeyError:
            raise StateError(
                f"table state '{self._name}' has no accumulator '{name}', only "
                f"{sorted(self._columns)}"
            ) from None

    def keys(self) -> pa.RecordBatch:
        pairs = zip(self._index.freeze()(), self._types, strict=True)
        columns = [as_declared(column, kind) for column, kind in pairs]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def freeze_keys(self) -> Frozen:
        return self._index.freeze()

    def freeze(self) -> tuple[Frozen, dict[str, npt.NDArray[Any]]]:
        """Keys to be made later, and copies of the accumulators."""
        count = len(self)
        copies = {name: held.array[:count].copy() for name, held in self._columns.items()}
        return self._index.freeze(), copies

    def _grow(self) -> None:
        needed = len(self._index)
        for held in self._columns.values():
            held.reserve(needed)
        self._capacity = min((len(held.array) for held in self._columns.values()), default=needed)


class MemoryTableState(TableState):
    """All namespaces of one table state. Single-threaded."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        accumulators: Sequence[AccColumn],
        key_columns: int | None = None,
    ) -> None:
        self._name = name
        self._schema = schema
        self._key_columns = len(schema) if key_columns is None else key_columns
        self._accumulators = tuple(accumulators)
        self._tables: dict[int, MemoryColumnTable] = {}
        self._room = FIRST_SLOTS
        """What a new table starts with: namespaces often are windows of about equal size."""

    def table(self, namespace: int = 0) -> MemoryColumnTable:
        table = self._tables.get(namespace)
        if table is None:
            table = MemoryColumnTable(self._name, self._schema, self._accumulators, self._room)
            self._tables[namespace] = table
        return table

    def namespaces(self) -> list[int]:
        return sorted(self._tables)

    def drop(self, namespace: int) -> None:
        table = self._tables.pop(namespace, None)
        if table is not None:
            needed = 1 << max(0, len(table) - 1).bit_length()
            self._room = min(max(needed, FIRST_SLOTS), _MOST_ROOM)

    def check_same(self, schema: pa.Schema, accumulators: Sequence[AccColumn]) -> None:
        """Asking again for the name must mean the same table."""
        if schema != self._schema or tuple(accumulators) != self._accumulators:
            raise StateError(
                f"table state '{self._name}' has keys {_text(self._schema)} and accumulators "
                f"{list(self._accumulators)}; it is asked for with keys {_text(schema)} and "
                f"accumulators {list(accumulators)}"
            )

    def freeze(self, name: str) -> TableFreeze:
        """The synchronous half of a snapshot."""
        parts = [(n, *self._tables[n].freeze()) for n in self.namespaces() if len(self._tables[n])]
        return TableFreeze(name, self._schema, self._accumulators, parts, self._key_columns)

    def restore(self, tables: Iterable[StateTable]) -> None:
        """Into an empty state. StateError if keys or accumulators are not those declared."""
        for table in tables:
            self._check_stored(table.data.schema)
            namespaces = numpy_of(table.data.column(NAMESPACE))
            for namespace in np.unique(namespaces).tolist():
                rows = table.data.take(pa.array(np.flatnonzero(namespaces == namespace)))
                self._fill(self.table(namespace), rows.combine_chunks())

    def _fill(self, table: MemoryColumnTable, rows: pa.Table) -> None:
        keys = rows.select([KEY_PREFIX + name for name in self._schema.names])
        slots = table.upsert([column.combine_chunks() for column in keys.columns])
        for acc in self._accumulators:
            stored = numpy_of(rows.column(ACC_PREFIX + acc.name))
            table.column(acc.name)[slots] = stored.astype(acc.dtype, copy=False)

    def _check_stored(self, stored: pa.Schema) -> None:
        declared = _stored_schema(self._schema, self._accumulators)
        for prefix, what in ((KEY_PREFIX, "keys"), (ACC_PREFIX, "accumulators")):
            old, new = _fields(stored, prefix), _fields(declared, prefix)
            same = old == new if what == "keys" else sorted(old) == sorted(new)
            if not same:
                raise StateError(
                    f"table state '{self._name}' was stored with {what} {_join(old)} and is "
                    f"declared with {what} {_join(new)}: restore it with the {what} it was stored "
                    "with, or give the operator a new uid"
                )


@dataclass(frozen=True)
class TableFreeze:
    """A point in time of a table state: (namespace, keys, accumulators) of each namespace."""

    name: str
    schema: pa.Schema
    accumulators: tuple[AccColumn, ...]
    parts: list[tuple[int, Frozen, dict[str, npt.NDArray[Any]]]]
    key_columns: int

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if there is nothing."""
        if not self.parts:
            return None
        schema = _stored_schema(self.schema, self.accumulators)
        pieces, groups = [], []
        for namespace, frozen, columns in self.parts:
            keys = pa.RecordBatch.from_arrays(frozen(), names=self.schema.names)
            grouping = keys.select(list(range(self.key_columns)))
            groups.append(key_groups_of(grouping, max_parallelism))
            arrays = [pa.array(groups[-1]), pa.array(np.full(len(keys), namespace, np.int64))]
            arrays += keys.columns
            arrays += [pa.array(columns[acc.name]) for acc in self.accumulators]
            pieces.append(pa.Table.from_arrays(arrays, schema=schema))
        order = group_order(np.concatenate(groups))
        return StateTable(self.name, "table", pa.concat_tables(pieces).take(pa.array(order)))


def _stored_schema(schema: pa.Schema, accumulators: Sequence[AccColumn]) -> pa.Schema:
    fields = [pa.field(KEY_GROUP, pa.int32()), pa.field(NAMESPACE, pa.int64())]
    for field in schema:
        fields.append(pa.field(KEY_PREFIX + field.name, storage_type(field.type)))
    for acc in accumulators:
        fields.append(pa.field(ACC_PREFIX + acc.name, pa.from_numpy_dtype(np.dtype(acc.dtype))))
    return pa.schema(fields)


def _fields(schema: pa.Schema, prefix: str) -> list[tuple[str, str]]:
    names = [field for field in schema if field.name.startswith(prefix)]
    return [(field.name.removeprefix(prefix), str(field.type)) for field in names]


def _join(fields: list[tuple[str, str]]) -> str:
    return "[" + ", ".join(f"{name}: {kind}" for name, kind in fields) + "]"


def _text(schema: pa.Schema) -> str:
    return _join([(field.name, str(field.type)) for field in schema])


def _fitted(name: str, keys: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    """Key columns of other but convertible types, as those declared."""
    try:
        if keys.num_columns != len(schema):
            raise pa.ArrowInvalid(f"{keys.num_columns} columns instead of {len(schema)}")
        pairs = zip(keys.columns, schema.types, strict=True)
        return [column.cast(kind) for column, kind in pairs]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TypeMismatchError(
            f"table state '{name}': keys {_text(keys.schema)} do not fit the declared keys "
            f"{_text(schema)}: {error}"
        ) from error

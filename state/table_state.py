"""The column face in memory: a family of tables, one per namespace, as state tables and back.

Snapshot: `__key_group | namespace | key.<column>... | acc.<column>...`, one row per key and
namespace. Dictionary-encoded and view key columns are stored plain, codes as what they stand for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Slots, numpy_of
from ..core.batch import take_table
from ..core.errors import StateError
from .backend import KEY_GROUP, AccColumn, ColumnTable, StateTable, TableState
from .column_index import FIRST_SLOTS, storage_type
from .key_groups import group_order, key_groups_of
from .slot_table import FrozenTable, MemoryColumnTable, text_of
from .value_store import Values

_MOST_ROOM = 1 << 16
"""A table gets room for as many keys as the one dropped last had, but for no more than this."""

NAMESPACE, KEY_PREFIX, ACC_PREFIX = "namespace", "key.", "acc."


class MemoryTableState(TableState):
    """All namespaces of one table state. Single-threaded."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        accumulators: Sequence[AccColumn],
        key_columns: int | None = None,
        values: Mapping[str, Values] | None = None,
    ) -> None:
        self._name = name
        self._values = dict(values or {})
        self._schema = schema
        self._key_columns = len(schema) if key_columns is None else key_columns
        self._accumulators = tuple(accumulators)
        self._tables: dict[int, MemoryColumnTable] = {}
        self._room = FIRST_SLOTS
        """What a new table starts with: namespaces often are windows of about equal size."""

    def table(self, namespace: int = 0) -> MemoryColumnTable:
        table = self._tables.get(namespace)
        if table is None:
            if self._values and self._tables:
                raise StateError(f"table state '{self._name}' has values and one namespace only")
            table = MemoryColumnTable(
                self._name, self._schema, self._accumulators, self._room, self._values
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
        return TableFreeze(name, self._schema, parts, self._key_columns)

    def restore(self, tables: Iterable[StateTable]) -> None:
        """Into an empty state. StateError if keys or columns are not those declared."""
        for table in tables:
            declared = stored_schema(self._schema, self._accumulators, self._values, spaced=True)
            check_stored(self._name, table.data.schema, declared)
            namespaces = numpy_of(table.data.column(NAMESPACE))
            for namespace in np.unique(namespaces).tolist():
                rows = table.data.take(pa.array(np.flatnonzero(namespaces == namespace)))
                self._fill(self.table(namespace), rows.combine_chunks())

    def _fill(self, table: MemoryColumnTable, rows: pa.Table) -> None:
        keys = rows.select([KEY_PREFIX + name for name in self._schema.names])
        slots = table.upsert([column.combine_chunks() for column in keys.columns])
        fill_columns(table, slots, self._accumulators, self._values, rows)

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

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if there is nothing."""
        pieces, groups = [], []
        for namespace, frozen in self.parts:
            keys, columns = frozen.read()
            if not len(keys[0]):
                continue
            batch = pa.RecordBatch.from_arrays(keys, names=self.schema.names)
            grouping = batch.select(list(range(self.key_columns)))
            groups.append(key_groups_of(grouping, max_parallelism))
            spaces = pa.array(np.full(len(batch), namespace, np.int64))
            pieces.append(encoded_rows(groups[-1], spaces, batch, columns))
        if not pieces:
            return None
        order = group_order(np.concatenate(groups))
        return StateTable(self.name, "table", take_table(pa.concat_tables(pieces), pa.array(order)))


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
    table: ColumnTable,
    slots: Slots,
    columns: Sequence[AccColumn],
    values: Mapping[str, Values],
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
        if acc.name in values:
            flat = pa.concat_arrays(stored.chunks)
            codes = values[acc.name].append(flat)
            array[slots] = np.where(numpy_of(flat.is_valid()), codes, -1)
        else:
            array[slots] = numpy_of(stored).astype(acc.dtype, copy=False)


def stored_schema(
    keys: pa.Schema,
    columns: Sequence[AccColumn],
    values: Mapping[str, Values],
    spaced: bool,
) -> pa.Schema:
    """Of state tables; `spaced`: with a namespace."""
    fields = [pa.field(KEY_GROUP, pa.int32())]
    if spaced:
        fields.append(pa.field(NAMESPACE, pa.int64()))
    for field in keys:
        fields.append(pa.field(KEY_PREFIX + field.name, storage_type(field.type)))
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


def check_stored(name: str, stored: pa.Schema, declared: pa.Schema) -> None:
    """StateError naming both if keys or columns differ."""
    for prefix, what in ((KEY_PREFIX, "keys"), (ACC_PREFIX, "accumulators")):
        old, new = _fields(stored, prefix), _fields(declared, prefix)
        same = old == new if what == "keys" else sorted(old) == sorted(new)
        if not same:
            raise StateError(
                f"table state '{name}' was stored with {what} {_join(old)} and is "
                f"declared with {what} {_join(new)}: restore it with the {what} it was stored "
                "with, or give the operator a new uid"
            )


def _fields(schema: pa.Schema, prefix: str) -> list[tuple[str, str]]:
    names = [field for field in schema if field.name.startswith(prefix)]
    return [(field.name.removeprefix(prefix), str(field.type)) for field in names]


def _join(fields: list[tuple[str, str]]) -> str:
    return "[" + ", ".join(f"{name}: {kind}" for name, kind in fields) + "]"

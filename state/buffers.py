"""Rows kept as they are, in memory: chunks per namespace.

Snapshot: `__key_group | namespace | row.<column>...`, one row per row; view columns are stored
plain. Batches are immutable, so freezing copies lists of references only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ..core.arrays import Bools, Groups, numpy_of
from ..core.batch import schema_text, take_table
from ..core.errors import StateError, TypeMismatchError
from ..core.value_types import empty_table
from .backend import KEY_GROUP, BufferState, StateTable
from .column_migration import fitted
from .key_groups import group_order
from .object_keys import ObjectKeyType, codes_of
from .stored_keys import StoredKeys, key_read, stored_type
from .whole import WholeState

NAMESPACE, ROW_PREFIX = "namespace", "row."


@dataclass
class _Chunks:
    """Parallel lists: rows, and the key group of each row."""

    rows: list[pa.Table] = field(default_factory=list)
    groups: list[Groups] = field(default_factory=list)


class MemoryBufferState(BufferState, WholeState):
    """Single-threaded. A namespace is present while it holds at least one chunk."""

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self._name = name
        self._schema = schema
        self._spaces: dict[int, _Chunks] = {}

    def append(self, namespace: int, rows: pa.RecordBatch, key_groups: Groups) -> None:
        self._append(namespace, pa.Table.from_batches([rows]), key_groups)

    def get(self, namespace: int) -> tuple[pa.Table, Groups]:
        chunks = self._spaces.get(namespace)
        if chunks is None:
            return empty_table(self._schema), np.empty(0, dtype=np.int32)
        if len(chunks.rows) > 1:
            chunks.rows = [pa.concat_tables(chunks.rows)]
            chunks.groups = [np.concatenate(chunks.groups)]
        return chunks.rows[0], chunks.groups[0]

    def replace(self, namespace: int, rows: pa.Table, key_groups: Groups) -> None:
        self.drop(namespace)
        self._append(namespace, rows, key_groups)

    def namespaces(self) -> list[int]:
        return sorted(self._spaces)

    def drop(self, namespace: int) -> None:
        self._spaces.pop(namespace, None)

    def check_same(self, schema: pa.Schema) -> None:
        """Asking again for the name must mean the same columns."""
        if schema != self._schema:
            raise StateError(
                f"buffer state '{self._name}' has columns {self._schema.names} of types "
                f"{list(map(str, self._schema.types))}; it is asked for with {schema.names} of "
                f"types {list(map(str, schema.types))}"
            )

    def freeze(self, name: str) -> BufferFreeze:
        """The synchronous half of a snapshot."""
        parts = [
            (namespace, list(chunks.rows), list(chunks.groups))
            for namespace, chunks in sorted(self._spaces.items())
        ]
        return BufferFreeze(name, parts, StoredKeys(self._schema.types))

    def restore(self, tables: Iterable[StateTable]) -> None:
        """Into an empty state. StateError if the columns are not those declared."""
        for table in tables:
            plain = _plain_schema(self._schema)
            declared = [field.with_name(ROW_PREFIX + field.name) for field in plain]
            data = fitted(f"buffer state '{self._name}'", table.data, declared, (ROW_PREFIX,))
            stored = data.drop_columns([KEY_GROUP, NAMESPACE]).rename_columns(plain.names)
            groups = numpy_of(table.data.column(KEY_GROUP))
            namespaces = numpy_of(table.data.column(NAMESPACE))
            for namespace in np.unique(namespaces).tolist():
                chosen = np.flatnonzero(namespaces == namespace)
                rows = self._read(take_table(stored, pa.array(chosen)))
                self._append(namespace, rows.cast(self._schema), groups[chosen])

    def mark_objects(self, held: Bools) -> None:
        """Set the codes of objects that are in rows."""
        for at, kind in enumerate(self._schema.types):
            if isinstance(kind, ObjectKeyType):
                for chunks in self._spaces.values():
                    for rows in chunks.rows:
                        for chunk in rows.column(at).chunks:
                            held[codes_of(chunk)] = True

    def _read(self, rows: pa.Table) -> pa.Table:
        """Stored rows, with codes for objects."""
        for at, kind in enumerate(self._schema.types):
            if isinstance(kind, ObjectKeyType):
                codes = key_read(rows.column(at), kind, self._name)
                rows = rows.set_column(at, rows.schema.names[at], codes)
        return rows

    def _append(self, namespace: int, rows: pa.Table, key_groups: Groups) -> None:
        if len(rows) != len(key_groups):
            raise StateError(
                f"buffer state '{self._name}': {len(rows)} rows but {len(key_groups)} key groups"
            )
        if not len(rows):
            return
        if not rows.schema.equals(self._schema):
            raise TypeMismatchError(
                f"buffer state '{self._name}': rows have columns "
                f"{schema_text(rows.schema)}, declared are {schema_text(self._schema)}"
            )
        chunks = self._spaces.setdefault(namespace, _Chunks())
        chunks.rows.append(rows)
        chunks.groups.append(np.array(key_groups, dtype=np.int32))


@dataclass(frozen=True)
class BufferFreeze:
    """A point in time of a buffer state: (namespace, rows, key groups) of each namespace."""

    name: str
    parts: list[tuple[int, list[pa.Table], list[Groups]]]
    stored: StoredKeys

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if there is nothing."""
        if not self.parts:
            return None
        rows = pa.concat_tables([chunk for _, chunks, _ in self.parts for chunk in chunks])
        rows = self.stored.stored_rows(rows, self.name)
        groups = np.concatenate([chunk for _, _, chunks in self.parts for chunk in chunks])
        namespaces = np.concatenate(
            [np.full(sum(map(len, chunks)), namespace) for namespace, chunks, _ in self.parts]
        )
        names = [KEY_GROUP, NAMESPACE, *(ROW_PREFIX + name for name in rows.column_names)]
        plain = [_plain(column) for column in rows.columns]
        arrays = [pa.array(groups), pa.array(namespaces, type=pa.int64()), *plain]
        data = pa.Table.from_arrays(arrays, names=names)
        order = group_order(groups)
        return StateTable(self.name, "buffer", take_table(data, pa.array(order)))


_PLAIN = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Arrow cannot gather views of text and bytes."""


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(_PLAIN[column.type]) if column.type in _PLAIN else column


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return stored_type(kind) if isinstance(kind, ObjectKeyType) else _PLAIN.get(kind, kind)

"""Rows kept as they are, in memory: chunks per namespace.

Snapshot: `__key_group | namespace | row.<column>...`, one row per row; view columns are stored
plain. Batches are immutable, so freezing copies lists of references only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ..core.arrays import Bools, Groups, numpy_of
from ..core.batch import schema_text, take_table
from ..core.errors import StateError, TypeMismatchError
from ..core.value_types import empty_table
from .backend import KEY_GROUP, StateTable
from .buffer_changes import (
    ROW_PREFIX,
    BufferDelta,
    BufferRecord,
    Filled,
    Piece,
    encoded,
    plain_type,
)
from .column_face import BufferState
from .column_migration import fitted
from .increments import Layer, Since
from .names import NAMESPACE
from .object_keys import ObjectKeyType, codes_of
from .stored_keys import StoredKeys, key_read, stored_type
from .whole import Freeze, WholeState


@dataclass
class _Chunks:
    """Parallel lists: rows, and the key group of each row. `life`: no other namespace, and no
    former content of this one, has it."""

    life: int
    rows: list[pa.Table] = field(default_factory=list)
    groups: list[Groups] = field(default_factory=list)
    count: int = 0

    def since(self, known: int) -> Iterator[tuple[pa.Table, Groups]]:
        """Those behind the first so many."""
        for rows, groups in zip(self.rows, self.groups, strict=True):
            if known < len(groups):
                yield rows.slice(known), groups[known:]
            known = max(known - len(groups), 0)


class MemoryBufferState(BufferState, WholeState):
    """Single-threaded. A namespace is present while it holds at least one chunk."""

    def __init__(self, name: str, schema: pa.Schema, record: BufferRecord | None = None) -> None:
        """`record`: None: snapshots of it continue no others."""
        self._name = name
        self._schema = schema
        self._record = record
        self._spaces: dict[int, _Chunks] = {}
        self._lives = 0

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

    def count(self, namespace: int) -> int:
        chunks = self._spaces.get(namespace)
        return 0 if chunks is None else chunks.count

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

    def freeze(self, name: str) -> Freeze:
        """The synchronous half of a snapshot."""
        return self._freeze(name, "whole", None)

    def freeze_since(self, name: str, since: Since) -> tuple[Freeze, bool]:
        if self._record is None:
            return self.freeze(name), False
        delta = self._record.advance(since, self._filled(), name in since.whole)
        layer: Layer = "base" if delta is None else "delta"
        return self._freeze(name, layer, delta), delta is not None

    def _filled(self) -> dict[int, Filled]:
        return {ns: Filled(one.life, one.count) for ns, one in self._spaces.items()}

    def _freeze(self, name: str, layer: Layer, delta: BufferDelta | None) -> Freeze:
        known = {} if delta is None else delta.known
        pieces = []
        for namespace, chunks in sorted(self._spaces.items()):
            first = known.get(namespace, 0)
            for rows, groups in chunks.since(first):
                pieces.append(Piece(namespace, first, rows, groups))
                first += len(groups)
        cleared = () if delta is None else delta.cleared
        stored = StoredKeys(self._schema.types)
        return BufferFreeze(name, self._schema, stored, pieces, layer, cleared)

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
        self._check(rows, key_groups)
        if not len(rows):
            return
        chunks = self._spaces.get(namespace)
        if chunks is None:
            self._lives += 1
            chunks = self._spaces[namespace] = _Chunks(self._lives)
        chunks.rows.append(rows)
        chunks.groups.append(np.array(key_groups, dtype=np.int32))
        chunks.count += len(key_groups)

    def _check(self, rows: pa.Table, key_groups: Groups) -> None:
        if len(rows) != len(key_groups):
            raise StateError(
                f"buffer state '{self._name}': {len(rows)} rows but {len(key_groups)} key groups"
            )
        if len(rows) and not rows.schema.equals(self._schema):
            raise TypeMismatchError(
                f"buffer state '{self._name}': rows have columns "
                f"{schema_text(rows.schema)}, declared are {schema_text(self._schema)}"
            )


@dataclass(frozen=True)
class BufferFreeze:
    """A point in time of a buffer state, or what changed in it."""

    name: str
    schema: pa.Schema
    stored: StoredKeys
    pieces: Collection[Piece]
    layer: Layer
    cleared: Collection[int]

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if there is nothing."""
        return encoded(self.name, self.schema, self.stored, self.pieces, self.layer, self.cleared)


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return stored_type(kind) if isinstance(kind, ObjectKeyType) else plain_type(kind)

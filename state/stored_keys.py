"""Key columns as snapshots hold them: as they are kept, but for codes of objects, which are stored
as the objects (`object_keys`).

A state that takes object keys freezes their meaning with its numbers (`StoredKeys`), reads them
back with `keys_read`, and says which codes it holds when those of no state are to be forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.errors import StateError
from .column_index import storage_type
from .key_groups import key_groups_of
from .object_keys import STORED, FrozenKeys, ObjectKeyType, codes_of


class StoredKeys:
    """Of columns of these types, at a point in time; asked on any thread."""

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self._frozen: list[FrozenKeys | None] = [
            kind.keys.freeze() if isinstance(kind, ObjectKeyType) else None for kind in kinds
        ]

    def groups(self, columns: Sequence[pa.Array], max_parallelism: int) -> npt.NDArray[np.int32]:
        """The key group of each row of the leading columns, as they are kept."""
        frozen = [one for one in self._frozen[: len(columns)] if one is not None]
        if not frozen:
            names = [str(at) for at in range(len(columns))]
            batch = pa.RecordBatch.from_arrays(list(columns), names=names)
            return key_groups_of(batch, max_parallelism)
        assert len(columns) == 1, "an object is the whole key"
        hashes = frozen[0].hashes(codes_of(columns[0]))
        return (hashes % np.uint64(max_parallelism)).astype(np.int32)

    def stored(self, columns: Sequence[pa.Array], state: str) -> list[pa.Array]:
        """All columns as the snapshot holds them."""
        pairs = zip(columns, self._frozen, strict=True)
        return [
            column if frozen is None else frozen.stored(codes_of(column), state)
            for column, frozen in pairs
        ]

    def stored_rows(self, rows: pa.Table, state: str) -> pa.Table:
        """A table whose columns these are, likewise."""
        for at, frozen in enumerate(self._frozen):
            if frozen is not None:
                chunks = rows.column(at).chunks
                codes = np.concatenate([codes_of(chunk) for chunk in chunks]) if chunks else _NONE
                rows = rows.set_column(at, rows.schema.names[at], frozen.stored(codes, state))
        return rows


_NONE = np.empty(0, dtype=np.int64)


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a snapshot holds keys of this type."""
    return STORED if isinstance(kind, ObjectKeyType) else storage_type(kind)


def key_read(column: pa.ChunkedArray, kind: pa.DataType, state: str) -> pa.Array:
    """A stored key column of this declared type, as `upsert` of an index takes it."""
    if isinstance(kind, ObjectKeyType):
        return kind.keys.restored(column, state)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def refuse_objects(kinds: Sequence[pa.DataType], state: str) -> None:
    """StateError if one is of object keys, for states that would store codes."""
    if any(isinstance(kind, ObjectKeyType) for kind in kinds):
        raise StateError(f"state '{state}' cannot keep keys that are Python objects")

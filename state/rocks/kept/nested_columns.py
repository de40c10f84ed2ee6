"""Columns of kept rows that are neither of one width nor texts, as bytes: a `RowCache` has them so,
in frames and in RocksDB.

A value is as `tables.value_bytes` has it, of the plain column (`database.plain_columns`). Nothing
else reads them: what lies in RocksDB so goes with its task, and checkpoints hold tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...column_index import storage_type
from ...rows.columns import is_fixed
from ...rows.texts import is_text
from ..database.plain_columns import from_plain, has_plain, plain_type, to_plain
from ..tables.value_bytes import RowReader, has_bytes, joined, segments_of

_HELD = pa.large_binary()


def is_kept_as_it_is(kind: pa.DataType) -> bool:
    """Whether values of a storage type are of one width, or texts."""
    return is_fixed(kind) or is_text(kind)


def rows_fit(schema: pa.Schema) -> bool:
    """Whether rows of this schema have bytes: all but those with codes of objects, unions, and
    what is encoded by runs."""
    kinds = [storage_type(kind) for kind in schema.types if has_plain(kind)]
    if not kinds or len(kinds) < len(schema):
        return False
    return all(is_kept_as_it_is(kind) or has_bytes(plain_type(kind)) for kind in kinds)


class NestedColumns:
    """Of rows of these storage types."""

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self._kinds = list(kinds)
        self._apart = [not is_kept_as_it_is(kind) for kind in kinds]
        self.held = [_HELD if a else kind for a, kind in zip(self._apart, kinds, strict=True)]
        """The types in which rows are held."""

    def packed(self, arrays: Sequence[pa.Array]) -> list[pa.Array]:
        """All columns as they are held. Others but nested ones as they are."""
        if not any(self._apart):
            return list(arrays)
        triples = zip(arrays, self._kinds, self._apart, strict=True)
        return [_packed(array, kind) if apart else array for array, kind, apart in triples]

    def unpacked(self, indices: Sequence[int], held: Sequence[pa.Array]) -> list[pa.Array]:
        """Some columns, of what is held of them."""
        pairs = zip(indices, held, strict=True)
        return [
            _unpacked(array, self._kinds[at]) if self._apart[at] else array for at, array in pairs
        ]


def _packed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type != kind and not pa.types.is_dictionary(array.type):
        array = array.cast(kind)
    return pa.array(joined(segments_of(to_plain(array)), len(array)), _HELD)


def _unpacked(array: pa.Array, kind: pa.DataType) -> pa.Array:
    reader = RowReader(array.to_pylist())
    values = reader.values(plain_type(kind))
    reader.end()
    return from_plain(values, kind)

"""What rows hold, compared: hashes find rows that may be equal, values tell whether they are.

Rows are equal as keys are: null equals null, NaN equals NaN, and 0.0 equals -0.0. Lists, structs
and maps are compared as texts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.arrays import Bools, Int64s, numpy_of
from ..core.union_type import UnionType
from ..core.value_types import ValueType
from ..state.column_index import storage_type
from ..state.hash_columns import hash_columns, validity_of
from ..state.key_index import CompositeIndex
from ..state.key_words import is_words, to_words


def hash_rows(columns: Sequence[pa.Array]) -> Int64s:
    """A 64-bit hash of each row's content; equal rows have equal ones."""
    plain = [_plain(column) for column in columns]
    names = [str(at) for at in range(len(plain))]
    hashed: Int64s = hash_columns(pa.RecordBatch.from_arrays(plain, names=names)).view(np.int64)
    return hashed


def content_codes(columns: Sequence[pa.Array]) -> Int64s:
    """A number of each row, from 0 on: the same for two rows exactly if they are equal."""
    plain = [_plain(column) for column in columns]
    index = CompositeIndex(pa.schema([(str(at), one.type) for at, one in enumerate(plain)]))
    return index.upsert(plain)


def same_rows(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Bools:
    """Row by row, whether all columns are equal; they have the same types."""
    same = np.ones(len(left[0]) if left else 0, dtype=np.bool_)
    for mine, other in zip(left, right, strict=True):
        same &= _same(_plain(mine), _plain(other))
    return same


def _same(mine: pa.Array, other: pa.Array) -> Bools:
    equal: Bools
    if is_words(mine.type):
        equal = to_words(mine) == to_words(other)
    elif pa.types.is_large_string(mine.type) or pa.types.is_large_binary(mine.type):
        equal = numpy_of(pc.equal(mine, other).fill_null(False))
    else:
        index = CompositeIndex(pa.schema([pa.field("value", mine.type)]))
        equal = index.upsert([mine]) == index.upsert([other])
        return equal
    if mine.null_count or other.null_count:
        held, given = validity_of(mine), validity_of(other)
        equal = np.where(held & given, equal, held == given)
    return equal


def _plain(column: pa.Array) -> pa.Array:
    """As it can be hashed, indexed and compared."""
    kind = column.type
    if isinstance(kind, UnionType):
        return pa.array([repr(value) for value in kind.values(column)], pa.large_string())
    if isinstance(kind, ValueType):
        return column.storage
    if pa.types.is_nested(kind):
        return pa.array([repr(value) for value in column.to_pylist()], pa.large_string())
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    stored = storage_type(kind)
    return column if stored == kind else column.cast(stored)

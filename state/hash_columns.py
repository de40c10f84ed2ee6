"""The stable hash of keys, column path: the values of `stable_hash`, for whole columns.

Columns are reduced to one of a few payload shapes (8-byte words, byte slices, a small dictionary of
Python values) and hashed by a kernel. Null hashes as None.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.arrays import numpy_of
from ..core.errors import TypeMismatchError
from .hash_kernels import hash_slices, hash_tuples, hash_words
from .hashing import (
    CANONICAL_NAN,
    TAG_BIG_INT,
    TAG_BYTES,
    TAG_DATE,
    TAG_DATETIME,
    TAG_DATETIME_UTC,
    TAG_FLOAT,
    TAG_INT,
    TAG_STR,
    TAG_TIME,
    TAG_TIMEDELTA,
    TAG_TUPLE,
    TAG_UUID,
    stable_hash,
)
from .object_keys import ObjectKeyType

Hashes = npt.NDArray[np.uint64]


def hash_columns(columns: pa.RecordBatch) -> Hashes:
    """uint64, one per row: of the value if there is one column, else of the tuple of values."""
    if columns.num_columns == 0:
        raise TypeMismatchError("a key needs at least one column, has none")
    hashed = [hash_column(column) for column in columns.columns]
    if len(hashed) == 1:
        return hashed[0]
    out = np.empty(columns.num_rows, dtype=np.uint64)
    hash_tuples(np.stack(hashed), np.uint64(TAG_TUPLE), out)
    return out


def plain_int64(columns: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
    """The values of the only column if it is int64 without nulls (zero-copy), else None."""
    if columns.num_columns != 1:
        return None
    column = columns.column(0)
    if column.type != pa.int64() or column.null_count:
        return None
    values: npt.NDArray[np.int64] = numpy_of(column)
    return values


def hash_column(column: pa.Array) -> Hashes:
    """The hash of each value of an array of any supported type."""
    kind = column.type
    if isinstance(kind, ObjectKeyType):
        return kind.keys.hashes(column)
    if pa.types.is_dictionary(kind):
        return _hash_dictionary(column)
    if kind == pa.uuid():
        hashes = _hash_slices(column.storage.cast(pa.large_binary()), TAG_UUID)
    elif pa.types.is_integer(kind):
        hashes = _hash_integers(column)
    elif _is_text(kind):
        hashes = _hash_slices(_offset64(column, pa.large_string()), TAG_STR)
    elif _is_bytes(kind):
        hashes = _hash_slices(_offset64(column, pa.large_binary()), TAG_BYTES)
    elif pa.types.is_floating(kind):
        hashes = _hash_floats(column)
    elif pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        hashes = _hash_temporal(column)
    else:
        return _hash_objects(column)
    return _with_nulls(column, hashes)


def words_of(column: pa.Array) -> npt.NDArray[np.int64]:
    """A fixed-width 8-byte column's words, zero-copy; anything where null."""
    buffer = column.buffers()[1]
    words = np.frombuffer(buffer, dtype=np.int64, count=column.offset + len(column))
    return words[column.offset :]


def slices_of(column: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Data and offsets (length n + 1) of a large_string or large_binary column, zero-copy."""
    _, offsets_buffer, data_buffer = column.buffers()
    count = column.offset + len(column) + 1
    if offsets_buffer is None or offsets_buffer.size == 0:
        return np.empty(0, dtype=np.uint8), np.zeros(len(column) + 1, dtype=np.int64)
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64, count=count)[column.offset :]
    data = np.frombuffer(b"" if data_buffer is None else data_buffer, dtype=np.uint8)
    return data, offsets


def _hash_words(words: npt.NDArray[np.int64], tag: int) -> Hashes:
    out = np.empty(len(words), dtype=np.uint64)
    hash_words(words.view(np.uint64), np.uint64(tag), out)
    return out


def _hash_slices(column: pa.Array, tag: int) -> Hashes:
    data, offsets = slices_of(column)
    out = np.empty(len(column), dtype=np.uint64)
    hash_slices(data, offsets, np.uint64(tag), out)
    return out


def _hash_integers(column: pa.Array) -> Hashes:
    if column.type != pa.uint64():
        return _hash_words(words_of(column.cast(pa.int64())), TAG_INT)
    words = words_of(column)
    out = _hash_words(words, TAG_INT)
    big = np.flatnonzero(words < 0)
    if len(big):
        payload = np.zeros((len(big), 9), dtype=np.uint8)
        payload[:, :8] = np.ascontiguousarray(words[big]).view(np.uint8).reshape(-1, 8)
        out[big] = _hash_records(payload, TAG_BIG_INT)
    return out


def _hash_records(payload: npt.NDArray[np.uint8], tag: int) -> Hashes:
    """Hash each row of a byte matrix."""
    rows, width = payload.shape
    out = np.empty(rows, dtype=np.uint64)
    offsets = np.arange(rows + 1, dtype=np.int64) * width
    hash_slices(payload.reshape(-1), offsets, np.uint64(tag), out)
    return out


def float_words(column: pa.Array) -> npt.NDArray[np.int64]:
    """The canonical bits of a floating column as doubles; anything where null."""
    with np.errstate(invalid="ignore"):  # a NaN may signal
        doubles = words_of(column.cast(pa.float64())).view(np.float64) + 0.0
    words: npt.NDArray[np.int64] = doubles.view(np.int64)
    nan = np.isnan(doubles)
    if nan.any():
        words[nan] = CANONICAL_NAN
    return words


def _hash_floats(column: pa.Array) -> Hashes:
    return _hash_words(float_words(column), TAG_FLOAT)


def _hash_temporal(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_date(kind):
        days = column.cast(pa.date32()) if pa.types.is_date64(kind) else column
        return _hash_words(words_of(days.view(pa.int32()).cast(pa.int64())), TAG_DATE)
    if pa.types.is_time(kind):
        micros = column.cast(pa.time64("us"), safe=False)
        return _hash_words(words_of(micros), TAG_TIME)
    if pa.types.is_duration(kind):
        return _hash_ticks(column, TAG_TIMEDELTA)
    return _hash_ticks(column, TAG_DATETIME if kind.tz is None else TAG_DATETIME_UTC)


_PER_MICROSECOND = {"s": 1_000_000, "ms": 1_000, "us": 1}


def _hash_ticks(column: pa.Array, tag: int) -> Hashes:
    """Timestamps and durations by their microseconds; nanoseconds where there are any."""
    ticks = words_of(column)
    if column.type.unit != "ns":
        return _hash_words(_scaled(column, ticks, _PER_MICROSECOND[column.type.unit]), tag)
    micros, rest = np.divmod(ticks, 1000)
    out = _hash_words(micros, tag)
    finer = np.flatnonzero(rest)
    if len(finer):
        payload = np.empty((len(finer), 10), dtype=np.uint8)
        payload[:, :8] = micros[finer].view(np.uint8).reshape(-1, 8)
        payload[:, 8:] = rest[finer].astype("<u2").view(np.uint8).reshape(-1, 2)
        out[finer] = _hash_records(payload, tag)
    return out


def _scaled(column: pa.Array, ticks: npt.NDArray[np.int64], factor: int) -> npt.NDArray[np.int64]:
    if factor == 1:
        return ticks
    limit = (2**63 - 1) // factor
    present = ticks if not column.null_count else ticks[validity_of(column)]
    if len(present) and (present.max() > limit or present.min() < -limit):
        raise TypeMismatchError(
            f"a key of type {column.type} holds a time beyond what int64 microseconds can express"
        )
    return ticks * factor


def _hash_dictionary(column: pa.DictionaryArray) -> Hashes:
    """Hash the dictionary, then gather."""
    table = np.append(hash_column(column.dictionary), np.uint64(stable_hash(None)))
    indices = (
        column.indices.fill_null(len(column.dictionary)) if column.null_count else (column.indices)
    )
    hashes: Hashes = table[numpy_of(indices)]
    return hashes


def _hash_objects(column: pa.Array) -> Hashes:
    """Types without a kernel (decimals, lists, booleans, null, ...): each distinct value through
    the row path."""
    try:
        encoded = column.dictionary_encode()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        values = column.to_pylist()
        return np.fromiter(map(stable_hash, values), dtype=np.uint64, count=len(values))
    if pa.types.is_null(column.type) or not pa.types.is_dictionary(encoded.type):
        return np.full(len(column), stable_hash(None), dtype=np.uint64)
    distinct = encoded.dictionary.to_pylist()
    table = np.fromiter(
        map(stable_hash, [*distinct, None]), dtype=np.uint64, count=len(distinct) + 1
    )
    indices = numpy_of(encoded.indices.fill_null(len(distinct)))
    hashes: Hashes = table[indices]
    return hashes


def _with_nulls(column: pa.Array, hashes: Hashes) -> Hashes:
    if column.null_count:
        hashes[~validity_of(column)] = stable_hash(None)
    return hashes


def validity_of(column: pa.Array) -> npt.NDArray[np.bool_]:
    """True where the value is not null."""
    valid: npt.NDArray[np.bool_] = numpy_of(pc.is_valid(column))
    return valid


def _offset64(column: pa.Array, target: pa.DataType) -> Any:
    return column if column.type == target else column.cast(target)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )

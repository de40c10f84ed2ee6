"""Types of arrays, and Arrow arrays as numpy arrays.

`pyarrow.Array.to_numpy` does the same, but its first call in a process imports pandas, where that
is installed: half a second and 40 MB in each task.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
Int8s = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

Slots = npt.NDArray[np.int64]
"""Places of keys in a table of state."""

Groups = npt.NDArray[np.int32]
"""Key groups, one per row."""

Storage = Literal["int64", "float64"]
"""What kernels hold numbers as."""


def storage(kind: pa.DataType) -> Storage | None:
    """The numpy type that holds values of this Arrow type in order, None if none does."""
    if pa.types.is_floating(kind):
        return "float64"
    if pa.types.is_integer(kind) and not kind.equals(pa.uint64()):
        return "int64"
    if pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        return None if pa.types.is_interval(kind) else "int64"
    return None


def has_order(kind: pa.DataType) -> bool:
    """Whether columns of this type can be sorted: those of lists, maps, structs, nothing but nulls
    and values that only Python can read cannot."""
    held = kind.value_type if pa.types.is_dictionary(kind) else kind
    if isinstance(held, pa.BaseExtensionType):
        return False
    return not (pa.types.is_nested(held) or pa.types.is_null(held) or pa.types.is_interval(held))


def holds_event_times(kind: pa.DataType) -> bool:
    """Whether event times can be taken from columns of this type."""
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


_WORDS: dict[pa.DataType, str] = {
    pa.int8(): "i1",
    pa.int16(): "i2",
    pa.int32(): "i4",
    pa.int64(): "i8",
    pa.uint8(): "u1",
    pa.uint16(): "u2",
    pa.uint32(): "u4",
    pa.uint64(): "u8",
    pa.float32(): "f4",
    pa.float64(): "f8",
}


def numpy_of(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """The values of an array or chunked array, as `array.to_numpy(zero_copy_only=False)` gives
    them: a read-only view for numbers and timestamps without nulls in one piece. May be unaligned
    where the array's memory is."""
    if isinstance(array, pa.ChunkedArray):
        if array.num_chunks == 1:
            return numpy_of(array.chunk(0))
        return np.concatenate([numpy_of(c) for c in array.chunks or [pa.array([], array.type)]])
    kind = array.type
    if array.null_count == 0:
        word = _WORDS.get(kind)
        if word is not None:
            return _view(array, np.dtype(word))
        if pa.types.is_boolean(kind):
            return _bits(array)
        if pa.types.is_timestamp(kind):
            return _view(array, np.dtype(f"M8[{kind.unit}]"))
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def _view(array: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    data = array.buffers()[1]
    count = len(array)
    if not count or data is None:
        return np.empty(0, dtype=dtype)
    return np.frombuffer(data, dtype=dtype, count=count, offset=array.offset * dtype.itemsize)


def _bits(array: pa.Array) -> npt.NDArray[np.bool_]:
    data = array.buffers()[1]
    count, offset = len(array), array.offset
    if not count or data is None:
        return np.empty(0, dtype=np.bool_)
    first = offset // 8
    packed = np.frombuffer(data, np.uint8, (offset + count + 7) // 8 - first, first)
    bits = np.unpackbits(packed, bitorder="little")
    return bits[offset % 8 : offset % 8 + count].view(np.bool_)

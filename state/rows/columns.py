"""Columns of kept rows by position: values of one width as Arrow lays them out, and all others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrow_values import to_array
from ...core.column_values import python_values
from ...core.growing import Growing
from ...core.union_type import UnionType
from ...core.value_types import from_storage, holds
from ..hash_columns import validity_of
from .positions import Positions

_OBJECT_BYTES = 64
"""A guess at what a Python value takes."""


class RowColumn(ABC):
    """Values of one column by position. Those at positions in use are not changed, so another
    thread may read them, but not while arrays are moved (`grow`)."""

    @property
    @abstractmethod
    def room(self) -> int:
        """Positions that need no `grow`."""

    @property
    @abstractmethod
    def nbytes(self) -> int: ...

    @abstractmethod
    def grow(self, size: int) -> None:
        """Have room for so many positions."""

    @abstractmethod
    def write(self, positions: Positions, array: pa.Array) -> None: ...

    @abstractmethod
    def read(self, positions: Positions) -> pa.Array: ...


class FixedColumn(RowColumn):
    """`_valid` is None until there was a null."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._values = Growing(dtype_of(kind))
        self._valid: Growing | None = None

    @property
    def room(self) -> int:
        room = len(self._values.array)
        return room if self._valid is None else min(room, len(self._valid.array))

    @property
    def nbytes(self) -> int:
        valid = 0 if self._valid is None else self._valid.array.nbytes
        return int(self._values.array.nbytes) + valid

    def grow(self, size: int) -> None:
        self._values.reserve(size)
        if self._valid is not None:
            self._valid.reserve(size)

    def write(self, positions: Positions, array: pa.Array) -> None:
        if not array.type.equals(self._kind):
            array = array.cast(self._kind)
        self._values.array[positions] = plain_values(array, self._values.array.dtype)
        if self._valid is None and array.null_count:
            self._valid = Growing(np.bool_, True, len(self._values.array))
        if self._valid is not None:
            self._valid.array[positions] = validity_of(array) if array.null_count else True

    def read(self, positions: Positions) -> pa.Array:
        valid = None if self._valid is None else self._valid.array[positions]
        return fixed_array(self._kind, self._values.array[positions], valid)


class ObjectColumn(RowColumn):
    """Nested types and the like, one by one: as Arrow gives them, or as Python sees them where that
    does not tell of which kind a value is."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._of_kinds = holds(kind, lambda one: isinstance(one, UnionType))
        self._values: npt.NDArray[Any] = np.empty(0, dtype=object)

    @property
    def room(self) -> int:
        return len(self._values)

    @property
    def nbytes(self) -> int:
        return len(self._values) * _OBJECT_BYTES

    def grow(self, size: int) -> None:
        if size > len(self._values):
            longer = np.empty(max(size, 2 * len(self._values)), dtype=object)
            longer[: len(self._values)] = self._values
            self._values = longer

    def write(self, positions: Positions, array: pa.Array) -> None:
        values = python_values(array) if self._of_kinds else array.to_pylist()
        for position, value in zip(positions.tolist(), values, strict=True):
            self._values[position] = value

    def read(self, positions: Positions) -> pa.Array:
        values = self._values[positions].tolist()
        return (to_array if self._of_kinds else from_storage)(values, self._kind)


def make_column(kind: pa.DataType) -> RowColumn:
    """For a storage type that is neither text nor bytes of any length."""
    return FixedColumn(kind) if is_fixed(kind) else ObjectColumn(kind)


def is_fixed(kind: pa.DataType) -> bool:
    """Whether values of a storage type have one width."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_decimal(kind)
        or (pa.types.is_fixed_size_binary(kind) and kind.byte_width)
    )


def dtype_of(kind: pa.DataType) -> np.dtype[Any]:
    """What values of one width are held as: truth values as such, all else as words."""
    if pa.types.is_boolean(kind):
        return np.dtype(np.bool_)
    width = kind.bit_width // 8
    return np.dtype(f"i{width}" if width in (1, 2, 4, 8) else f"V{width}")


def fixed_array(
    kind: pa.DataType, values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None
) -> pa.Array:
    """An array of these values, which become its own."""
    count, mask = len(values), None
    if valid is not None and not valid.all():
        mask = pa.py_buffer(np.packbits(valid, bitorder="little"))
    if values.dtype == np.bool_:
        values = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(kind, count, [mask, pa.py_buffer(values.view(np.uint8))])


def plain_values(array: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The values as they lie in memory; anything where null."""
    data, start, count = array.buffers()[1], array.offset, len(array)
    if data is None or not count:
        return np.zeros(count, dtype=dtype)
    if dtype != np.bool_:
        return np.frombuffer(data, dtype, count=count, offset=start * dtype.itemsize)
    first = start >> 3
    bits = np.frombuffer(data, np.uint8, count=((start + count + 7) >> 3) - first, offset=first)
    return np.unpackbits(bits, bitorder="little")[start & 7 :][:count].view(np.bool_)

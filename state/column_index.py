"""Indexes of one key column: 8-byte words, and text or bytes. See `key_index` for the whole.

What is stored per slot is append-only, so a frozen view of the first n slots stays valid while the
index grows; `freeze` therefore copies nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Slots
from ..core.errors import StateError
from ..core.growing import Growing
from .hash_columns import slices_of, validity_of
from .hash_kernels import hash_slices
from .index_kernels import (
    COUNT,
    NULL_SLOT,
    find_bytes,
    find_words,
    rebuild_bytes,
    rebuild_words,
    upsert_bytes,
    upsert_words,
)
from .key_words import from_words, to_words
from .object_keys import ObjectKeyType

FIRST_SLOTS = 64
"""How many keys an index has room for at first; a power of two, as it always is."""
ALL_VALID = np.empty(0, dtype=np.bool_)


class ColumnIndex(ABC):
    """Index of one column. Null is a key like any other."""

    @abstractmethod
    def upsert(self, column: pa.Array) -> Slots:
        """The slot of each value (int64, one per row), new values getting the next free slots."""

    @abstractmethod
    def find(self, column: pa.Array) -> Slots:
        """The slot of each value, -1 for those that have none."""

    @abstractmethod
    def __len__(self) -> int:
        """Slots given out."""

    @abstractmethod
    def freeze(self) -> Callable[[], pa.Array]:
        """The values of the slots given out so far, of the storage type, made when called; may run
        on another thread."""

    @abstractmethod
    def take(self, slots: Slots) -> pa.Array:
        """The values of these slots, of the storage type: in time proportional to their number."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of all arrays."""

    @abstractmethod
    def bytes_for(self, slots: int) -> int:
        """Bytes that an index of so many values takes that are like these, filled in one go."""


class WordIndex(ColumnIndex):
    """Keys that are 8-byte words. `upsert_words` is the raw face, for codes.

    Invariants: `_keys.array[:count]` are distinct but for the null slot; there are 4 cells for 3
    entries of it, or more.
    """

    def __init__(self, kind: pa.DataType, slots: int = FIRST_SLOTS) -> None:
        self._kind = kind
        self._state = np.array([0, -1, 0], dtype=np.int64)
        self._keys = Growing(np.int64, size=slots)
        self._make_table(2 * slots)

    def __len__(self) -> int:
        return int(self._state[COUNT])

    def upsert(self, column: pa.Array) -> Slots:
        valid = validity_of(column) if column.null_count else ALL_VALID
        return self.upsert_words(to_words(column), valid)

    def upsert_words(self, words: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_]) -> Slots:
        out = np.empty(len(words), dtype=np.int64)
        at = 0
        while True:
            at = upsert_words(
                self._table, self._shift, words, valid, at, self._state, self._room(), out
            )
            if at == len(words):
                return out
            self._grow()

    def find(self, column: pa.Array) -> Slots:
        valid = validity_of(column) if column.null_count else ALL_VALID
        return self.find_words(to_words(column), valid)

    def find_words(self, words: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_]) -> Slots:
        out = np.empty(len(words), dtype=np.int64)
        find_words(self._table, self._shift, words, valid, self._state, out)
        return out

    def freeze(self) -> Callable[[], pa.Array]:
        words, null_slot, kind = self.words(), int(self._state[NULL_SLOT]), self._kind
        return lambda: from_words(words, _null_mask(np.arange(len(words)), null_slot), kind)

    def take(self, slots: Slots) -> pa.Array:
        null_slot = int(self._state[NULL_SLOT])
        return from_words(self._keys.array[slots], _null_mask(slots, null_slot), self._kind)

    @property
    def nbytes(self) -> int:
        return self._keys.array.nbytes + self._table.nbytes

    def bytes_for(self, slots: int) -> int:
        cells = 1 << max(4 * slots // 3, 1).bit_length()
        return 12 * max(cells, 2 * FIRST_SLOTS) + 8 * slots

    def words(self) -> npt.NDArray[np.int64]:
        """The words in slot order; a view that stays valid."""
        return self._keys.array[: len(self)]

    def _room(self) -> npt.NDArray[np.int64]:
        """Entries of `_keys` that may be used."""
        return self._keys.array[: self._most()]

    def _most(self) -> int:
        """Slots that the cells allow: 3 for 4 of them."""
        return len(self._table) // 4

    def _make_table(self, cells: int) -> None:
        self._table = np.zeros(0, dtype=np.int32)  # the former one goes before the next comes
        self._table = np.zeros(3 * cells, dtype=np.int32)
        self._shift = 65 - cells.bit_length()

    def _grow(self) -> None:
        count = len(self)
        self._keys.reserve(count + 1)
        if count >= self._most():
            self._make_table(_grown(len(self._table) // 3))
            rebuild_words(self._table, self._shift, self._keys.array, *map(int, self._state[:2]))


class BytesIndex(ColumnIndex):
    """Keys that are text or bytes, compared byte by byte.

    Invariants: key i is `_arena[_ends[i]:_ends[i + 1]]`; len(_ends) = len(_hashes) + 1; cells =
    2 * len(_hashes).
    """

    def __init__(self, kind: pa.DataType, slots: int = FIRST_SLOTS) -> None:
        self._kind = kind
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        self._wide = pa.large_string() if text or kind == pa.string_view() else pa.large_binary()
        self._state = np.array([0, -1, 0], dtype=np.int64)
        self._hashes = np.empty(slots, dtype=np.uint64)
        self._ends = np.zeros(slots + 1, dtype=np.int64)
        self._arena = np.empty(16 * slots, dtype=np.uint8)
        self._make_table()

    def __len__(self) -> int:
        return int(self._state[COUNT])

    def upsert(self, column: pa.Array) -> Slots:
        hashed, data, offsets, valid = self._hashed(column)
        out = np.empty(len(column), dtype=np.int64)
        at = 0
        while True:
            at = upsert_bytes(
                self._table,
                self._shift,
                hashed,
                data,
                offsets,
                valid,
                at,
                self._state,
                self._hashes,
                self._arena,
                self._ends,
                out,
            )
            if at == len(column):
                return out
            if len(self) == len(self._hashes):
                self._grow_slots()
            else:
                self._grow_arena(int(offsets[at + 1] - offsets[at]))

    def find(self, column: pa.Array) -> Slots:
        hashed, data, offsets, valid = self._hashed(column)
        out = np.empty(len(column), dtype=np.int64)
        find_bytes(
            self._table,
            self._shift,
            hashed,
            data,
            offsets,
            valid,
            self._state,
            self._arena,
            self._ends,
            out,
        )
        return out

    def freeze(self) -> Callable[[], pa.Array]:
        count, null_slot = map(int, self._state[:2])
        ends = self._ends[: count + 1]
        arena = self._arena[: ends[-1]]
        kind = storage_type(self._kind)

        def values() -> pa.Array:
            buffers = [_null_bitmap(count, null_slot), pa.py_buffer(ends), pa.py_buffer(arena)]
            wide = pa.Array.from_buffers(self._wide, count, buffers)
            return wide if kind == self._wide else wide.cast(kind)

        return values

    def take(self, slots: Slots) -> pa.Array:
        count, null_slot = map(int, self._state[:2])
        buffers = [None, pa.py_buffer(self._ends[: count + 1]), pa.py_buffer(self._arena)]
        every = pa.Array.from_buffers(self._wide, count, buffers)
        wide = every.take(pa.array(slots, mask=_null_mask(slots, null_slot)))
        kind = storage_type(self._kind)
        return wide if kind == self._wide else wide.cast(kind)

    @property
    def nbytes(self) -> int:
        arrays = (self._table, self._hashes, self._ends, self._arena)
        return sum(array.nbytes for array in arrays)

    def bytes_for(self, slots: int) -> int:
        count = len(self)
        each = int(self._ends[count]) / count if count else 16
        return 48 * max(1 << max(slots - 1, 1).bit_length(), FIRST_SLOTS) + int(each * slots)

    def _hashed(self, column: pa.Array) -> tuple[Any, Any, Any, npt.NDArray[np.bool_]]:
        """Hashes, bytes, offsets into these, and which values are not null."""
        wide = column if column.type == self._wide else column.cast(self._wide)
        data, offsets = slices_of(wide)
        hashed = np.empty(len(column), dtype=np.uint64)
        hash_slices(data, offsets, np.uint64(0), hashed)
        return hashed, data, offsets, validity_of(column) if column.null_count else ALL_VALID

    def _make_table(self) -> None:
        cells = 2 * len(self._hashes)
        self._table = np.zeros(2 * cells, dtype=np.uint64)
        self._shift = 65 - cells.bit_length()

    def _grow_slots(self) -> None:
        size = _grown(len(self._hashes))
        self._hashes = _extended(self._hashes, size)
        self._ends = _extended(self._ends, size + 1)
        self._make_table()
        rebuild_bytes(self._table, self._shift, self._hashes, *map(int, self._state[:2]))

    def _grow_arena(self, length: int) -> None:
        used = int(self._ends[len(self)])
        self._arena = _extended(self._arena, max(2 * len(self._arena), used + length))


def storage_type(kind: pa.DataType) -> pa.DataType:
    """The type that keys of type `kind` are kept as: dictionaries as their values, views as plain
    text or bytes (Arrow cannot gather views), objects as their codes."""
    if isinstance(kind, ObjectKeyType):
        return kind.storage_type
    if pa.types.is_dictionary(kind):
        return storage_type(kind.value_type)
    if kind == pa.string_view():
        return pa.large_string()
    return pa.large_binary() if kind == pa.binary_view() else kind


def _grown(size: int) -> int:
    if size >= 1 << 30:
        raise StateError(f"a key index holds {size} keys already and cannot grow beyond 2**30")
    return size * (4 if size < 1 << 18 else 2)


def _extended(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    longer = np.empty(size, dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def _null_mask(slots: Slots, null_slot: int) -> npt.NDArray[np.bool_] | None:
    """Which of these slots is the one of null; None if there is none."""
    return slots == null_slot if null_slot >= 0 else None


def _null_bitmap(count: int, null_slot: int) -> Any:
    if null_slot < 0:
        return None
    valid = np.ones(count, dtype=np.bool_)
    valid[null_slot] = False
    return pa.py_buffer(np.packbits(valid, bitorder="little"))

"""Key columns to dense slots, incrementally: the index behind `ColumnTable.slots`.

    one column of 8-byte words (integers, floats, booleans, times)    WordIndex
    one column of text or bytes                                       BytesIndex
    one dictionary column                                             index of its values
    one column of any other type (decimals, lists, ...)               ObjectIndex
    several columns                                                   each to codes, then pairs of
                                                                      codes to codes: CompositeIndex

Slots are given out in order of first appearance and never taken back. All are exact: hashes only
find candidates. What is stored per slot is append-only, so a frozen view of the first n slots stays
valid while the index grows; `freeze` therefore copies (almost) nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.errors import StateError
from .hash_columns import slices_of, validity_of
from .hash_kernels import hash_slices
from .index_kernels import (
    COUNT,
    NULL_SLOT,
    rebuild_bytes,
    rebuild_words,
    upsert_bytes,
    upsert_words,
)
from .key_words import from_words, is_words, to_words

Slots = npt.NDArray[np.int64]
Frozen = Callable[[], list[pa.Array]]
"""Makes the key columns, of their storage types, in slot order; may run on another thread."""

_FIRST_SLOTS = 512
_ALL_VALID = np.empty(0, dtype=np.bool_)


class ColumnIndex(ABC):
    """Index of one column. Null is a key like any other."""

    @abstractmethod
    def upsert(self, column: pa.Array) -> Slots:
        """The slot of each value (int64, one per row), new values getting the next free slots."""

    @abstractmethod
    def __len__(self) -> int:
        """Slots given out."""

    @abstractmethod
    def freeze(self) -> Callable[[], pa.Array]:
        """The values of the slots given out so far, of the storage type, made when called; may run
        on another thread."""


class WordIndex(ColumnIndex):
    """Keys that are 8-byte words. `upsert_words` is the raw face, for codes.

    Invariants: `_keys[:count]` are distinct but for the null slot; cells = 2 * len(_keys).
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._state = np.array([0, -1, 0], dtype=np.int64)
        self._keys = np.empty(_FIRST_SLOTS, dtype=np.int64)
        self._make_table()

    def __len__(self) -> int:
        return int(self._state[COUNT])

    def upsert(self, column: pa.Array) -> Slots:
        valid = validity_of(column) if column.null_count else _ALL_VALID
        return self.upsert_words(to_words(column), valid)

    def upsert_words(self, words: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_]) -> Slots:
        out = np.empty(len(words), dtype=np.int64)
        at = 0
        while True:
            at = upsert_words(
                self._table, self._shift, words, valid, at, self._state, self._keys, out
            )
            if at == len(words):
                return out
            self._grow()

    def freeze(self) -> Callable[[], pa.Array]:
        words, null_slot, kind = self.words(), int(self._state[NULL_SLOT]), self._kind
        return lambda: from_words(words, null_slot, kind)

    def words(self) -> npt.NDArray[np.int64]:
        """The words in slot order; a view that stays valid."""
        return self._keys[: len(self)]

    def _make_table(self) -> None:
        cells = 2 * len(self._keys)
        self._table = np.zeros(2 * cells, dtype=np.int64)
        self._shift = 65 - cells.bit_length()

    def _grow(self) -> None:
        self._keys = _extended(self._keys, _grown(len(self._keys)))
        self._make_table()
        rebuild_words(self._table, self._shift, self._keys, *map(int, self._state[:2]))


class BytesIndex(ColumnIndex):
    """Keys that are text or bytes, compared byte by byte.

    Invariants: key i is `_arena[_ends[i]:_ends[i + 1]]`; len(_ends) = len(_hashes) + 1; cells =
    2 * len(_hashes).
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        self._wide = pa.large_string() if text or kind == pa.string_view() else pa.large_binary()
        self._state = np.array([0, -1, 0], dtype=np.int64)
        self._hashes = np.empty(_FIRST_SLOTS, dtype=np.uint64)
        self._ends = np.zeros(_FIRST_SLOTS + 1, dtype=np.int64)
        self._arena = np.empty(16 * _FIRST_SLOTS, dtype=np.uint8)
        self._make_table()

    def __len__(self) -> int:
        return int(self._state[COUNT])

    def upsert(self, column: pa.Array) -> Slots:
        wide = column if column.type == self._wide else column.cast(self._wide)
        data, offsets = slices_of(wide)
        hashed = np.empty(len(column), dtype=np.uint64)
        hash_slices(data, offsets, np.uint64(0), hashed)
        valid = validity_of(column) if column.null_count else _ALL_VALID
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


class ObjectIndex(ColumnIndex):
    """Keys of any other type, as Python values in a dict; each distinct value of a batch once."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._slots: dict[Any, int] = {}
        self._values: list[Any] = []

    def __len__(self) -> int:
        return len(self._values)

    def upsert(self, column: pa.Array) -> Slots:
        try:
            encoded = column.dictionary_encode()
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            encoded = column
        if pa.types.is_dictionary(encoded.type):
            return upsert_distinct(encoded, self._upsert_each)
        return self._upsert_each(column)

    def _upsert_each(self, column: pa.Array) -> Slots:
        return np.fromiter(map(self._slot, column.to_pylist()), np.int64, len(column))

    def _slot(self, value: Any) -> int:
        key = hashable(value)
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = len(self._values)
            self._values.append(value)
        return slot

    def freeze(self) -> Callable[[], pa.Array]:
        values, kind = list(self._values), self._kind
        return lambda: pa.array(values, type=kind)


class DictionaryIndex(ColumnIndex):
    """A dictionary column: its values' index, asked for the distinct values only."""

    def __init__(self, kind: pa.DictionaryType) -> None:
        self._values = make_column_index(kind.value_type)

    def __len__(self) -> int:
        return len(self._values)

    def upsert(self, column: pa.Array) -> Slots:
        if pa.types.is_dictionary(column.type):
            return upsert_distinct(column, self._values.upsert)
        return self._values.upsert(column)

    def freeze(self) -> Callable[[], pa.Array]:
        return self._values.freeze()


class CompositeIndex:
    """Index of one or more key columns: `_parts[i]` codes column i, `_pairs[i - 1]` codes the pair
    (code of columns 0..i-1, code of column i). The last code is the slot."""

    def __init__(self, schema: pa.Schema) -> None:
        if not len(schema):
            raise StateError("a table state needs at least one key column, its schema has none")
        self._parts = [make_column_index(field.type) for field in schema]
        self._pairs = [WordIndex(pa.int64()) for _ in self._parts[1:]]

    def __len__(self) -> int:
        return len(self._pairs[-1]) if self._pairs else len(self._parts[0])

    def upsert(self, columns: list[pa.Array]) -> Slots:
        codes = self._parts[0].upsert(columns[0])
        for part, pairs, column in zip(self._parts[1:], self._pairs, columns[1:], strict=True):
            words = part.upsert(column) << 32
            words |= codes
            codes = pairs.upsert_words(words, _ALL_VALID)
        return codes

    def freeze(self) -> Frozen:
        parts = [part.freeze() for part in self._parts]
        pairs = [index.words() for index in self._pairs]

        def columns() -> list[pa.Array]:
            if not pairs:
                return [parts[0]()]
            backwards = []
            codes = np.arange(len(pairs[-1]))
            for part, words in zip(reversed(parts[1:]), reversed(pairs), strict=True):
                chosen = words[codes]
                backwards.append(part().take(pa.array(chosen >> 32)))
                codes = chosen & 0xFFFFFFFF
            return [parts[0]().take(pa.array(codes)), *reversed(backwards)]

        return columns


def storage_type(kind: pa.DataType) -> pa.DataType:
    """The type that keys of type `kind` are kept as: dictionaries as their values, views as plain
    text or bytes (Arrow cannot gather views)."""
    if pa.types.is_dictionary(kind):
        return storage_type(kind.value_type)
    if kind == pa.string_view():
        return pa.large_string()
    return pa.large_binary() if kind == pa.binary_view() else kind


def as_declared(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of the storage type of `kind`, as `kind`."""
    if column.type == kind:
        return column
    return (column.dictionary_encode() if pa.types.is_dictionary(kind) else column).cast(kind)


def make_column_index(kind: pa.DataType) -> ColumnIndex:
    """The index for keys of one column type."""
    if pa.types.is_dictionary(kind):
        return DictionaryIndex(kind)
    if is_words(kind):
        return WordIndex(kind)
    text_or_bytes = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    )
    if any(test(kind) for test in text_or_bytes):
        return BytesIndex(kind)
    return ObjectIndex(kind)


def upsert_distinct(column: pa.DictionaryArray, upsert: Callable[[pa.Array], Slots]) -> Slots:
    """Slots of a dictionary column: `upsert` sees each distinct index once, by first appearance."""
    distinct = column.indices.unique()
    slots = upsert(column.dictionary.take(distinct))
    null = len(column.dictionary)
    table = np.empty(null + 1, dtype=np.int64)
    table[distinct.fill_null(null).to_numpy(zero_copy_only=False)] = slots
    rows: Slots = table[column.indices.fill_null(null).to_numpy(zero_copy_only=False)]
    return rows


def hashable(value: Any) -> Any:
    """A hashable stand-in for an Arrow value: lists as tuples, structs as tuples of pairs."""
    if isinstance(value, list):
        return ("list", *map(hashable, value))
    if isinstance(value, dict):
        return ("struct", *((name, hashable(item)) for name, item in value.items()))
    return value


def _grown(size: int) -> int:
    if size >= 1 << 30:
        raise StateError(f"a key index holds {size} keys already and cannot grow beyond 2**30")
    return size * (4 if size < 1 << 18 else 2)


def _extended(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    longer = np.empty(size, dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def _null_bitmap(count: int, null_slot: int) -> Any:
    if null_slot < 0:
        return None
    valid = np.ones(count, dtype=np.bool_)
    valid[null_slot] = False
    return pa.py_buffer(np.packbits(valid, bitorder="little"))

"""Key columns to dense slots, incrementally: the index behind `SlotTable.slots`.

    one column of 8-byte words (integers, floats, booleans, times)    WordIndex
    one column of text or bytes                                       BytesIndex
    one dictionary column                                             index of its values
    one column of objects                                             WordIndex of their codes
    one column of any other type (decimals, lists, ...)               ObjectIndex
    several columns                                                   each to codes, then pairs of
                                                                      codes to codes: CompositeIndex

Slots are given out in order of first appearance and never taken back. All are exact: hashes only
find candidates. What is stored per slot is append-only, so a frozen view of the first n slots stays
valid while the index grows; `freeze` therefore copies (almost) nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..core.arrays import Bools, Slots, numpy_of
from ..core.errors import StateError
from .column_index import ALL_VALID, FIRST_SLOTS, BytesIndex, ColumnIndex, WordIndex
from .key_words import is_words
from .object_keys import ObjectKeyType

Frozen = Callable[[], list[pa.Array]]
"""Makes the key columns, of their storage types, in slot order; may run on another thread."""


class ObjectIndex(ColumnIndex):
    """Keys of any other type, as Python values in a dict; each distinct value of a batch once."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        plain = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        self._nested = pa.types.is_nested(plain)
        self._slots: dict[Any, int] = {}
        self._values: list[Any] = []

    def __len__(self) -> int:
        return len(self._values)

    def upsert(self, column: pa.Array) -> Slots:
        return self._each(column, self._slot)

    def find(self, column: pa.Array) -> Slots:
        if not self._nested:
            return self._each(column, lambda value: self._slots.get(value, -1))
        return self._each(column, lambda value: self._slots.get(hashable(value), -1))

    def _each(self, column: pa.Array, slot_of: Callable[[Any], int]) -> Slots:
        def each(values: pa.Array) -> Slots:
            slots = [slot_of(value) for value in values.to_pylist()]
            return np.array(slots, np.int64)

        try:
            encoded = column.dictionary_encode()
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            encoded = column
        if pa.types.is_dictionary(encoded.type):
            return upsert_distinct(encoded, each)
        return each(column)

    def _slot(self, value: Any) -> int:
        key = hashable(value) if self._nested else value
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = len(self._values)
            self._values.append(_shown(value) if self._nested else value)
        return slot

    def freeze(self) -> Callable[[], pa.Array]:
        values, kind, count = self._values, self._kind, len(self._values)
        return lambda: pa.array(values[:count], type=kind)

    def take(self, slots: Slots) -> pa.Array:
        return pa.array([self._values[slot] for slot in slots.tolist()], type=self._kind)

    @property
    def nbytes(self) -> int:
        """A guess: what Python objects take is not known."""
        return self.bytes_for(len(self._values))

    def bytes_for(self, slots: int) -> int:
        return 200 * slots


class DictionaryIndex(ColumnIndex):
    """A dictionary column: its values' index, asked for the distinct values only."""

    def __init__(self, kind: pa.DictionaryType, slots: int = FIRST_SLOTS) -> None:
        self._values = make_column_index(kind.value_type, slots)

    def __len__(self) -> int:
        return len(self._values)

    def upsert(self, column: pa.Array) -> Slots:
        if pa.types.is_dictionary(column.type):
            return upsert_distinct(column, self._values.upsert)
        return self._values.upsert(column)

    def find(self, column: pa.Array) -> Slots:
        if pa.types.is_dictionary(column.type):
            return upsert_distinct(column, self._values.find)
        return self._values.find(column)

    def freeze(self) -> Callable[[], pa.Array]:
        return self._values.freeze()

    def take(self, slots: Slots) -> pa.Array:
        return self._values.take(slots)

    @property
    def nbytes(self) -> int:
        return self._values.nbytes

    def bytes_for(self, slots: int) -> int:
        return self._values.bytes_for(slots)


class CompositeIndex:
    """Index of one or more key columns: `_parts[i]` codes column i, `_pairs[i - 1]` codes the pair
    (code of columns 0..i-1, code of column i). The last code is the slot."""

    def __init__(self, schema: pa.Schema, slots: int = FIRST_SLOTS) -> None:
        """`slots`: room for so many keys from the start; a power of two."""
        if not len(schema):
            raise StateError("a table state needs at least one key column, its schema has none")
        first = FIRST_SLOTS if len(schema) > 1 else slots
        self._parts = [make_column_index(field.type, first) for field in schema]
        self._pairs = [WordIndex(pa.int64(), slots) for _ in self._parts[1:]]

    def __len__(self) -> int:
        return len(self._pairs[-1]) if self._pairs else len(self._parts[0])

    def upsert(self, columns: list[pa.Array]) -> Slots:
        codes = self._parts[0].upsert(columns[0])
        for part, pairs, column in zip(self._parts[1:], self._pairs, columns[1:], strict=True):
            words = part.upsert(column) << 32
            words |= codes
            codes = pairs.upsert_words(words, ALL_VALID)
        return codes

    def find(self, columns: list[pa.Array]) -> Slots:
        """The slot of each key, -1 for those that have none."""
        codes = self._parts[0].find(columns[0])
        for part, pairs, column in zip(self._parts[1:], self._pairs, columns[1:], strict=True):
            words = part.find(column)
            known = (words >= 0) & (codes >= 0)
            found = pairs.find_words(words << 32 | codes, ALL_VALID)
            codes = np.where(known, found, -1)
        return codes

    def take(self, slots: Slots) -> list[pa.Array]:
        """The key columns of these slots, of their storage types."""
        backwards, codes = [], slots
        for part, index in zip(reversed(self._parts[1:]), reversed(self._pairs), strict=True):
            chosen = index.words()[codes]
            backwards.append(part.take(chosen >> 32))
            codes = chosen & 0xFFFFFFFF
        return [self._parts[0].take(codes), *reversed(backwards)]

    def mark(self, kinds: Sequence[pa.DataType], held: Bools) -> None:
        """Set the codes of objects that are in a key; `kinds`: the declared types."""
        for part, kind in zip(self._parts, kinds, strict=True):
            if isinstance(kind, ObjectKeyType):
                assert isinstance(part, WordIndex)
                held[part.words()] = True

    @property
    def nbytes(self) -> int:
        return sum(index.nbytes for index in [*self._parts, *self._pairs])

    def bytes_for(self, slots: int) -> int:
        """Bytes of an index of so many keys that are like these."""
        count = max(len(self), 1)
        every: list[ColumnIndex] = [*self._parts, *self._pairs]
        return sum(index.bytes_for(-(-slots * len(index) // count)) for index in every)

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


def as_declared(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of the storage type of `kind`, as `kind`."""
    if column.type == kind:
        return column
    return (column.dictionary_encode() if pa.types.is_dictionary(kind) else column).cast(kind)


def make_column_index(kind: pa.DataType, slots: int = FIRST_SLOTS) -> ColumnIndex:
    """The index for keys of one column type."""
    if pa.types.is_dictionary(kind):
        return DictionaryIndex(kind, slots)
    if isinstance(kind, ObjectKeyType):
        return WordIndex(kind.storage_type, slots)
    if is_words(kind):
        return WordIndex(kind, slots)
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
        return BytesIndex(kind, slots)
    return ObjectIndex(kind)


def upsert_distinct(column: pa.DictionaryArray, upsert: Callable[[pa.Array], Slots]) -> Slots:
    """Slots of a dictionary column: `upsert` sees each distinct index once, by first appearance."""
    distinct = column.indices.unique()
    slots = upsert(column.dictionary.take(distinct))
    null = len(column.dictionary)
    table = np.empty(null + 1, dtype=np.int64)
    table[numpy_of(distinct.fill_null(null))] = slots
    rows: Slots = table[numpy_of(column.indices.fill_null(null))]
    return rows


_NAN = float("nan")


def hashable(value: Any) -> Any:
    """A hashable stand-in for an Arrow value: lists as tuples, structs as tuples of pairs, and one
    NaN for all, within these, too."""
    if isinstance(value, list):
        return ("list", *[hashable(part) for part in value])
    if type(value) is tuple:
        return tuple([hashable(part) for part in value])
    if isinstance(value, dict):
        return ("struct", *((name, hashable(item)) for name, item in value.items()))
    return _NAN if isinstance(value, float) and value != value else value


def _shown(value: Any) -> Any:
    """A key as it is given back: -0.0 is 0.0, as of columns of floats."""
    if type(value) is list:
        return [_shown(part) for part in value]
    if type(value) is tuple:
        return tuple([_shown(part) for part in value])
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items()}
    return value + 0.0 if isinstance(value, float) else value

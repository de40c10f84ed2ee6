"""Arrow values under integer codes, of every type: what no accumulator array can hold.

Values are appended and forgotten in bulk; chunks are joined so that their sizes grow by powers of
two, so there are few of them and each value is copied few times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import numpy_of
from ..core.taking import null_array, take_column
from .object_keys import ObjectKeyType

Codes = npt.NDArray[np.int64]

FIRST_LIMIT = 4096
"""Values held before those no longer in use are looked for."""

_WIDE = {
    pa.string(): pa.large_string(),
    pa.string_view(): pa.large_string(),
    pa.binary(): pa.large_binary(),
    pa.binary_view(): pa.large_binary(),
}


def wide_type(kind: pa.DataType) -> pa.DataType:
    """The type that values of `kind` are kept as: plain, with 64-bit offsets."""
    if isinstance(kind, ObjectKeyType):
        return kind.storage_type
    if pa.types.is_dictionary(kind):
        return wide_type(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(wide_type(field.type)) for field in kind])
    return _WIDE.get(kind, kind)


class Values(Protocol):
    """What a column of codes stands for. -1 stands for nothing."""

    wide: pa.DataType
    """The type in which a snapshot holds what a code stands for."""

    @property
    def crowded(self) -> bool:
        """Whether it is time to `compact`."""
        ...

    def append(self, values: pa.Array) -> Codes:
        """The codes of these, of type `wide`."""
        ...

    def stored(self, codes: Codes) -> pa.Array:
        """What `freeze` would give for these codes, each of them there once at most, now."""
        ...

    def compact(self, codes: Codes) -> None:
        """Forget all that is not among `codes`, which are rewritten in place. All other codes are
        void."""
        ...

    def freeze(self) -> Callable[[Codes], pa.Array]:
        """What gives the values (of type `wide`) of codes there are now, on any thread, whatever
        happens to this store meanwhile."""
        ...

    @property
    def nbytes(self) -> int: ...


Stores = Mapping[str, Values]
"""What the codes in a table's columns stand for, by column: stores of that table's own."""

MakeStores = Mapping[str, Callable[[], Values]]
"""What makes the stores of a new table."""


class ValueStore:
    """Code i is the i-th value appended since the last `keep`; -1 is null."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self.wide = wide_type(kind)
        self._chunks: list[pa.Array] = []
        self._size = self._bytes = 0
        self._limit = FIRST_LIMIT

    def __len__(self) -> int:
        return self._size

    def append(self, values: pa.Array) -> Codes:
        """The codes of these values."""
        first = self._size
        if len(values):
            self._chunks.append(self.widen(values))
            self._size += len(values)
            self._bytes += self._chunks[-1].nbytes
            while len(self._chunks) > 1 and len(self._chunks[-2]) < 2 * len(self._chunks[-1]):
                last = self._chunks.pop()
                self._chunks[-1] = pa.concat_arrays([self._chunks[-1], last])
        return np.arange(first, self._size, dtype=np.int64)

    def take(self, codes: Codes) -> pa.Array:
        """The values as they are kept, of type `wide`."""
        if 2 * len(codes) > self._size:
            self.all()  # cheaper than to look in each chunk
        return _taken(self._chunks, self.wide, codes)

    def stored(self, codes: Codes) -> pa.Array:
        """`take`, as of all stores."""
        return self.take(codes)

    def all(self) -> pa.Array:
        """All values, as they are kept, in order of their codes."""
        if len(self._chunks) != 1:
            self._chunks = [pa.concat_arrays([null_array(0, self.wide), *self._chunks])]
        return self._chunks[0]

    @property
    def crowded(self) -> bool:
        """Whether it is time to ask what is still in use."""
        return self._size > self._limit

    def keep(self, codes: Codes) -> None:
        """Forget all values but these, which get the codes 0, 1, ... in this order."""
        kept = self.take(codes)
        self._chunks, self._size = [kept] if len(codes) else [], len(codes)
        self._bytes = kept.nbytes
        self._limit = max(FIRST_LIMIT, 2 * len(codes))

    def compact(self, codes: Codes) -> None:
        """Forget all values but those of `codes`, which are rewritten in place."""
        kept = np.zeros(self._size + 1, dtype=np.bool_)
        kept[codes] = True  # -1 is the last
        kept[-1] = False
        moved = np.cumsum(kept) - 1
        moved[-1] = -1
        self.keep(np.flatnonzero(kept))
        codes[:] = moved[codes]

    def freeze(self) -> Callable[[Codes], pa.Array]:
        """`take` of the values there are now, for any thread."""
        chunks, wide = tuple(self._chunks), self.wide
        return lambda codes: _taken(chunks, wide, codes)

    @property
    def nbytes(self) -> int:
        """As of the values when they came: what joins them may save a little."""
        return self._bytes

    def widen(self, values: pa.Array) -> pa.Array:
        """The values as of type `wide`."""
        if values.type.equals(self.wide):
            return values
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        return values.cast(self.wide)


def _taken(chunks: Sequence[pa.Array], wide: pa.DataType, codes: Codes) -> pa.Array:
    """The values of these codes; null for -1."""
    if not chunks:
        return null_array(len(codes), wide)
    if len(chunks) == 1:
        return take_column(chunks[0], _indices(codes))
    starts = np.cumsum([0, *map(len, chunks[:-1])])
    chunk_of = np.searchsorted(starts, codes, side="right") - 1
    order = np.argsort(chunk_of, kind="stable")
    bounds = np.searchsorted(chunk_of[order], np.arange(-1, len(chunks) + 1))
    pieces = [null_array(int(bounds[1]), wide)]
    for at, chunk in enumerate(chunks):
        rows = order[bounds[at + 1] : bounds[at + 2]]
        pieces.append(take_column(chunk, pa.array(codes[rows] - starts[at])))
    back = np.empty(len(codes), dtype=np.int64)
    back[order] = np.arange(len(codes))
    return take_column(pa.concat_arrays(pieces), pa.array(back))


def lists_by(owners: Codes, items: pa.Array, count: int, codes: Codes) -> pa.Array:
    """Of `count` lists these, null for -1. `items`: of all lists, in order of the lists, which
    `owners` has in any order."""
    ends = np.cumsum(np.bincount(owners, minlength=count))
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int64))
    whole = pa.LargeListArray.from_arrays(offsets, items, type=pa.large_list(items.type))
    return take_column(whole, pa.array(codes, mask=codes < 0))


def codes_by(lists: pa.Array, make: Callable[[int], Codes]) -> tuple[Codes, Codes]:
    """A new code for each list, -1 for null, and that of each item's list."""
    codes = np.full(len(lists), -1, dtype=np.int64)
    held = np.flatnonzero(numpy_of(lists.is_valid()))
    codes[held] = make(len(held))
    lengths = numpy_of(lists.value_lengths().fill_null(0)).astype(np.int64)
    return codes, np.repeat(codes, lengths)


def _indices(codes: Codes) -> pa.Array:
    missing = codes < 0
    return pa.array(codes, mask=missing) if missing.any() else pa.array(codes)

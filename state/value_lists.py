"""Lists of Arrow values under integer codes: a list is known by the code of its last value.

It is to lists what `ValueStore` is to values, and is used in its place. 24 bytes per value and the
value; values of lists that nobody knows any more are forgotten in bulk.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Int64s, Slots, numpy_of
from ..core.value_types import items_of
from . import list_kernels as kernel
from .value_store import Codes, ValueStore

NUMBER, VALUE = "number", "value"
FIRST_ROOM = 64


Choose = Callable[[Slots, pa.Array, Int64s], npt.NDArray[np.int64]]
"""Of values with their lists' numbers (ascending) and sequence numbers: the rows to keep, of each
list at least one, ascending."""


class ValueLists:
    """Invariant: `_before`, `_opened` (see the kernel) and `_numbers`, sequence numbers of the
    records, have room for every value of `_values`."""

    def __init__(self, kind: pa.DataType, choose: Choose | None = None) -> None:
        """`choose`: what of a list is worth keeping; None: all of it."""
        self._values = ValueStore(kind)
        self._chooses = choose
        item = pa.struct([pa.field(VALUE, self._values.wide), pa.field(NUMBER, pa.int64())])
        self.wide = pa.large_list(item)
        """The type of whole lists as `freeze` gives them."""
        self._before, self._opened, self._numbers = np.empty((3, FIRST_ROOM), dtype=np.int64)

    def __len__(self) -> int:
        """Values, of all lists."""
        return len(self._values)

    @property
    def crowded(self) -> bool:
        """Whether it is time to ask which lists are still in use."""
        return self._values.crowded

    @property
    def nbytes(self) -> int:
        return self._values.nbytes + 3 * self._numbers.nbytes

    def extend(self, last: Codes, slots: Slots, values: pa.Array, numbers: Int64s) -> None:
        """Add values to the lists of slots; last[slot] is the list."""
        first = self._append(values, numbers)
        kernel.extend_lists(slots, first, last, self._before, self._opened)

    def join(self, last: Codes, slots: Slots, lists: Codes) -> None:
        """Put lists ahead of those of slots."""
        kernel.join_lists(slots, lists, last, self._before, self._opened)

    def read(self, lists: Codes) -> tuple[Slots, pa.Array, Int64s]:
        """The values of all these lists: (which of them, value as kept, sequence number), list by
        list and in order of the numbers."""
        owners, codes = self._codes(lists)
        return owners, self._values.take(codes), self._numbers[codes]

    def unordered(self, lists: Codes) -> tuple[Slots, pa.Array, Int64s]:
        """The same in any order."""
        return self.read(lists)

    def freeze(self) -> Callable[[Codes], pa.Array]:
        """What gives whole lists, null for -1, as they are now, on any thread. Copies 8 bytes per
        value: where a list goes on is rewritten when lists are joined."""
        count = len(self._values)
        before, numbers = self._before[:count].copy(), self._numbers[:count]
        take, wide = self._values.freeze(), self.wide
        return lambda lists: _whole(before, numbers, take, wide, lists)

    def stored(self, lists: Codes) -> pa.Array:
        """As of `freeze`, now."""
        return _whole(self._before, self._numbers, self._values.take, self.wide, lists)

    def append(self, lists: pa.Array) -> Codes:
        """Whole lists as `freeze` gave them; -1 for null."""
        items = items_of(lists)
        first = self._append(items.field(0), numpy_of(items.field(1)))
        lengths = numpy_of(lists.value_lengths().fill_null(0)).astype(np.int64)
        last = np.full(len(lists), -1, dtype=np.int64)
        slots = np.repeat(np.arange(len(lists)), lengths)
        kernel.extend_lists(slots, first, last, self._before, self._opened)
        return last

    def keep(self, lists: Codes, choose: Choose) -> Codes:
        """Forget all lists but these and, of these, what `choose` does not pick. Their new codes;
        all others are void."""
        owners, codes = self._codes(lists)
        kept = choose(owners, self._values.take(codes), self._numbers[codes])
        owners, codes = owners[kept], codes[kept]
        self._values.keep(codes)
        numbers, room = self._numbers[codes], max(len(codes), FIRST_ROOM)
        self._before, self._opened, self._numbers = np.empty((3, room), dtype=np.int64)
        self._numbers[: len(codes)] = numbers
        last = np.full(len(lists), -1, dtype=np.int64)
        kernel.extend_lists(owners, 0, last, self._before, self._opened)
        return last

    def compact(self, lists: Codes) -> None:
        """Forget all but `lists`, which are rewritten in place, and what of them nobody needs."""
        live = np.flatnonzero(lists >= 0)
        lists[live] = self.keep(lists[live], self._chooses or _all)

    def _codes(self, lists: Codes) -> tuple[Slots, Codes]:
        """All values of these lists and which list each is of, in order of the numbers."""
        return _codes(self._before, self._numbers, lists, _lengths(self._before, lists))

    def _append(self, values: pa.Array, numbers: Int64s) -> int:
        """The code of the first."""
        first = len(self._values)
        self._values.append(values)
        self._reserve(len(self._values))
        self._numbers[first : len(self._values)] = numbers
        return first

    def _reserve(self, size: int) -> None:
        if size > len(self._numbers):
            room = max(size, 2 * len(self._numbers))
            self._before, self._opened, self._numbers = (
                np.concatenate([a, np.empty(room - len(a), dtype=np.int64)])
                for a in (self._before, self._opened, self._numbers)
            )


def _whole(
    before: Int64s,
    numbers: Int64s,
    take: Callable[[Codes], pa.Array],
    wide: pa.DataType,
    lists: Codes,
) -> pa.Array:
    """Whole lists, null for -1."""
    lengths = _lengths(before, lists)
    _, codes = _codes(before, numbers, lists, lengths)
    columns = [take(codes), pa.array(numbers[codes])]
    items = pa.StructArray.from_arrays(columns, fields=list(wide.value_type))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), mask=_nulls(lists))
    return pa.LargeListArray.from_arrays(offsets, items, type=wide)


def _codes(before: Int64s, numbers: Int64s, lists: Codes, lengths: Int64s) -> tuple[Slots, Codes]:
    """All values of these lists, of these lengths, and which list each is of, by number."""
    ends = np.cumsum(lengths)
    codes = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    kernel.read_lists(lists, before, ends, codes)
    owners = np.repeat(np.arange(len(lists)), lengths)
    numbers = numbers[codes]
    if ((np.diff(numbers) < 0) & (np.diff(owners) == 0)).any():
        codes = codes[np.lexsort((numbers, owners))]
    return owners, codes


def _lengths(before: Int64s, lists: Codes) -> Int64s:
    lengths = np.empty(len(lists), dtype=np.int64)
    kernel.list_lengths(lists, before, lengths)
    return lengths


def _all(owners: Slots, values: pa.Array, numbers: Int64s) -> npt.NDArray[np.int64]:
    return np.arange(len(owners))


def _nulls(lists: Codes) -> npt.NDArray[np.bool_]:
    """Which offsets of a list array say that a list is null."""
    return np.append(lists < 0, False)

"""Lists of Arrow values under integer codes that are never joined nor emptied: rows in order of
arrival, each with its list's code.

It does what `ValueLists` does, in less time and memory, for tables whose slots stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Int64s, Slots, numpy_of
from ..core.growing import GrowingList
from ..core.taking import take_column
from ..core.value_types import items_of
from .value_lists import NUMBER, VALUE, Choose
from .value_store import Codes, ValueStore, codes_by, lists_by


class ValueRows:
    """Invariant: `_owners` and `_numbers`, sequence numbers of the records, are as long as
    `_values`; `_count` lists there are."""

    def __init__(self, kind: pa.DataType, choose: Choose | None = None) -> None:
        """`choose`: what of a list is worth keeping; None: all of it."""
        self._values = ValueStore(kind)
        self._choose = choose
        item = pa.struct([pa.field(VALUE, self._values.wide), pa.field(NUMBER, pa.int64())])
        self.wide = pa.large_list(item)
        """The type of whole lists as `freeze` gives them."""
        self._owners = GrowingList(np.int64)
        self._numbers = GrowingList(np.int64)
        self._count = 0

    def __len__(self) -> int:
        """Values, of all lists."""
        return len(self._values)

    @property
    def crowded(self) -> bool:
        """Whether it is time to thin out."""
        return self._choose is not None and self._values.crowded

    @property
    def nbytes(self) -> int:
        return self._values.nbytes + self._owners.array.nbytes + self._numbers.array.nbytes

    def extend(self, lists: Codes, slots: Slots, values: pa.Array, numbers: Int64s) -> None:
        """Add values to the lists of slots; lists[slot] is the code, made where it is -1."""
        new = np.unique(slots[lists[slots] < 0])
        lists[new] = self._make(len(new))
        self._add(lists[slots], values, numbers)

    def read(self, lists: Codes) -> tuple[Slots, pa.Array, Int64s]:
        """The values of all these lists, distinct but for -1: (which of them, value as kept,
        sequence number), list by list and in order of the numbers."""
        owners, values, numbers = self.unordered(lists)
        rows = in_order(owners, numbers)
        return owners[rows], take_column(values, pa.array(rows)), numbers[rows]

    def unordered(self, lists: Codes) -> tuple[Slots, pa.Array, Int64s]:
        """`read`, in no order, which takes less time."""
        place = np.full(self._count + 1, -1, dtype=np.int64)
        place[lists] = np.arange(len(lists))
        place[-1] = -1
        owners, numbers, values = place[self._owners.used], self._numbers.used, self._values.all()
        if (owners < 0).any():
            rows = np.flatnonzero(owners >= 0)
            return owners[rows], take_column(values, pa.array(rows)), numbers[rows]
        return owners, values, numbers

    def freeze(self) -> Callable[[Codes], pa.Array]:
        """What gives whole lists, null for -1, as they are now, on any thread."""
        owners, numbers, count = self._owners.used, self._numbers.used, self._count
        take, wide = self._values.freeze(), self.wide

        def lists_of(lists: Codes) -> pa.Array:
            rows = in_order(owners, numbers)
            columns = [take(rows), pa.array(numbers[rows])]
            items = pa.StructArray.from_arrays(columns, fields=list(wide.value_type))
            return lists_by(owners, items, count, lists)

        return lists_of

    def append(self, lists: pa.Array) -> Codes:
        """Whole lists as `freeze` gave them; -1 for null."""
        codes, owners = codes_by(lists, self._make)
        items = items_of(lists)
        self._add(owners, items.field(0), numpy_of(items.field(1)))
        return codes

    def stored(self, lists: Codes) -> pa.Array:
        """As of `freeze`, now."""
        owners, values, numbers = self.read(lists)
        columns = [values, pa.array(numbers)]
        items = pa.StructArray.from_arrays(columns, fields=list(self.wide.value_type))
        place = np.where(lists < 0, -1, np.arange(len(lists)))
        return lists_by(owners, items, len(lists), place)

    def compact(self, lists: Codes) -> None:
        """Forget all but `lists`, which are rewritten in place, and what of them nobody needs."""
        owners, numbers = self._owners.used, self._numbers.used
        live = np.flatnonzero(lists >= 0)
        if len(live) == self._count and self._choose is None:
            return
        if len(live) < self._count:
            place = np.full(self._count, -1, dtype=np.int64)
            place[lists[live]] = np.arange(len(live))
            lists[live] = np.arange(len(live))
            self._count = len(live)
            kept = np.flatnonzero(place[owners] >= 0)
            owners, numbers = place[owners[kept]], numbers[kept]
            self._values.keep(kept)
        if self._choose is not None:
            chosen = self._choose(owners, self._values.all(), numbers)
            owners, numbers = owners[chosen], numbers[chosen]
            self._values.keep(chosen)
        self._owners, self._numbers = GrowingList(np.int64), GrowingList(np.int64)
        self._owners.append(owners)
        self._numbers.append(numbers)

    def _make(self, count: int) -> Codes:
        """New lists, empty."""
        self._count += count
        return np.arange(self._count - count, self._count)

    def _add(self, owners: Codes, values: pa.Array, numbers: Int64s) -> None:
        self._values.append(values)
        self._owners.append(owners)
        self._numbers.append(numbers)


def in_order(owners: Slots, numbers: Int64s) -> npt.NDArray[np.int64]:
    """The rows by owner and then by number."""
    rows = np.arange(len(owners))
    if (numbers[1:] < numbers[:-1]).any():
        rows = np.argsort(numbers, kind="stable")
    greatest, shift = int(owners.max(initial=0)), 0
    while True:  # 16 bits at a time, by which numpy sorts in linear time
        some = (owners[rows] >> shift).astype(np.uint16)
        rows = rows[np.argsort(some, kind="stable")]
        shift += 16
        if not greatest >> shift:
            return rows

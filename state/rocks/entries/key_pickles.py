"""Keys that are Python objects, on their way out: which of them can leave, and their pickles.

A key without bytes, without a hash or without a pickle stays in memory. That is found out when it
is to leave, once: before its entries are taken out of their slots.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ....core.arrays import Bools, Slots
from ....core.errors import StateError
from ....core.growing import Growing
from ...live_keys import LiveKeys
from ..tables.slot_rows import SlotRows


class KeyPickles:
    """Of the keys of one table, by number."""

    def __init__(self, rows: SlotRows, state: str) -> None:
        self._rows = rows
        self._state = state
        self._stays = Growing("bool", 0)
        """Which keys are known to stay."""
        self._made: dict[int, bytes] = {}
        """The pickles of what was last found `movable`."""

    def reserve(self, count: int) -> None:
        """There are so many keys."""
        self._stays.reserve(count)

    def keep(self, kept: Slots) -> None:
        """Only these keys are known any more, numbered in this order."""
        self._stays = Growing.over(self._stays.array[kept], 0)
        self._made = {}

    def but_those(self, may_leave: Callable[[int, int], Bools]) -> Callable[[int, int], Bools]:
        """The same without keys that are known to stay."""
        return lambda start, stop: may_leave(start, stop) & ~self._stays.array[start:stop]

    def movable(self, keys: LiveKeys, numbers: Slots) -> Slots:
        """Those of these keys that can leave; the others stay from here on."""
        self._made = {}
        columns = keys.take_kept(numbers)
        placed = self._rows.placed(columns)
        assert placed is not None, "keys are objects"
        some = numbers[placed]
        found = self._rows.pickles(
            [column.filter(pa.array(placed)) for column in columns], self._state
        )
        for number, data in zip(some.tolist(), found, strict=True):
            if data is not None:
                self._made[number] = data
        fine = np.array([number in self._made for number in numbers.tolist()], dtype=np.bool_)
        self._stays.array[numbers[~fine]] = True
        return numbers[fine]

    def of(self, keys: LiveKeys, numbers: Slots) -> dict[int, bytes]:
        """Of keys that can leave, at least these. StateError if one of them cannot."""
        if not self._made.keys() >= set(numbers.tolist()):
            stay = len(numbers) - len(self.movable(keys, numbers))
            if stay:
                raise StateError(
                    f"entries '{self._state}': {stay} of {len(numbers)} keys that are to leave "
                    "memory are objects that cannot lie in RocksDB: ask which keys are idle"
                )
        return self._made

"""Values of slots that only come: which views have seen them. See `slot_values`.

What `CountedValues` does for values that also go, in a fifth of the memory: that a view has seen a
value is one bit, and nothing has to be found again by its slot (`seen_pairs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Int64s, Slots
from .seen_pairs import SeenPairs
from .slot_values import Found, SlotValues
from .stores import SeenFace


class SeenValues(SlotValues, SeenFace):
    """A set of pairs whose slots a table owns."""

    def __init__(self, name: str, keys: pa.Schema, kind: pa.DataType, views: int) -> None:
        super().__init__(name, keys, kind, views)
        self._pairs = SeenPairs(kind, views)

    def __len__(self) -> int:
        return len(self._pairs)

    def find(self, slots: Slots, values: pa.Array) -> Slots:
        return self._pairs.find(slots, self._pairs.codes(values))

    def bits(self, view: int) -> tuple[npt.NDArray[np.uint8], int]:
        return self._pairs.bits(view)

    def slots_seen(self, view: int) -> Slots:
        return self._pairs.slots_seen(view)

    @property
    def nbytes(self) -> int:
        return self._pairs.nbytes

    def _freeze(self) -> Callable[[], Found]:
        frozen = self._pairs.freeze(self._stored_kind)

        def found() -> Found:
            slots, values, seen = frozen()
            return slots, values, [bits.astype(np.int64) for bits in seen]

        return found

    def _fill(self, slots: Slots, values: pa.Array, counts: Sequence[Int64s]) -> None:
        at = self.find(slots, values)
        for view, stored in enumerate(counts):
            seen, bit = self.bits(view)
            seen[at[stored != 0]] |= np.uint8(bit)

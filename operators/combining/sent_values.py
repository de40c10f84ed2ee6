"""Which values of which group were sent on already, of one expression; a bit per view.

It is no state: what is forgotten is sent once more, and counts once behind the exchange all the
same. So it begins empty with each attempt, and is let go of when it has grown too large.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...core.arrays import Int64s
from ...core.batch import take_column
from ...state.hash_columns import validity_of
from ...state.seen_pairs import SeenPairs
from ..tables.group_parts import Seen

MOST_SENT = 1 << 20
"""So many pairs of group and value are remembered at most: with more, none is."""


class SentValues:
    """Values of type `kind`, which `views` conditions see."""

    def __init__(self, kind: pa.DataType, views: int) -> None:
        self._kind, self._views = kind, views
        self.forget()

    def forget(self) -> None:
        """Nothing was sent."""
        self._pairs = SeenPairs(self._kind, self._views)

    @property
    def full(self) -> bool:
        return len(self._pairs) > MOST_SENT

    def fresh(self, groups: Int64s, seen: Seen) -> Int64s:
        """Per row the bits of those views that see its value, in its group, for the first time;
        from now on it was sent."""
        from ...state import seen_kernels

        array, masks = seen.values, seen.masks
        rows: Int64s | None = None
        if array.null_count:
            rows = np.flatnonzero(validity_of(array))
            groups, array = groups[rows], take_column(array, pa.array(rows))
            masks = [mask[rows] if len(mask) else mask for mask in masks]
        at = self._pairs.find(groups, self._pairs.codes(array))
        found = np.zeros(len(groups), dtype=np.int64)
        for view, mask in enumerate(masks):
            bits, bit = self._pairs.bits(view)
            seen_kernels.see_fresh(at, mask, bit, bits, view, found)
        if rows is None:
            return found
        whole = np.zeros(len(seen.values), dtype=np.int64)
        whole[rows] = found
        return whole

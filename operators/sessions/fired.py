"""What sessions give when they fire, and arrays that grow with their keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s


@dataclass(frozen=True)
class Fired:
    """What sessions that fire give: key columns, bounds, results. One entry per result each."""

    keys: list[pa.Array]
    starts: Int64s
    ends: Int64s
    results: list[pa.Array]

    def __len__(self) -> int:
        return len(self.starts)


def grown(array: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """The array with room for `size` entries, new ones -1."""
    if size <= len(array):
        return array
    longer = np.full(max(size, 2 * len(array)), -1, dtype=np.int64)
    longer[: len(array)] = array
    return longer

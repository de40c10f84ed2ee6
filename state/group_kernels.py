"""The counting sort by which rows get into the order of their key groups, compiled.

Not `hash_kernels`' of the keyed exchange: that tells which rows come, this where each row goes. So
rows are read one behind the other, and written at one place per group at a time, which takes a
third of the time of reading here and there once they are more than the cache holds.

The twin is numpy's stable argsort, in tests/state/test_group_sort.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.native import int32, njit, void
from .hash_kernels import I64, fresh, frozen


def places_of(
    groups: npt.NDArray[np.int32],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Where each row goes, and the sorted groups; both one per row, of which there is one at
    least."""
    lowest, highest = int(groups.min()), int(groups.max())
    ends = np.zeros(highest - lowest + 2, np.int64)
    places = np.empty(len(groups), np.int64)
    _places(groups, lowest, ends, places)
    counts = np.diff(ends[:-1], prepend=0)
    return places, np.repeat(np.arange(lowest, highest + 1, dtype=np.int32), counts)


@njit(void(frozen(int32), I64, fresh(I64), fresh(I64)), cache=True)
def _places(groups: Any, lowest: Any, ends: Any, places: Any) -> Any:
    """`ends`: one more than there are groups, zeros on entry; those of all groups on return."""
    for i in range(groups.shape[0]):
        ends[groups[i] - lowest + 1] += 1
    for group in range(1, ends.shape[0]):
        ends[group] += ends[group - 1]
    for i in range(groups.shape[0]):
        group = groups[i] - lowest
        places[i] = ends[group]
        ends[group] += 1

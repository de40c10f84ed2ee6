"""Arrays that grow at their end."""

from __future__ import annotations

import numpy as np
from strom.core.growing import Growing


def test_a_growing_array_keeps_what_it_had_and_fills_what_is_new() -> None:
    for fill in (-1, 0):
        growing = Growing(np.int64, fill)
        for size in (10, 100_000, 200_000, 1_000_000):
            had = len(growing.array)
            growing.reserve(size)
            assert (growing.array[had:] == fill).all()
            growing.array[:] = fill
    view = growing.array[:10]
    growing.reserve(3_000_000)
    growing.array[:10] = 7
    assert view.tolist() == [0] * 10

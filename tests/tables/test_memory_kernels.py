"""Sets of seen pairs and growing arrays, against plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.growing import Growing
from strom.operators.kernels import reference_seen_pairs
from strom.operators.tables.distinct_values import DistinctValues

GROUPS, VIEWS = 3, 9


rows = st.lists(st.tuples(st.integers(0, GROUPS - 1), st.none() | st.integers(-20, 2000)))


@settings(deadline=None)
@given(st.lists(st.tuples(rows, st.sets(st.integers(0, VIEWS - 1))), max_size=5))
def test_distinct_values(batches: Any) -> None:
    """Each batch is seen by some of more views than a byte has bits."""
    values, state = DistinctValues(pa.int64(), VIEWS), {}
    values.grow(GROUPS)
    for batch, views in batches:
        groups = np.array([g for g, _ in batch], np.int64)
        array = pa.array([v for _, v in batch], pa.int64())
        masks = [np.full(len(batch), view in views) for view in range(VIEWS)]
        values.fold(groups, array, masks, 1)
        for view in views:
            reference_seen_pairs.see_pairs(state, [r for r in batch if r[1] is not None], view)
    again = DistinctValues(pa.int64(), VIEWS)
    again.grow(GROUPS)
    again.restore(*values.save())
    for view in range(VIEWS):
        want = reference_seen_pairs.distinct(state, view, GROUPS)
        assert values.distinct(view, np.arange(GROUPS)).to_pylist() == want
        assert again.distinct(view, np.arange(GROUPS)).to_pylist() == want
    assert len(again) == len(state)


def test_a_set_keeps_its_pairs_while_it_grows() -> None:
    values = DistinctValues(pa.int64(), 2)
    values.grow(2)
    for start in range(0, 300_000, 30_000):
        array = pa.array(np.arange(start, start + 30_000))
        masks = [np.empty(0, np.bool_), np.arange(30_000) % 3 == 0]
        for _ in range(2):
            values.fold(np.arange(30_000) % 2, array, masks, 1)
    assert values.distinct(0, np.arange(2)).to_pylist() == [150_000, 150_000]
    assert values.distinct(1, np.arange(2)).to_pylist() == [50_000, 50_000]
    assert len(values) * 4 <= len(values._cells) * 3


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

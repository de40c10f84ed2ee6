"""Blocks of texts, sets of seen pairs and growing arrays, against plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import reference_blocks
import reference_seen_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.growing import Growing
from strom.operators.kernels import blocks
from strom.operators.tables.distinct_values import DistinctValues
from strom.operators.tables.texts import Texts

GROUPS, VIEWS = 3, 9


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0, 1, 15, 16, 17, 1024, 1025, 5000]))))
def test_blocks(steps: Any) -> None:
    """True takes a block of this size, False gives back the first one that is in use."""
    plain, held = reference_blocks.Blocks(), []
    heads, arena, end = np.full(blocks.SIZES, -1), np.zeros(200_000, np.int64), 0
    for take, length in steps:
        lengths, start = np.array([length]), np.empty(1, np.int64)
        if take:
            end = blocks.take_blocks(lengths, heads, arena, end, start)
            assert (int(start[0]), end) == (plain.take(length), plain.end)
            held.append((int(start[0]), length))
        elif held:
            first, length = held.pop(0)
            plain.give(first, length)
            freed = blocks.free_blocks(np.array([first]), np.array([length]), heads, arena)
            assert freed == reference_blocks.units(length)


def test_sizes_of_blocks_are_told_apart() -> None:
    """A free block is given to texts of its own rounded size only."""
    for length in [
        *range(1, 3000, 7),
        *(16 << k for k in range(20)),
        *(33 << k for k in range(20)),
    ]:
        assert blocks.units_of(np.array([length])) == reference_blocks.units(length)
        heads, arena, start = (
            np.full(blocks.SIZES, -1),
            np.zeros(8, np.int64),
            np.zeros(1, np.int64),
        )
        blocks.free_blocks(np.array([2]), np.array([length]), heads, arena)
        rounded = 16 * reference_blocks.units(length)
        assert blocks.take_blocks(np.array([rounded + 1]), heads, arena, 9, start) > 9
        assert blocks.take_blocks(np.array([rounded]), heads, arena, 9, start) == 9
        assert start[0] == 2


def test_texts_of_other_sizes_are_packed() -> None:
    texts, kept = Texts([pa.string(), pa.binary()]), np.array([0])
    texts.grow(1001)
    texts.write(kept, [pa.array(["kept"]), pa.array([None], pa.binary())])
    for size in range(0, 4000, 16):
        rows = np.arange(1, 1001)
        arrays = [pa.array(["x" * size] * 1000), pa.array([b"y"] * 1000)]
        texts.write(rows, arrays)
        assert texts.read(0, rows[-1:]).to_pylist() == ["x" * size]
        assert texts.read(1, rows[-1:]).to_pylist() == [b"y"]
        texts.release(rows)
    assert texts.read(0, kept).to_pylist() == ["kept"]
    assert texts.read(1, kept).to_pylist() == [None]
    assert texts._arena.array.nbytes < 32_000_000


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

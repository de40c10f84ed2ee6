"""Blocks of texts against plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import reference_blocks
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.state import block_kernels as blocks
from strom.state.rows.texts import Texts
from strom.state.turns import Turns


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
    texts, kept = Texts([pa.string(), pa.binary()], Turns()), np.array([0])
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
    assert texts.nbytes < 32_000_000
    texts.validate()

"""Frozen columns: a freeze shows the arrays as they were, whatever is written meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.state.backend import AccColumn
from strom.state.slot_columns import BLOCK_BITS, SlotColumns

COLUMNS = [AccColumn("n", "int64"), AccColumn("x", "float64", 0.5), AccColumn("b", "bool", True)]
BLOCK = 1 << BLOCK_BITS


def filled(count: int) -> SlotColumns:
    columns = SlotColumns(COLUMNS)
    columns.reserve(count)
    columns.array("n")[:count] = np.arange(count)
    columns.array("x")[:count] = np.arange(count) / 2
    columns.array("b")[:count] = np.arange(count) % 3 == 0
    return columns


def write(columns: SlotColumns, slots: np.ndarray, value: int) -> None:
    columns.touch(slots)
    columns.array("n")[slots] = value
    columns.array("x")[slots] = value
    columns.array("b")[slots] = value % 2 == 0


def test_new_slots_are_initial_and_reset_ones_are_again() -> None:
    columns = SlotColumns(COLUMNS)
    columns.reserve(1000)
    assert (columns.array("n")[:1000] == 0).all()
    assert (columns.array("x")[:1000] == 0.5).all()
    assert columns.array("b")[:1000].all()
    write(columns, np.arange(500), 7)
    columns.reset(np.arange(100, 200))
    assert (columns.array("n")[100:200] == 0).all()
    assert (columns.array("n")[200:500] == 7).all()


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(1, 40 * BLOCK),
    st.lists(
        st.tuples(
            st.sampled_from(["write", "freeze", "read", "grow", "all", "drop"]),
            st.integers(0, 2**31),
        ),
        max_size=25,
    ),
)
def test_any_order_of_writes_freezes_and_reads(count: int, steps: list[tuple[str, int]]) -> None:
    columns, frozen = filled(count), []
    for number, (step, seed) in enumerate(steps):
        random = np.random.default_rng(seed)
        size = columns.room
        if step == "write":
            write(columns, random.integers(0, min(size, count), random.integers(1, 50)), number)
        elif step == "freeze":
            frozen.append(
                (columns.freeze(count), {c: columns.array(c)[:count].copy() for c in "nxb"})
            )
        elif step == "read" and frozen:
            view, _ = frozen[random.integers(len(frozen))]
            view.arrays()
        elif step == "grow":
            count += int(random.integers(1, 10 * BLOCK))
            columns.reserve(count)
        elif step == "all":
            columns.touch_all()
            columns.array("n")[:count] = number
        elif step == "drop" and frozen:
            frozen.pop()
    for view, expected in frozen:
        arrays = view.arrays()
        for name, array in expected.items():
            np.testing.assert_array_equal(arrays[name], array)


def test_negative_slots_are_none_and_slots_beyond_the_freeze_are_new() -> None:
    columns = filled(BLOCK + 1)
    frozen = columns.freeze(BLOCK + 1)
    columns.reserve(5 * BLOCK)
    write(columns, np.array([4 * BLOCK]), 9)
    columns.touch(np.array([-1, -5]))
    assert (frozen.arrays()["n"] == np.arange(BLOCK + 1)).all()


def test_a_dropped_freeze_costs_writers_nothing() -> None:
    columns = filled(10 * BLOCK)
    frozen = columns.freeze(10 * BLOCK)
    assert columns._incomplete() is frozen
    del frozen
    assert columns._incomplete() is None
    write(columns, np.arange(10), 3)


@pytest.mark.parametrize("seed", range(5))
def test_another_thread_reads_while_this_one_writes_and_grows(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = 4000 * BLOCK
    columns = filled(count)
    for turn in range(3):
        expected = columns.array("n")[:count].copy()
        frozen = columns.freeze(count)
        found: list[np.ndarray] = []
        reader = threading.Thread(target=lambda f=frozen, to=found: to.append(f.arrays()["n"]))
        reader.start()
        for step in range(50):
            write(columns, random.integers(0, count, 500), -turn - step)
            if step == 20:
                columns.reserve(columns.room + 1)
        reader.join()
        np.testing.assert_array_equal(found[0], expected)


def test_the_next_freeze_comes_while_another_thread_reads_the_last() -> None:
    count = 40_000 * BLOCK
    columns = filled(count)
    for turn in range(10):
        found: list[np.ndarray] = []
        frozen, expected = columns.freeze(count), columns.array("n")[:count].copy()
        both = threading.Barrier(2)

        def read(frozen: Any = frozen, found: Any = found, both: Any = both) -> None:
            both.wait()
            found.append(frozen.arrays()["n"])

        reader = threading.Thread(target=read)
        reader.start()
        both.wait()
        columns.freeze(count)
        write(columns, np.arange(0, count, 7), -turn)
        reader.join()
        np.testing.assert_array_equal(found[0], expected)
        np.testing.assert_array_equal(frozen.arrays()["n"], expected)

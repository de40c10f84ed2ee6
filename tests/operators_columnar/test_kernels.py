"""Each compiled kernel equals its plain Python twin, on the same random input."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import reference
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.operators.kernels import running, scatter, slices

SLOTS = 4
INTS = st.integers(-5, 5) | st.sampled_from([2**63 - 1, -(2**63), 2**62])
FLOATS = st.integers(-5, 5).map(float) | st.sampled_from([np.nan, np.inf, -np.inf, -0.0])

SCATTER = {
    "count_into": ("slots", "valid", "counts"),
    "add_into": ("slots", "values", "acc"),
    "sum_into": ("slots", "values", "valid", "acc", "seen"),
    "mean_into": ("slots", "values", "valid", "acc", "counts"),
    "extreme_into": ("slots", "values", "valid", "acc", "seen", "flag"),
    "earliest_into": ("slots", "values", "valid", "numbers", "acc", "best", "flag"),
    "arg_extreme_into": ("slots", "values", "valid", "rows", "acc", "seen", "flag"),
    "candidates": ("slots", "values", "valid", "acc", "seen", "flag", "ties", "chosen"),
    "running_sum": ("slots", "values", "valid", "acc", "seen", "out", "chosen"),
    "running_extreme": ("slots", "values", "valid", "acc", "seen", "flag", "out", "chosen"),
    "running_holder": ("slots", "values", "valid", "acc", "seen", "held", "flag", "chosen"),
    "running_record": ("slots", "takes", "values", "acc", "out"),
}


@st.composite
def inputs(draw: Any, floats: bool) -> dict[str, Any]:
    n = draw(st.integers(0, 12))
    dtype = np.float64 if floats else np.int64

    def array(elements: Any, size: int, kind: Any) -> Any:
        return np.array(draw(st.lists(elements, min_size=size, max_size=size)), dtype=kind)

    values = FLOATS if floats else INTS
    best = array(st.integers(-1, 8), SLOTS, np.int64)
    return {
        "slots": array(st.integers(0, SLOTS - 1), n, np.int64),
        "values": array(values, n, dtype),
        "valid": array(st.booleans(), n if draw(st.booleans()) else 0, np.bool_),
        "takes": array(st.booleans(), n, np.bool_),
        "numbers": np.arange(n, dtype=np.int64) * 2 + draw(st.integers(0, 9)),
        "acc": array(values, SLOTS, dtype),
        "counts": array(st.integers(0, 3), SLOTS, np.int64),
        "seen": array(st.booleans(), SLOTS, np.bool_),
        "held": array(st.booleans(), SLOTS, np.bool_),
        "best": best,
        "rows": np.full(SLOTS, -1, dtype=np.int64),
        "out": np.zeros(n, dtype=dtype),
        "chosen": np.zeros(n, dtype=np.bool_),
        "flag": draw(st.booleans()),
        "ties": draw(st.booleans()),
    }


TYPES = [(name, floats) for name in SCATTER for floats in (False, True)]
TYPES.remove(("mean_into", False))
"""Means are sums of floats."""


@pytest.mark.parametrize(("name", "floats"), TYPES)
def test_kernel_equals_its_twin(name: str, floats: bool) -> None:
    kernel = getattr(scatter, name, None) or getattr(running, name)
    twin = getattr(reference, name)

    @settings(max_examples=examples(30), deadline=None)
    @given(inputs(floats))
    def check(data: dict[str, Any]) -> None:
        want = copy.deepcopy(data)
        with np.errstate(all="ignore"):
            expected = twin(*[want[a] for a in SCATTER[name]])
        data["values"].flags.writeable = False
        got = kernel(*[data[a] for a in SCATTER[name]])
        assert got == expected
        for key in SCATTER[name]:
            np.testing.assert_array_equal(data[key], want[key], err_msg=key)

    check()


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.integers(-1000, 1000) | st.integers(-(2**60), 2**60), max_size=20),
    st.integers(-50, 50),
    st.integers(1, 50),
    st.integers(0, 49),
)
def test_slice_ends(timestamps: list[int], offset: int, slide: int, head: int) -> None:
    stamps = np.array(timestamps, dtype=np.int64)
    got, want = np.empty_like(stamps), np.empty_like(stamps)
    slices.slice_ends(stamps, offset, slide, head % slide, got)
    reference.slice_ends(stamps, offset, slide, head % slide, want)
    assert got.tolist() == want.tolist()
    assert (got > stamps).all()
    assert (got - stamps <= slide).all()


@given(st.lists(st.integers(0, 3), max_size=10))
@settings(deadline=None)
def test_group_runs(values: list[int]) -> None:
    for ends in (values, sorted(values)):
        array = np.array(ends, dtype=np.int64)
        got, want = np.zeros((2, len(ends)), dtype=np.int64)
        count, expected = np.zeros((2, 1), dtype=np.int64)
        monotone = slices.group_runs(array, got, count)
        assert monotone == reference.group_runs(array, want, expected) == (ends == sorted(ends))
        if monotone:
            assert got.tolist() == want.tolist()
            assert count == expected

"""Kernels of `moments` and `distinct` equal their plain Python twins, on the same random input."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import reference_distinct
import reference_moments
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.operators.kernels import distinct, moments, pairs
from strom.testing.fuzz.hyperloglog import estimate, split_hash

SLOTS = 4
ROOM = 256
INTS = st.integers(-5, 5) | st.sampled_from([2**63 - 1, -(2**63), 2**62])
FLOATS = st.integers(-5, 5).map(float) | st.sampled_from([np.nan, np.inf, -np.inf, -0.0])
FINITE = st.integers(-5, 5).map(float) | st.sampled_from([1e9, 0.1])

KERNELS: dict[str, tuple[str, ...]] = {
    "moments_into": ("slots", "finite", "valid", "counts", "mean", "m2"),
    "moments_out": ("slots", "finite", "valid", "counts", "mean", "m2"),
    "merge_moments": ("slots", "times", "finite", "squares", "counts", "mean", "m2"),
    "counted_sum_into": ("slots", "values", "valid", "acc", "counts"),
    "counted_sum_out": ("slots", "finite", "valid", "mean", "counts"),
    "count_out": ("slots", "valid", "counts"),
    "held_value_into": (
        *("slots", "other", "valid", "numbers", "values", "present", "other_acc", "best"),
        *("acc", "seen", "flag"),
    ),
    "carry_into": ("slots", "values", "alive", "acc", "seen", "flag"),
}


@st.composite
def inputs(draw: Any, floats: bool, other_floats: bool) -> dict[str, Any]:
    n = draw(st.integers(0, 12))

    def array(elements: Any, size: int, kind: Any) -> Any:
        return np.array(draw(st.lists(elements, min_size=size, max_size=size)), dtype=kind)

    def numbers(size: int, as_floats: bool) -> Any:
        return array(FLOATS if as_floats else INTS, size, np.float64 if as_floats else np.int64)

    def mask() -> Any:
        return array(st.booleans(), n if draw(st.booleans()) else 0, np.bool_)

    return {
        "slots": array(st.integers(0, SLOTS - 1), n, np.int64),
        "values": numbers(n, floats),
        "other": numbers(n, other_floats),
        "finite": array(FINITE, n, np.float64),
        "squares": array(st.integers(0, 5).map(float), n, np.float64),
        "valid": mask(),
        "present": mask(),
        "alive": array(st.booleans(), n, np.bool_),
        "numbers": np.arange(n, dtype=np.int64) * 2 + draw(st.integers(0, 9)),
        "times": array(st.integers(0, 3), n, np.int64),
        "acc": numbers(SLOTS, floats),
        "other_acc": numbers(SLOTS, other_floats),
        "counts": array(st.integers(1, 3), SLOTS, np.int64),
        "best": array(st.integers(-1, 8), SLOTS, np.int64),
        "mean": array(FINITE, SLOTS, np.float64),
        "m2": array(st.integers(0, 5).map(float), SLOTS, np.float64),
        "seen": array(st.booleans(), SLOTS, np.bool_),
        "flag": draw(st.booleans()),
    }


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_kernel_equals_its_twin(name: str, data: Any) -> None:
    given_ = data.draw(inputs(data.draw(st.booleans()), data.draw(st.booleans())))
    want = copy.deepcopy(given_)
    with np.errstate(all="ignore"):
        expected = getattr(reference_moments, name)(*[want[a] for a in KERNELS[name]])
    got = getattr(moments, name)(*[given_[a] for a in KERNELS[name]])
    assert got == expected
    for key in KERNELS[name]:
        np.testing.assert_array_equal(given_[key], want[key], err_msg=key)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=30), st.integers(0, 3))
@settings(deadline=None)
def test_new_pairs_are_counted_once(rows: list[tuple[int, int]], known: int) -> None:
    """Pairs are numbered by first appearance, as an index gives out slots."""
    numbers: dict[Any, int] = {("known", i): i for i in range(known)}
    pairs = np.array([numbers.setdefault(row, len(numbers)) for row in rows], dtype=np.int64)
    slots = np.array([slot for slot, _ in rows], dtype=np.int64)
    got, want = np.zeros((2, SLOTS), dtype=np.int64)
    total = distinct.count_new(slots, pairs, known, got)
    assert total == reference_distinct.count_new(slots, pairs, known, want) == len(numbers)
    assert got.tolist() == want.tolist()


@dataclass
class Sketch:
    """The arrays of blocks of a few slots, as the kernels take them."""

    precision: int
    count: int = 0

    def __post_init__(self) -> None:
        self.blocks = max(1, 2**self.precision // 64)
        self.directory = np.full(SLOTS * self.blocks, -1, dtype=np.int32)
        self.owners = np.zeros(ROOM, dtype=np.int64)
        self.indices = np.zeros(ROOM, dtype=np.int64)
        self.words = np.zeros(ROOM * 8, dtype=np.int64)

    def arrays(self) -> tuple[Any, ...]:
        return self.directory, self.owners, self.indices, self.words

    def add(self, kernels: Any, rows: list[tuple[int, int]]) -> None:
        hashes = np.array([hashed for _, hashed in rows], dtype=np.uint64)
        slots = np.array([slot for slot, _ in rows], dtype=np.int64)
        sizes = (self.precision, self.blocks)
        self.count = kernels.sketch_into(hashes, slots, *sizes, *self.arrays(), self.count)

    def merge(self, kernels: Any, other: Sketch) -> None:
        owners = other.owners[: other.count] - 1
        rows = (owners, other.indices[: other.count], other.words[: 8 * other.count])
        self.count = kernels.merge_blocks(*rows, self.blocks, *self.arrays(), self.count)

    def estimates(self, kernels: Any) -> list[int]:
        starts = np.zeros(SLOTS + 1, dtype=np.int64)
        order = np.empty(self.count, dtype=np.int64)
        pairs.group_rows(self.owners[: self.count], starts, order)
        out, scratch = np.zeros(SLOTS), np.zeros(66 - self.precision, dtype=np.int64)
        kernels.estimates(starts, order, self.words, self.precision, scratch, out)
        found: list[int] = np.rint(out).astype(int).tolist()
        return found


ROWS = st.lists(
    st.tuples(st.integers(0, SLOTS - 1), st.integers(0, 2**64 - 1) | st.just(0)), max_size=40
)


@given(ROWS, ROWS, st.sampled_from([4, 6, 9, 18]))
@settings(deadline=None, max_examples=examples(60))
def test_sketches(first: Any, second: Any, precision: int) -> None:
    """Those of slots 1.. are merged into the slots before them; slot 0 is left out."""
    made = []
    for kernels in (distinct, reference_distinct):
        one, other = Sketch(precision), Sketch(precision)
        for sketch, rows in ((one, first), (other, second), (other, first)):
            sketch.add(kernels, rows)
        one.merge(kernels, other)
        made.append((one, other))
    for got, want in zip(*made, strict=True):
        assert got.count == want.count
        for left, right in zip(got.arrays(), want.arrays(), strict=True):
            np.testing.assert_array_equal(left, right)
        assert got.estimates(distinct) == want.estimates(reference_distinct)


@given(ROWS, st.integers(4, 18))
@settings(deadline=None, max_examples=examples(30))
def test_estimates_are_those_of_single_values(rows: Any, precision: int) -> None:
    sketch = Sketch(precision)
    sketch.add(distinct, rows)
    want = []
    for slot in range(SLOTS):
        ranks: dict[int, int] = {}
        for register, rank in (split_hash(h, precision) for s, h in rows if s == slot):
            ranks[register] = max(rank, ranks.get(register, 0))
        want.append(estimate(ranks.values(), precision))
    assert sketch.estimates(distinct) == want


@pytest.mark.parametrize(("hashed", "want"), [(0, (0, 61)), (2**64 - 1, (15, 1)), (1, (0, 60))])
def test_register_and_rank(hashed: int, want: tuple[int, int]) -> None:
    assert split_hash(hashed, 4) == want

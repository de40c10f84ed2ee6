"""Accumulators: what each holds, and how those of several subtasks become one result."""

from __future__ import annotations

import pytest
from strom import (
    Accumulator,
    AverageAccumulator,
    DoubleCounter,
    Histogram,
    IntCounter,
    ListAccumulator,
    LongCounter,
    Maximum,
    Minimum,
    StromError,
    TypeMismatchError,
)
from strom.api.jobs.accumulator_results import AccumulatorResults

CASES = [
    (IntCounter, [1, 2, 3], 6, 0),
    (LongCounter, [2**62, 2**62], 2**63, 0),
    (DoubleCounter, [0.5, 0.25], 0.75, 0.0),
    (Minimum, [3, 1, 2], 1, None),
    (Maximum, [3, 1, 2], 3, None),
    (AverageAccumulator, [1.0, 2.0, 6.0], 3.0, 0.0),
    (Histogram, [3, 1, 3], {1: 1, 3: 2}, {}),
    (ListAccumulator, ["b", "a"], ["b", "a"], []),
]


@pytest.mark.parametrize(("kind", "values", "result", "empty"), CASES)
def test_merged_over_any_split_it_is_the_same(kind, values, result, empty):
    for cut in range(len(values) + 1):
        parts = []
        for some in (values[:cut], values[cut:], []):
            part = kind()
            for value in some:
                part.add(value)
            parts.append(("n", "operator", part))
        results = AccumulatorResults(parts)
        assert results.results() == {"n": result}
        assert results.result("n") == result  # asking changes nothing
    parts[0][2].reset_local()
    assert parts[0][2].get_local_value() == empty
    assert type(parts[0][2].get_local_value()) is type(empty)


def test_an_unknown_name_has_no_result():
    assert AccumulatorResults([("a", "o", LongCounter())]).result("n") is None


def test_two_kinds_under_one_name_are_an_error_of_that_name_alone():
    parts = [("n", "o1", LongCounter(1)), ("n", "o2", Histogram()), ("m", "o2", LongCounter(2))]
    results = AccumulatorResults(parts)
    with pytest.raises(TypeMismatchError, match="a LongCounter in operator o1 and a Histogram in"):
        results.result("n")
    assert results.result("m") == 2


class Broken(Accumulator):
    def add(self, value):
        """Nothing."""

    def get_local_value(self):
        return 0

    def reset_local(self):
        """Nothing."""

    def merge(self, other):
        raise ValueError("no")


def test_a_merge_that_raises_is_named():
    parts = [("n", "o", Broken()), ("n", "o", Broken())]
    with pytest.raises(StromError, match=r"accumulators 'n' cannot be merged: ValueError: no"):
        AccumulatorResults(parts).result("n")

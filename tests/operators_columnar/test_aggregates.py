"""Aggregates over rows: nulls, types, merging. Equality with kernels: test_columnar_windows."""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl
import pytest
from strom.api.aggregates import Aggregate, count, first, last, max_, mean, min_, sum_
from strom.core.errors import GraphError, TypeMismatchError
from strom.core.row import Row

ALL = [count("v"), sum_("v"), min_("v"), max_("v"), mean("v"), first("v"), last("v")]


def fold(function: Any, values: list[Any]) -> Any:
    accumulator = function.create_accumulator()
    for value in values:
        accumulator = function.add({"v": value}, accumulator)
    return accumulator


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([], [0, None, None, None, None, None, None]),
        ([None, None], [0, None, None, None, None, None, None]),
        ([3, None, 1, 2, None], [3, 6, 1, 3, 2.0, 3, 2]),
        ([True, False, True], [3, 2, False, True, 2 / 3, True, True]),
    ],
)
def test_nulls_are_skipped(values: list[Any], want: list[Any]) -> None:
    results = [(f := a.to_function()).get_result(fold(f, values)) for a in ALL]
    assert repr(results) == repr(want)


def test_count_of_rows_counts_nulls() -> None:
    function = count().to_function()
    assert function.get_result(fold(function, [None, 1])) == 2


@pytest.mark.parametrize("left", [[], [None], [4, 1], [float("nan")]])
@pytest.mark.parametrize("right", [[], [2, 3], [float("nan"), 1]])
def test_merging_equals_folding_on(left: list[Any], right: list[Any]) -> None:
    for aggregate in ALL:
        function = aggregate.to_function()
        merged = function.merge(fold(function, left), fold(function, right))
        whole = aggregate.to_function()
        want = whole.get_result(fold(whole, left + right))
        assert repr(function.get_result(merged)) == repr(want), aggregate.describe()


def test_first_and_last_survive_merging_in_any_order() -> None:
    for aggregate, want in ((first("v"), 1), (last("v"), 2)):
        function = aggregate.to_function()
        early, late = fold(function, [1]), fold(function, [2])
        assert function.get_result(function.merge(late, early)) == want


class Named(NamedTuple):
    count: int


@pytest.mark.parametrize("row", [{"count": 5}, Row(count=5), Named(5)])
def test_fields_named_like_methods(row: Any) -> None:
    function = sum_("count").to_function()
    assert function.get_result(function.add(row, function.create_accumulator())) == 5


@pytest.mark.parametrize("row", [{"f0": 2, "f1": 3}, (2, 3), Row(f0=2, f1=3)])
def test_expressions_and_positions(row: Any) -> None:
    for aggregate, want in ((sum_(pl.col("f0") * pl.col("f1")), 6), (max_("f1"), 3)):
        function = aggregate.to_function()
        assert function.get_result(function.add(row, function.create_accumulator())) == want


def test_integer_sums_do_not_leave_int64() -> None:
    function = sum_("v").to_function()
    with pytest.raises(TypeMismatchError, match=r"sum\(v\) exceeds"):
        fold(function, [2**62, 2**62])


def test_what_is_no_aggregate() -> None:
    with pytest.raises(GraphError, match="median"):
        Aggregate("median", "v")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="needs a column"):
        Aggregate("sum")

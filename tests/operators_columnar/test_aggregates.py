"""Aggregates over rows: nulls, types, merging. Equality with kernels: test_columnar_windows."""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl
import pytest
from reference_folds import to_function
from strom.api.aggregates import (
    Aggregate,
    approx_count_distinct,
    arg_max,
    arg_min,
    collect,
    count,
    count_distinct,
    first,
    largest,
    last,
    max_,
    mean,
    min_,
    smallest,
    stddev,
    sum_,
    variance,
)
from strom.core.errors import GraphError, TypeMismatchError
from strom.core.row import Row

ALL = [count("v"), sum_("v"), min_("v"), max_("v"), mean("v"), first("v"), last("v")]
MORE = [
    *(variance("v", ddof=0), stddev("v"), count_distinct("v"), approx_count_distinct("v")),
    *(collect("v"), largest("v", 2), smallest("v", 2), arg_min("v", by="v"), arg_max("v", by="v")),
]


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
    results = [(f := to_function(a)).get_result(fold(f, values)) for a in ALL]
    assert repr(results) == repr(want)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([None], [None, None, 0, 0, [], [], [], None, None]),
        ([2], [0.0, None, 1, 1, [2], [2], [2], 2, 2]),
        ([3, None, 1, 3, 5], [2.0, 1.632993161855452, 3, 3, [3, 1, 3, 5], [5, 3], [1, 3], 1, 5]),
    ],
)
def test_more_kinds(values: list[Any], want: list[Any]) -> None:
    results = [(f := to_function(a)).get_result(fold(f, values)) for a in MORE]
    assert repr(results) == repr(want)


@pytest.mark.parametrize(
    ("aggregate", "want"),
    [
        (count().where("ok"), 2),
        (sum_("v").where(pl.col("v") > 1), 9),
        (sum_("v").where("ok").where(pl.col("v") > 1), 4),
        (collect("v").where("ok"), [1, 4]),
        (arg_max("v", by="w"), 3),
        (arg_min("v", by="w").where("ok"), 4),
        (arg_max("w", by="v"), 8),
        (arg_min("w", by="v"), None),
    ],
)
def test_conditions_and_by(aggregate: Aggregate, want: Any) -> None:
    rows = [
        {"v": 1, "w": None, "ok": True},
        {"v": 2, "w": 5, "ok": None},
        {"v": 3, "w": 9, "ok": False},
        {"v": 4, "w": 8, "ok": True},
    ]
    function = to_function(aggregate)
    accumulator = function.create_accumulator()
    for row in rows:
        accumulator = function.add(row, accumulator)
    assert function.get_result(accumulator) == want


def test_count_of_rows_counts_nulls() -> None:
    function = to_function(count())
    assert function.get_result(fold(function, [None, 1])) == 2


@pytest.mark.parametrize("left", [[], [None], [4, 1], [float("nan")]])
@pytest.mark.parametrize("right", [[], [2, 3], [float("nan"), 1]])
def test_merging_equals_folding_on(left: list[Any], right: list[Any]) -> None:
    for aggregate in ALL + MORE:
        function = to_function(aggregate)
        merged = function.merge(fold(function, left), fold(function, right))
        whole = to_function(aggregate)
        want = whole.get_result(fold(whole, left + right))
        assert repr(function.get_result(merged)) == repr(want), aggregate.describe()


def test_first_and_last_survive_merging_in_any_order() -> None:
    for aggregate, want in ((first("v"), 1), (last("v"), 2)):
        function = to_function(aggregate)
        early, late = fold(function, [1]), fold(function, [2])
        assert function.get_result(function.merge(late, early)) == want


class Named(NamedTuple):
    count: int


@pytest.mark.parametrize("row", [{"count": 5}, Row(count=5), Named(5)])
def test_fields_named_like_methods(row: Any) -> None:
    function = to_function(sum_("count"))
    assert function.get_result(function.add(row, function.create_accumulator())) == 5


@pytest.mark.parametrize("row", [{"f0": 2, "f1": 3}, (2, 3), Row(f0=2, f1=3)])
def test_expressions_and_positions(row: Any) -> None:
    for aggregate, want in ((sum_(pl.col("f0") * pl.col("f1")), 6), (max_("f1"), 3)):
        function = to_function(aggregate)
        assert function.get_result(function.add(row, function.create_accumulator())) == want


def test_integer_sums_do_not_leave_int64() -> None:
    function = to_function(sum_("v"))
    with pytest.raises(TypeMismatchError, match=r"sum\(v\) exceeds"):
        fold(function, [2**62, 2**62])


def test_what_is_no_aggregate() -> None:
    with pytest.raises(GraphError, match="median"):
        Aggregate("median", "v")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="needs a column"):
        Aggregate("sum")
    with pytest.raises(GraphError, match="arg_min' needs by"):
        Aggregate("arg_min", "v")
    with pytest.raises(GraphError, match="n must be at least 1, is 0"):
        largest("v", 0)
    with pytest.raises(GraphError, match="precision must be at most 18, is 19"):
        approx_count_distinct("v", 19)

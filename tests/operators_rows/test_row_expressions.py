"""Aggregates of expressions, row by row, over nulls: what columns give."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from reference_folds import to_function
from strom import Aggregate, Row, count, max_, min_, sum_


def fold(aggregate: Aggregate, values: list[Any]) -> Any:
    function = to_function(aggregate)
    accumulator = function.create_accumulator()
    for value in values:
        accumulator = function.add(Row(t=value, n=1), accumulator)
    return function.get_result(accumulator)


UPPER = pl.col("t").str.to_uppercase()


@pytest.mark.parametrize(
    ("aggregate", "values", "expected"),
    [
        (max_(UPPER), [None, "a", None, "b"], "B"),
        (max_(UPPER), [None, None], None),
        (count(UPPER), [None, "a", None], 1),
        (min_(pl.col("t").str.len_chars() + pl.col("n")), [None, "aaa", "b"], 2),
        (sum_(pl.col("t").fill_null(5)), [None, 2, None], 12),
        (sum_(pl.col("t") * 2 + pl.col("n")), [None, 3], 7),
        (count().where(pl.col("t").str.starts_with("a")), [None, "ab", "b", None], 1),
        (count().where(pl.col("t").dt.year() == 1970), [None], 0),
    ],
)
def test_a_null_has_the_type_of_its_column(
    aggregate: Aggregate, values: list[Any], expected: Any
) -> None:
    assert fold(aggregate, values) == expected


def test_an_expression_that_never_fits_says_so() -> None:
    with pytest.raises(pl.exceptions.PolarsError):
        fold(max_(pl.col("other")), [None, 1])

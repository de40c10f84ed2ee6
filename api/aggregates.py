"""Built-in aggregates as plain data: `window(...).aggregate(n=count(), top=max_("price"))`.

Semantics are SQL's. Nulls are skipped; `sum`, `min`, `max`, `mean`, `first` and `last` of nothing
are null, `count` of nothing is 0. Types of results:

  count              int64
  sum                int64 for integers and booleans (overflow is an error), float64 for floats
  mean               float64, computed as float64 sum / count
  min, max           the column's type; NaN counts as greater than every other number
  first, last        the column's type; "first" and "last" in order of arrival at the operator

Columns of numbers, booleans, dates, times and timestamps run on array kernels. For the other types
(strings, binary, decimals, uint64; nested types with first and last) min, max, first and last pick
whole Arrow values by rank: exact, but several times slower.

Floats are added in order of arrival within a slice of a window, then slice by slice in order of
time; a row-by-row sum adds in order of arrival throughout. The two can differ in the last digits
where a window has several slices (sliding windows) and the addends are not exactly representable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ..core.errors import GraphError

if TYPE_CHECKING:
    import polars as pl

    from .functions import AggregateFunction

AggregateKind = Literal["count", "sum", "min", "max", "mean", "first", "last"]


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of one column or polars expression; `expression` is None to count rows."""

    kind: AggregateKind
    expression: str | pl.Expr | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(AggregateKind):
            raise GraphError(f"no aggregate '{self.kind}'; there are {get_args(AggregateKind)}")
        if self.expression is None and self.kind != "count":
            raise GraphError(f"aggregate '{self.kind}' needs a column name or expression")

    def describe(self) -> str:
        """Short text for `explain()` and error messages."""
        return f"{self.kind}({'' if self.expression is None else self.expression})"

    def to_function(self) -> AggregateFunction:
        """The same aggregate over rows, one by one; results equal the columnar path's values.

        Rows are `Row`s, named tuples, dataclasses, dicts, or plain tuples (columns f0, f1, ...).
        A polars expression is evaluated on one row at a time there, which costs ~100 us per row.
        """
        from .row_aggregates import RowAggregate

        return RowAggregate(self)


def count(expression: str | pl.Expr | None = None) -> Aggregate:
    """Number of records; of non-null values when given a column or expression."""
    return Aggregate("count", expression)


def sum_(expression: str | pl.Expr) -> Aggregate:
    return Aggregate("sum", expression)


def min_(expression: str | pl.Expr) -> Aggregate:
    return Aggregate("min", expression)


def max_(expression: str | pl.Expr) -> Aggregate:
    return Aggregate("max", expression)


def mean(expression: str | pl.Expr) -> Aggregate:
    return Aggregate("mean", expression)


def first(expression: str | pl.Expr) -> Aggregate:
    """The first non-null value to arrive."""
    return Aggregate("first", expression)


def last(expression: str | pl.Expr) -> Aggregate:
    """The last non-null value to arrive."""
    return Aggregate("last", expression)

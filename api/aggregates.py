"""Built-in aggregates as plain data: `window(...).aggregate(n=count(), top=max_("price"))`.

Semantics are SQL's. Nulls are skipped; `count` of nothing is 0, as are `count_distinct` and
`approx_count_distinct`; every other aggregate of nothing is null, but `collect`, `largest` and
`smallest`, which are empty lists. Types of results:

  count                     int64
  sum                       int64 for integers and booleans (overflow is an error), float64 for
                            floats
  mean                      float64, computed as float64 sum / count; of integers and booleans the
                            sum is exact, whatever its size, and then rounded once
  variance, stddev          float64; null for fewer than ddof + 1 values
  min, max                  the column's type; NaN counts as greater than every other number
  first, last               the column's type; in order of arrival at the operator
  arg_min, arg_max          the type of `value`, which may be null there; records whose `by` is null
                            are skipped, the first of several equal ones counts
  count_distinct            int64, exact; NaN is one value, and 0.0 and -0.0 are one
  approx_count_distinct     int64, HyperLogLog; same equalities
                            (BIG_DEC, BIG_INT and pickled values are not counted: columns cannot
                            compare them, nor have they an order)
  collect                   list of the column's type, in order of arrival
  largest, smallest         list of the column's type, best first; ties in order of arrival

`aggregate.where(condition)` is SQL's FILTER: records for which the condition is false or null are
not seen by that aggregate.

Columns of numbers, booleans, dates, times and timestamps run on array kernels. For the other types
(strings, binary, decimals, uint64; nested types with first, last and collect) values are picked
whole, by rank: exact, but several times slower.

Floats are added in order of arrival within a slice of a window, then slice by slice in order of
time; a row-by-row sum adds in order of arrival throughout. The two can differ in the last digits
where a window has several slices (sliding windows) and the addends are not exactly representable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..core.errors import GraphError, TypeMismatchError
from ..core.value_types import holds, is_value_type, type_text
from .aggregate_kinds import kind_of, suits_of

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of one column or polars expression; `expression` is None to count rows.

    `by` is what arg_min and arg_max compare. `number` is ddof, n or precision, by kind."""

    kind: str
    expression: str | pl.Expr | None = None
    condition: str | pl.Expr | None = None
    by: str | pl.Expr | None = None
    number: int = 0

    def __post_init__(self) -> None:
        kind = kind_of(self.kind)
        if self.expression is None and kind.values:
            raise GraphError(f"aggregate '{self.kind}' needs a column name or expression")
        if (self.by is None) == kind.by:
            raise GraphError(
                f"aggregate '{self.kind}' {'needs' if self.by is None else 'has no'} by"
            )
        if kind.number is None:
            return
        name, least, greatest = kind.number
        if type(self.number) is not int or self.number < least:
            raise GraphError(f"{self.kind}: {name} must be at least {least}, is {self.number!r}")
        if greatest is not None and self.number > greatest:
            raise GraphError(f"{self.kind}: {name} must be at most {greatest}, is {self.number}")

    @property
    def takes_input(self) -> bool:
        """Whether it looks at anything of a record; only `count()` without condition does not."""
        return self.expression is not None or self.condition is not None

    def where(self, condition: str | pl.Expr) -> Aggregate:
        """The same over the records for which `condition` (a boolean column or expression) is true;
        several conditions must all be true."""
        if self.condition is not None:
            condition = _expression(self.condition) & _expression(condition)
        return replace(self, condition=condition)

    def describe(self) -> str:
        """Short text for `explain()` and error messages."""
        parts = [str(e) for e in (self.expression, self.by) if e is not None]
        named = kind_of(self.kind).number
        if named is not None:
            parts.append(f"{named[0]}={self.number}")
        text = f"{self.kind}({', '.join(parts)})"
        return text if self.condition is None else f"{text} where {self.condition}"


def is_kept(aggregate: Aggregate, kind: pa.DataType) -> bool:
    """Whether anything keeps this aggregate of values of this type; built-in ones are of all types
    but those that they refuse themselves."""
    suits = suits_of(aggregate.kind)
    return suits is None or suits(aggregate, kind)


DISTINCT = ("count_distinct", "approx_count_distinct")


def check_distinct(aggregate: Aggregate, kind: pa.DataType) -> None:
    """TypeMismatchError if values of this type are counted that only Python can compare: their
    storage may differ where they are equal."""
    if holds(kind, is_value_type):
        raise TypeMismatchError(
            f"{aggregate.describe()}: values of type {type_text(kind)} can be compared in Python "
            "alone, not in columns: count them in an AggregateFunction, or declare a type that "
            "columns know"
        )


def not_kept(aggregate: Aggregate, kind: pa.DataType) -> str:
    """What to tell where nothing does."""
    return (
        f"{aggregate.describe()}: nothing keeps '{aggregate.kind}' of values of type {kind}; cast "
        f"the column, or register an accumulator of '{aggregate.kind}' that suits them"
    )


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


def variance(expression: str | pl.Expr, ddof: int = 1) -> Aggregate:
    """The sample variance; the population's with ddof=0. Numerically stable (Welford)."""
    return Aggregate("variance", expression, number=ddof)


def stddev(expression: str | pl.Expr, ddof: int = 1) -> Aggregate:
    """The square root of `variance`."""
    return Aggregate("stddev", expression, number=ddof)


def count_distinct(expression: str | pl.Expr) -> Aggregate:
    """How many different values there are, exactly. State: every distinct value of every key."""
    return Aggregate("count_distinct", expression)


def approx_count_distinct(expression: str | pl.Expr, precision: int = 12) -> Aggregate:
    """About how many different values there are: HyperLogLog with 2**precision registers.

    The standard error is 1.04 / 2**(precision / 2): 1.6 % for 12, 0.8 % for 14; few values are
    counted almost exactly. State per key and slice: 80 bytes for each 64 registers in use, and a
    sixteenth of a byte for each of the 2**precision. Deterministic: values are hashed by the stable
    hash that also routes keys."""
    return Aggregate("approx_count_distinct", expression, number=precision)


def collect(expression: str | pl.Expr) -> Aggregate:
    """All non-null values as a list, in order of arrival."""
    return Aggregate("collect", expression)


def arg_min(value: str | pl.Expr, by: str | pl.Expr) -> Aggregate:
    """`value` of the record with the least `by`; the first of several."""
    return Aggregate("arg_min", value, by=by)


def arg_max(value: str | pl.Expr, by: str | pl.Expr) -> Aggregate:
    """`value` of the record with the greatest `by` (NaN is the greatest); the first of several."""
    return Aggregate("arg_max", value, by=by)


def largest(expression: str | pl.Expr, n: int) -> Aggregate:
    """The n greatest values as a list, greatest first (NaN is the greatest)."""
    return Aggregate("largest", expression, number=n)


def smallest(expression: str | pl.Expr, n: int) -> Aggregate:
    """The n least values as a list, least first."""
    return Aggregate("smallest", expression, number=n)


def _expression(condition: str | pl.Expr) -> pl.Expr:
    import polars as pl

    return pl.col(condition) if isinstance(condition, str) else condition

"""The built-in aggregates over plain lists, written from their definitions (`api.aggregates`), and
the order of values. Nothing here is shared with the operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import Any

from ...api.aggregates import Aggregate
from .hyperloglog import estimate, register_and_rank

Record = dict[str, Any]
Condition = Callable[[Record], bool | None]


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1; NaN is the greatest value and equals itself."""
    if left != left or right != right:
        return int(left != left) - int(right != right)
    return int(left > right) - int(left < right)


def compare_nullable(left: Any, right: Any, descending: bool) -> int:
    """Nulls come last in either direction."""
    if left is None or right is None:
        return int(left is None) - int(right is None)
    order = compare(left, right)
    return -order if descending else order


def in_order(records: Sequence[Record], order: Sequence[tuple[str, bool]]) -> list[Record]:
    """Sorted by (column, descending) pairs; ties in the order given."""

    def by_all(left: Record, right: Record) -> int:
        for name, descending in order:
            found = compare_nullable(left[name], right[name], descending)
            if found:
                return found
        return 0

    return sorted(records, key=cmp_to_key(by_all))


def fold(aggregate: Aggregate, records: Sequence[Record], condition: Condition | None) -> Any:
    """The aggregate of records in order of arrival. Columns are given by name."""
    seen = [r for r in records if condition is None or condition(r)]
    kind, number = aggregate.kind, aggregate.number
    if aggregate.expression is None:
        return len(seen)
    name = str(aggregate.expression)
    if kind.startswith("arg_"):
        by = str(aggregate.by)
        seen = [r for r in seen if r[by] is not None]
        best = extreme([r[by] for r in seen], kind == "arg_max")
        return None if best is None else seen[best][name]
    values = [r[name] for r in seen if r[name] is not None]
    return _of_values(kind, number, values)


def extreme(values: Sequence[Any], largest: bool) -> int | None:
    """Where the first of the greatest (least) values is."""
    best: int | None = None
    for at, value in enumerate(values):
        order = 0 if best is None else compare(value, values[best])
        if best is None or (order > 0 if largest else order < 0):
            best = at
    return best


def _of_values(kind: str, number: int, values: list[Any]) -> Any:
    match kind:
        case "count":
            return len(values)
        case "count_distinct":
            return len(set(map(distinct, values)))
        case "approx_count_distinct":
            registers: dict[int, int] = {}
            for value in values:
                register, rank = register_and_rank(value, number)
                registers[register] = max(rank, registers.get(register, 0))
            return estimate(registers.values(), number)
        case "collect":
            return values
        case "largest" | "smallest":
            ranked = in_order([{"v": v} for v in values], [("v", kind == "largest")])
            return [r["v"] for r in ranked[:number]]
        case "variance" | "stddev":
            return _spread(kind, number, values)
    if not values:
        return None
    match kind:
        case "sum":
            return sum(map(int, values)) if not isinstance(values[0], float) else sum(values)
        case "mean":
            if isinstance(values[0], float):
                return sum(values) / len(values)
            return float(sum(map(int, values))) / len(values)
        case "first":
            return values[0]
        case "last":
            return values[-1]
        case "min" | "max":
            best = extreme(values, kind == "max")
            return None if best is None else values[best]
    raise AssertionError(kind)


def _spread(kind: str, ddof: int, values: list[Any]) -> Any:
    if len(values) <= ddof:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    mean = math.fsum(values) / len(values)
    spread = math.fsum((v - mean) ** 2 for v in values) / (len(values) - ddof)
    return math.sqrt(spread) if kind == "stddev" else spread


def distinct(value: Any) -> Any:
    """Equal for values that count as one: NaN is one value, 0.0 and -0.0 are one."""
    return "nan" if isinstance(value, float) and value != value else value

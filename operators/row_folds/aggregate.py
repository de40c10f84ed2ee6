"""The built-in aggregates row by row, for windows that have no kernels (custom triggers, keys that
are Python functions, gaps that depend on the record). `numbers` and `many` have the arithmetic;
this reads values out of rows.

Sequence numbers make the order of arrival survive the merging of sessions. They count the `add`
calls of one function object and start at `attempt << 40`, so that records that came before a
failure stay before those after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...api.functions.user_functions import AggregateFunction, RuntimeContext
from ...core.row_values import value_getter
from .many import Best, Collect, Distinct, Sketch
from .numbers import ArgExtreme, Arrival, Count, Extreme, Fold, Mean, Sum, Variance

if TYPE_CHECKING:
    from ...api.aggregates import Aggregate


FOLDS: dict[str, type[Fold]] = {
    "count": Count,
    "sum": Sum,
    "mean": Mean,
    "min": Extreme,
    "max": Extreme,
    "first": Arrival,
    "last": Arrival,
    "variance": Variance,
    "stddev": Variance,
    "arg_min": ArgExtreme,
    "arg_max": ArgExtreme,
    "count_distinct": Distinct,
    "approx_count_distinct": Sketch,
    "collect": Collect,
    "largest": Best,
    "smallest": Best,
}


class RowAggregate(AggregateFunction):
    """Runs one `Aggregate` over rows. Accumulators are lists, changed in place by `add`."""

    def __init__(self, aggregate: Aggregate) -> None:
        self.aggregate = aggregate
        self._fold = FOLDS[aggregate.kind](aggregate)
        self._value = value_getter(aggregate.expression)
        self._by = None if aggregate.by is None else value_getter(aggregate.by)
        condition = aggregate.condition
        self._condition = None if condition is None else value_getter(condition)
        self._sequence = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self._sequence = runtime_context.get_attempt_number() << 40

    def create_accumulator(self) -> list[Any]:
        return self._fold.create()

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        item = self._item(value)
        if item is not None:
            self._sequence = max(self._sequence, self._fold.latest(accumulator)) + 1
            self._fold.add(accumulator, item, self._sequence)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> Any:
        return self._fold.result(accumulator)

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        return self._fold.merge(acc_a, acc_b)

    def _item(self, row: Any) -> Any:
        """What is folded of a row; None to skip it."""
        if self._condition is not None and not self._condition(row):
            return None
        if self._by is None:
            return self._value(row)
        by = self._by(row)
        return None if by is None else (self._value(row), by)

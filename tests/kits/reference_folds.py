"""What each built-in aggregate does with values, one by one, in plain Python: the model of the
kernels, as an AggregateFunction over rows.

An accumulator is a list, changed in place:

  count             [n]                     variance, stddev   [n, mean, squared differences]
  sum               [sum or None]           arg_min, arg_max   [number or -1, by, value]
  mean              [sum, n]                count_distinct     [set of values]
  min, max          [extreme or None]       approximate        [{register: rank}]
  first, last       [number or -1, value]   collect            [(number, value), ...]
                                            largest, smallest  [value, ...], best first

Sequence numbers make the order of arrival survive merging: they count the `add` calls of one
object.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from strom.api.aggregates import Aggregate
from strom.api.functions.user_functions import AggregateFunction
from strom.core.row_values import value_getter
from strom.operators.sums import INT64_MAX, INT64_MIN, overflow
from strom.testing.fuzz.hyperloglog import estimate, register_and_rank


def to_function(aggregate: Aggregate) -> AggregateFunction:
    """The aggregate over rows, one by one."""
    return RowAggregate(aggregate)


@dataclass(frozen=True)
class Fold(ABC):
    """One aggregate's steps. `numbers` are sequence numbers of arrival, positive, ascending."""

    aggregate: Aggregate

    @property
    def kind(self) -> str:
        return self.aggregate.kind

    @abstractmethod
    def create(self) -> list[Any]: ...

    @abstractmethod
    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        """Fold a value that is not null (for arg_min and arg_max: (value, by), by not null)."""

    @abstractmethod
    def result(self, accumulator: list[Any]) -> Any: ...

    @abstractmethod
    def merge(self, left: list[Any], right: list[Any]) -> list[Any]: ...

    def latest(self, accumulator: list[Any]) -> int:
        """The greatest sequence number in there, -1 if none is kept."""
        return -1


def better(item: Any, than: Any, largest: bool) -> bool:
    """Whether `item` replaces the extreme. NaN is the greatest value; equals keep the first."""
    if largest:
        return bool(item > than or (item != item and than == than))
    return bool(item < than or (than != than and item == item))


class Count(Fold):
    def create(self) -> list[Any]:
        return [0]

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        accumulator[0] += 1

    def result(self, accumulator: list[Any]) -> Any:
        return accumulator[0]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [left[0] + right[0]]


class Sum(Fold):
    def create(self) -> list[Any]:
        return [None]

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        accumulator[0] = self._plus(accumulator[0], item)

    def result(self, accumulator: list[Any]) -> Any:
        return accumulator[0]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        if left[0] is None or right[0] is None:
            return [right[0] if left[0] is None else left[0]]
        return [self._plus(left[0], right[0])]

    def _plus(self, total: Any, item: Any) -> Any:
        if isinstance(item, bool):
            item = int(item)
        if total is None:
            return item
        total = total + item
        if isinstance(total, int) and not INT64_MIN <= total <= INT64_MAX:
            raise overflow(self.aggregate)
        return total


class Mean(Fold):
    def create(self) -> list[Any]:
        return [0, 0]

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        accumulator[0] += item  # of integers Python's sum, which is exact
        accumulator[1] += 1

    def result(self, accumulator: list[Any]) -> Any:
        return float(accumulator[0]) / accumulator[1] if accumulator[1] else None

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [left[0] + right[0], left[1] + right[1]]


class Variance(Fold):
    def create(self) -> list[Any]:
        return [0, 0.0, 0.0]

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        n, mean, squares = accumulator
        value = float(item)
        delta = value - mean
        mean += delta / (n + 1)
        accumulator[:] = [n + 1, mean, squares + delta * (value - mean)]

    def result(self, accumulator: list[Any]) -> Any:
        freedom = accumulator[0] - self.aggregate.number
        if freedom <= 0:
            return None
        spread = accumulator[2] / freedom
        return math.sqrt(spread) if self.kind == "stddev" else spread

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        if not left[0] or not right[0]:
            return list(left if left[0] else right)
        n, mean, squares = left
        k, other, more = right
        total, delta = n + k, other - mean
        squares += more + delta * delta * (n * (k / total))
        return [total, mean + delta * (k / total), squares]


class Extreme(Fold):
    def create(self) -> list[Any]:
        return [None]

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        if accumulator[0] is None or better(item, accumulator[0], self.kind == "max"):
            accumulator[0] = item

    def result(self, accumulator: list[Any]) -> Any:
        return accumulator[0]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        if left[0] is None:
            return list(right)
        worse = right[0] is None or not better(right[0], left[0], self.kind == "max")
        return list(left if worse else right)


class Arrival(Fold):
    def create(self) -> list[Any]:
        return [-1, None]

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        if self.kind == "last" or accumulator[0] < 0:
            accumulator[:] = [number, item]

    def result(self, accumulator: list[Any]) -> Any:
        return accumulator[1]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        if left[0] < 0 or right[0] < 0:
            return list(right if left[0] < 0 else left)
        left_first = left[0] <= right[0]
        return list(left if left_first == (self.kind == "first") else right)

    def latest(self, accumulator: list[Any]) -> int:
        return int(accumulator[0])


class ArgExtreme(Fold):
    def create(self) -> list[Any]:
        return [-1, None, None]

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        value, by = item
        if accumulator[0] < 0 or better(by, accumulator[1], self.kind == "arg_max"):
            accumulator[:] = [number, by, value]

    def result(self, accumulator: list[Any]) -> Any:
        return accumulator[2]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        if left[0] < 0 or right[0] < 0:
            return list(right if left[0] < 0 else left)
        early, late = (left, right) if left[0] <= right[0] else (right, left)
        return list(late if better(late[1], early[1], self.kind == "arg_max") else early)

    def latest(self, accumulator: list[Any]) -> int:
        return int(accumulator[0])


class Distinct(Fold):
    def create(self) -> list[Any]:
        return [set()]

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        accumulator[0].add(distinct_key(item))

    def result(self, accumulator: list[Any]) -> Any:
        return len(accumulator[0])

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [left[0] | right[0]]


class Sketch(Fold):
    def create(self) -> list[Any]:
        return [{}]

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        register, rank = register_and_rank(item, self.aggregate.number)
        ranks = accumulator[0]
        if rank > ranks.get(register, 0):
            ranks[register] = rank

    def result(self, accumulator: list[Any]) -> Any:
        return estimate(accumulator[0].values(), self.aggregate.number)

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        merged = dict(left[0])
        for register, rank in right[0].items():
            merged[register] = max(rank, merged.get(register, 0))
        return [merged]


class Collect(Fold):
    def create(self) -> list[Any]:
        return []

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        accumulator.append((number, item))

    def result(self, accumulator: list[Any]) -> Any:
        return [item for _, item in accumulator]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return list(heapq.merge(left, right, key=lambda pair: pair[0]))

    def latest(self, accumulator: list[Any]) -> int:
        return int(accumulator[-1][0]) if accumulator else -1


class Best(Fold):
    def create(self) -> list[Any]:
        return []

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        largest = self.kind == "largest"
        at = len(accumulator)
        while at and better(item, accumulator[at - 1], largest):
            at -= 1
        accumulator.insert(at, item)
        del accumulator[self.aggregate.number :]

    def result(self, accumulator: list[Any]) -> Any:
        return list(accumulator)

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        merged = list(left)
        for item in right:
            self.add(merged, item, 0)
        return merged


def distinct_key(item: Any) -> Any:
    """Equal for values that count as one: NaN is one value (None stands for it)."""
    if isinstance(item, float):
        return None if item != item else item
    if isinstance(item, (list, tuple)):
        return ("list", *[distinct_key(part) for part in item])
    if isinstance(item, dict):
        return ("struct", *[(name, distinct_key(value)) for name, value in item.items()])
    return item


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

"""What each built-in aggregate does with values, one by one: the row path's arithmetic. Here those
of one value or a few numbers; `many` has those that keep more.

An accumulator is a list, changed in place:

  count             [n]                     variance, stddev   [n, mean, squared differences]
  sum               [sum or None]           arg_min, arg_max   [number or -1, by, value]
  mean              [float sum, n]          count_distinct     [set of values]
  min, max          [extreme or None]       approximate        [{register: rank}]
  first, last       [number or -1, value]   collect            [(number, value), ...]
                                            largest, smallest  [value, ...], best first

The kernels do the same in the same order, so results are equal; see tests/operators_rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import TypeMismatchError

if TYPE_CHECKING:
    from ...api.aggregates import Aggregate


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


INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


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
        return [0.0, 0]

    def add(self, accumulator: list[Any], item: Any, number: int) -> None:
        accumulator[0] += float(item)
        accumulator[1] += 1

    def result(self, accumulator: list[Any]) -> Any:
        return accumulator[0] / accumulator[1] if accumulator[1] else None

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


def overflow(aggregate: Aggregate) -> TypeMismatchError:
    """An integer sum left the range of int64."""
    return TypeMismatchError(
        f"{aggregate.describe()} exceeds the range of int64; sum a float64 column instead"
    )

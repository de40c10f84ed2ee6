"""Accumulators: figures that a job's result holds, folded from all subtasks (as Flink's Java API).

    class Lines(MapFunction):
        def open(self, runtime_context):
            self.lines = LongCounter()
            runtime_context.add_accumulator("lines", self.lines)

        def map(self, value):
            self.lines.add(1)
            return value

    env.execute().get_accumulator_result("lines")

Each subtask adds to an accumulator of its own; those of one name, in whatever operators, are merged
where the program asks. They are no state: what a failed attempt added is gone, and the next one
begins anew at its checkpoint. So a result is exact if the job was never restarted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Self, TypeVar

V = TypeVar("V")
R = TypeVar("R")


class Accumulator(ABC, Generic[V, R]):
    """Base of all accumulators; picklable. `merge` and `get_local_value` are called in the program
    that asks for the result, the rest in the subtask."""

    @abstractmethod
    def add(self, value: V) -> None: ...

    @abstractmethod
    def get_local_value(self) -> R:
        """The result so far."""

    @abstractmethod
    def reset_local(self) -> None:
        """Back to the start."""

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Take over what another subtask's accumulator, of the same class, holds."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.get_local_value()!r})"


class _Sum(Accumulator[Any, Any]):
    """Adds up numbers."""

    _start: Any = 0

    def __init__(self, value: Any = None) -> None:
        self._value = self._start if value is None else value

    def add(self, value: Any = 1) -> None:
        self._value += value

    def get_local_value(self) -> Any:
        return self._value

    def reset_local(self) -> None:
        self._value = self._start

    def merge(self, other: Self) -> None:
        self._value += other._value


class IntCounter(_Sum):
    """A sum of whole numbers; unlike Java's it does not overflow."""


class LongCounter(_Sum):
    """The same as `IntCounter`."""


class DoubleCounter(_Sum):
    """A sum of floats."""

    _start = 0.0


class _Extreme(Accumulator[Any, Any]):
    """The least or greatest of numbers; None before the first."""

    def __init__(self, value: Any = None) -> None:
        self._value = value

    def add(self, value: Any) -> None:
        held = self._value
        self._value = value if held is None else self._better(held, value)

    def get_local_value(self) -> Any:
        return self._value

    def reset_local(self) -> None:
        self._value = None

    def merge(self, other: Self) -> None:
        if other._value is not None:
            self.add(other._value)

    @staticmethod
    @abstractmethod
    def _better(held: Any, value: Any) -> Any: ...


class Minimum(_Extreme):
    """The least value; None if there was none."""

    @staticmethod
    def _better(held: Any, value: Any) -> Any:
        return min(held, value)


class Maximum(_Extreme):
    """The greatest value; None if there was none."""

    @staticmethod
    def _better(held: Any, value: Any) -> Any:
        return max(held, value)


class AverageAccumulator(Accumulator[float, float]):
    """The mean; 0.0 before the first value, as in Flink."""

    def __init__(self) -> None:
        self._count, self._sum = 0, 0.0

    def add(self, value: float) -> None:
        self._count += 1
        self._sum += value

    def get_local_value(self) -> float:
        return self._sum / self._count if self._count else 0.0

    def reset_local(self) -> None:
        self._count, self._sum = 0, 0.0

    def merge(self, other: Self) -> None:
        self._count += other._count
        self._sum += other._sum


class Histogram(Accumulator[Any, dict[Any, int]]):
    """How often each value was added: a dict in order of the values. It grows with their number."""

    def __init__(self) -> None:
        self._counts: dict[Any, int] = {}

    def add(self, value: Any) -> None:
        self._counts[value] = self._counts.get(value, 0) + 1

    def get_local_value(self) -> dict[Any, int]:
        return dict(sorted(self._counts.items()))

    def reset_local(self) -> None:
        self._counts.clear()

    def merge(self, other: Self) -> None:
        for value, count in other._counts.items():
            self._counts[value] = self._counts.get(value, 0) + count


class ListAccumulator(Accumulator[Any, list[Any]]):
    """All values, subtask by subtask. They are sent with every report of metrics: keep them few."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def add(self, value: Any) -> None:
        self._values.append(value)

    def get_local_value(self) -> list[Any]:
        return list(self._values)

    def reset_local(self) -> None:
        self._values.clear()

    def merge(self, other: Self) -> None:
        self._values += other._values

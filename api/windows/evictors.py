"""Evictors take records out of a window when it fires, before or after its function sees them.

They are Flink's (its Java API): with one a window keeps each of its records, runs row by row, and
its function is called with what is left whenever the trigger fires. What is taken out is gone for
later firings of the window, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from ...core.elements import MIN_TIMESTAMP
from ...core.errors import ConfigurationError
from ..functions.metrics import MetricGroup
from ..types.durations import Interval, to_ms, to_timedelta

T = TypeVar("T")
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class TimestampedValue(Generic[T]):
    """A record of a window, and its event time in ms."""

    value: T
    timestamp: int = MIN_TIMESTAMP
    """MIN_TIMESTAMP if it has none."""

    def get_value(self) -> T:
        return self.value

    def get_timestamp(self) -> int:
        return self.timestamp

    def has_timestamp(self) -> bool:
        return self.timestamp != MIN_TIMESTAMP


class Evictor(ABC, Generic[T, W]):
    """Evicts by removing from the list `elements` in place, which is in order of arrival (after
    windows merged, window by window). One object serves all keys and windows of a subtask, so it
    must keep nothing between calls."""

    class EvictorContext(Protocol):
        """Valid during the call only."""

        def get_current_processing_time(self) -> int: ...
        def get_current_watermark(self) -> int: ...
        def get_metric_group(self) -> MetricGroup: ...

    @abstractmethod
    def evict_before(
        self,
        elements: list[TimestampedValue[T]],
        size: int,
        window: W,
        evictor_context: EvictorContext,
    ) -> None:
        """Before the window function. `size` is that of `elements`."""

    @abstractmethod
    def evict_after(
        self,
        elements: list[TimestampedValue[T]],
        size: int,
        window: W,
        evictor_context: EvictorContext,
    ) -> None:
        """After the window function, all of whose results have gone out."""


class _OneSided(Evictor[Any, Any]):
    """Evicts either before or after the function."""

    do_evict_after: bool

    def evict_before(
        self, elements: list[Any], size: int, window: Any, evictor_context: Any
    ) -> None:
        if not self.do_evict_after:
            self._evict(elements)

    def evict_after(
        self, elements: list[Any], size: int, window: Any, evictor_context: Any
    ) -> None:
        if self.do_evict_after:
            self._evict(elements)

    @abstractmethod
    def _evict(self, elements: list[TimestampedValue[Any]]) -> None: ...


@dataclass(frozen=True)
class CountEvictor(_OneSided):
    """Keeps the last `max_count` records."""

    max_count: int
    do_evict_after: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.max_count, bool) or not isinstance(self.max_count, int):
            raise ConfigurationError(f"CountEvictor: expected a count, got {self.max_count!r}")
        if self.max_count < 0:
            raise ConfigurationError(
                f"CountEvictor: the count must not be negative, is {self.max_count}"
            )

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        del elements[: max(0, len(elements) - self.max_count)]


@dataclass(frozen=True)
class TimeEvictor(_OneSided):
    """Keeps the records whose event time is less than `window_size` ms before the latest; all of
    them where records have no event time."""

    window_size: int
    do_evict_after: bool = False

    @staticmethod
    def of(window_size: Interval, do_evict_after: bool = False) -> TimeEvictor:
        """`window_size`: timedelta, Duration, Time or ms."""
        size = to_ms(to_timedelta(window_size, "TimeEvictor.of: window_size"))
        return TimeEvictor(size, do_evict_after)

    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        if elements and elements[0].has_timestamp():
            cut = max(element.timestamp for element in elements) - self.window_size
            elements[:] = [element for element in elements if element.timestamp > cut]


@runtime_checkable
class DeltaFunction(Protocol):
    """How far apart two records are. A callable of both does as well."""

    def get_delta(self, old_data_point: Any, new_data_point: Any) -> float: ...


@dataclass(frozen=True)
class DeltaEvictor(_OneSided):
    """Keeps the records whose delta to the last one is less than `threshold`."""

    threshold: float
    delta_function: DeltaFunction | Callable[[Any, Any], float]
    do_evict_after: bool = False

    @staticmethod
    def of(
        threshold: float,
        delta_function: DeltaFunction | Callable[[Any, Any], float],
        do_evict_after: bool = False,
    ) -> DeltaEvictor:
        if not callable(getattr(delta_function, "get_delta", delta_function)):
            raise ConfigurationError(
                f"DeltaEvictor.of: expected a function of two records, got {delta_function!r}"
            )
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue[Any]]) -> None:
        if elements:
            delta: Any = getattr(self.delta_function, "get_delta", self.delta_function)
            last = elements[-1].value
            elements[:] = [e for e in elements if delta(e.value, last) < self.threshold]

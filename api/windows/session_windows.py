"""Session windows: a record opens a window of one gap; windows that overlap or touch become one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from ...core.errors import ConfigurationError, TypeMismatchError
from ...core.row_values import value_getter
from ..functions.validation import is_expression
from ..types.durations import to_millis
from .base import MergingWindowAssigner, TimeWindow
from .time_windows import OverEventTime, OverProcessingTime


class SessionWindowTimeGapExtractor(ABC):
    """Derives the gap from the record. A plain function of the record serves as well, and so does a
    column name or a polars expression, which needs no call per record."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """The gap in milliseconds, greater than 0."""


class SessionWindowAssigner(MergingWindowAssigner):
    """Opens a window of one gap for each record, and merges exactly the windows that overlap or
    touch."""

    @abstractmethod
    def gap_of(self, element: Any) -> int:
        """The gap after `element` in ms; TypeMismatchError unless it is greater than 0."""

    def windows_of(self, element: Any, time: int) -> tuple[TimeWindow]:
        return (TimeWindow(time, time + self.gap_of(element)),)

    def merge_windows(
        self, windows: Iterable[Any], callback: MergingWindowAssigner.MergeCallback
    ) -> None:
        TimeWindow.merge_windows(windows, callback)


@dataclass(frozen=True)
class _FixedGap(SessionWindowAssigner):
    session_gap: int

    def __post_init__(self) -> None:
        if self.session_gap <= 0:
            raise ConfigurationError(f"the session gap must be > 0 ms, is {self.session_gap}")

    @classmethod
    def with_gap(cls, size: Any) -> Self:
        return cls(to_millis(size, "session gap"))

    def gap_of(self, element: Any) -> int:
        return self.session_gap


@dataclass(frozen=True)
class _DynamicGap(SessionWindowAssigner):
    session_window_time_gap_extractor: Any
    """A SessionWindowTimeGapExtractor, a function of the record, a column name or a polars
    expression: of milliseconds or durations."""

    @classmethod
    def with_dynamic_gap(cls, extractor: Any) -> Self:
        """A gap for each record: see SessionWindowTimeGapExtractor."""
        return cls(extractor)

    @property
    def extractor(self) -> Any:
        return self.session_window_time_gap_extractor

    @cached_property
    def _extract(self) -> Callable[[Any], Any]:
        if isinstance(self.extractor, str) or is_expression(self.extractor):
            return value_getter(self.extractor)
        extract: Callable[[Any], Any] = getattr(self.extractor, "extract", self.extractor)
        return extract

    def __getstate__(self) -> dict[str, Any]:
        return {"session_window_time_gap_extractor": self.extractor}

    def gap_of(self, element: Any) -> int:
        found = self._extract(element)
        if found is None:
            raise TypeMismatchError(
                f"the session gap of a record must be > 0 ms, is null for {element!r}"
            )
        gap = to_millis(found, "session gap")
        if gap <= 0:
            raise TypeMismatchError(
                f"the session gap of a record must be > 0 ms, is {gap} for {element!r}"
            )
        return gap


class EventTimeSessionWindows(_FixedGap, OverEventTime):
    """Sessions over event time."""

    @staticmethod
    def with_dynamic_gap(extractor: Any) -> DynamicEventTimeSessionWindows:
        """A gap for each record: see SessionWindowTimeGapExtractor."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_FixedGap, OverProcessingTime):
    """Sessions over the clock."""

    @staticmethod
    def with_dynamic_gap(extractor: Any) -> DynamicProcessingTimeSessionWindows:
        """A gap for each record: see SessionWindowTimeGapExtractor."""
        return DynamicProcessingTimeSessionWindows(extractor)


class DynamicEventTimeSessionWindows(_DynamicGap, OverEventTime):
    """Sessions over event time whose gap depends on the record."""


class DynamicProcessingTimeSessionWindows(_DynamicGap, OverProcessingTime):
    """Sessions over the clock whose gap depends on the record."""


DYNAMIC = (DynamicEventTimeSessionWindows, DynamicProcessingTimeSessionWindows)
"""Those with a gap for each record."""

SESSIONS = (EventTimeSessionWindows, ProcessingTimeSessionWindows, *DYNAMIC)

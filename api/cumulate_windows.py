"""Cumulating windows: early results of a long window at every step, each a window of its own."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..core.elements import MIN_TIMESTAMP
from ..core.errors import ConfigurationError
from .intervals import to_millis
from .triggers import EventTimeTrigger, Trigger
from .window_base import TimeWindow, Window, WindowAssigner, WindowAssignerContext


@lru_cache(maxsize=4096)
def _cumulating(start: int, first_end: int, max_size: int, step: int) -> tuple[TimeWindow, ...]:
    return tuple(TimeWindow(start, end) for end in range(first_end, start + max_size + 1, step))


@dataclass(frozen=True)
class CumulateEventTimeWindows(WindowAssigner):
    """Windows over event time that grow by `step` up to `max_size`, then start anew (Flink SQL's
    CUMULATE): `[s, s + step)`, `[s, s + 2 * step)`, ... `[s, s + max_size)` for each
    `s = offset + n * max_size`. Sizes are in ms.

    >>> day = CumulateEventTimeWindows.of(max_size=6, step=2)
    >>> [(w.start, w.end) for w in day.windows_at(3)]
    [(0, 4), (0, 6)]
    """

    max_size: int
    step: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.step <= 0 or self.max_size <= 0 or self.max_size % self.step:
            raise ConfigurationError(
                "CumulateEventTimeWindows needs step > 0 and max_size a multiple of it, got "
                f"max_size {self.max_size} ms and step {self.step} ms"
            )
        if abs(self.offset) >= self.max_size:
            raise ConfigurationError(
                f"CumulateEventTimeWindows needs |offset| < max_size, got offset {self.offset} ms "
                f"and max_size {self.max_size} ms"
            )

    @staticmethod
    def of(max_size: Any, step: Any, offset: Any = 0) -> CumulateEventTimeWindows:
        """Sizes as timedeltas, milliseconds or PyFlink `Time`s."""
        return CumulateEventTimeWindows(
            to_millis(max_size, "window max_size"),
            to_millis(step, "window step"),
            to_millis(offset or 0, "window offset"),
        )

    def windows_at(self, timestamp: int) -> tuple[TimeWindow, ...]:
        """The windows of a timestamp, shortest first."""
        into = (timestamp - self.offset) % self.max_size
        first_end = timestamp - into + (into // self.step + 1) * self.step
        return _cumulating(timestamp - into, first_end, self.max_size, self.step)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        from .windows import no_timestamp_error

        if timestamp == MIN_TIMESTAMP:
            raise no_timestamp_error()
        return self.windows_at(timestamp)

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True

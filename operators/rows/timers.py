"""Timers of a keyed operator: two queues in keyed state, the watermark, and the task's alarm clock.

A processing-time timer at T fires once the clock shows T + 1 or more, as in Flink: the millisecond
T itself is over then, so a window that ends with T is complete, and a timer set for "now" fires
later rather than at once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...core.errors import TypeMismatchError
from ...state.backend import TimerQueue
from ...state.key_groups import key_group
from ..base import OperatorContext

Timer = tuple[int, Any, Any]
"""(timestamp, key, namespace)"""


class Timers:
    """Event-time and processing-time timers of the current key.

    `names`: the states that hold the event-time and processing-time queues.
    """

    def __init__(self, ctx: OperatorContext, names: tuple[str, str]) -> None:
        self._clock = ctx.clock
        self._wake_at = ctx.wake_at
        self._current = ctx.keyed_state.current
        self._event = ctx.keyed_state.timers(names[0])
        self._processing = ctx.keyed_state.timers(names[1])
        self._apart = ctx.keyed_state.timers(f"{names[0]}_apart")
        """Event-time timers that wait while others fire that were overdue."""
        self._max_parallelism = ctx.max_parallelism
        self._alarm = MAX_TIMESTAMP
        """The earliest timer for which the task was asked to call; greater ones may be unknown to
        it, so that only the head of the queue costs a call."""
        self.watermark: int = MIN_TIMESTAMP
        """Never decreases."""
        self._set_alarm()
        _move(self._apart, self._event)

    def now(self) -> int:
        return self._clock.now_ms()

    def register_event(self, timestamp: int, namespace: Any = None) -> None:
        self._event.register(timestamp, self._current.key, namespace)

    def delete_event(self, timestamp: int, namespace: Any = None) -> None:
        self._event.delete(timestamp, self._current.key, namespace)

    def register_processing(self, timestamp: int, namespace: Any = None) -> None:
        self._processing.register(timestamp, self._current.key, namespace)
        if timestamp < self._alarm:
            self._alarm = timestamp
            self._wake_after(timestamp)

    def delete_processing(self, timestamp: int, namespace: Any = None) -> None:
        self._processing.delete(timestamp, self._current.key, namespace)

    def advance_watermark(self, timestamp: int) -> Iterator[Timer]:
        """Event time is `timestamp`: everything due, also what is registered meanwhile. Each timer
        is taken from the state, and its key made the current one, when it is asked for."""
        if timestamp > self.watermark:
            self.watermark = timestamp
            yield from self._due(self._event.pop_due, timestamp)

    def overdue(self, until: npt.NDArray[np.int64], furthest: int) -> Iterator[Timer]:
        """A restored operator, before anything else: what is due of key groups that were in the
        middle of firing `until` then (`furthest`: the greatest of these), as it would have been.
        Timers of other key groups wait: nobody has told them yet that their time has come. So all
        are in state between two."""
        self.watermark = furthest
        due: list[Timer] = []
        moved: list[Timer] = []
        while (timer := self._event.pop_due(furthest)) is not None:
            timestamp, key, _ = timer
            mine = timestamp <= until[key_group(key, self._max_parallelism)]
            (due if mine else moved).append(timer)
        for queue, timers in ((self._event, due), (self._apart, moved)):
            for timestamp, key, namespace in timers:
                queue.register(timestamp, key, namespace)
        yield from self._due(self._event.pop_due, furthest)
        _move(self._apart, self._event)

    def advance_clock(self, now_ms: int) -> Iterator[Timer]:
        """The clock shows `now_ms`: everything due, likewise; at the end, asks to be called for the
        next one."""
        yield from self._due(self._processing.pop_due, now_ms - 1)
        if self._alarm < now_ms:
            self._alarm = MAX_TIMESTAMP
        self._set_alarm()

    def drain_processing(self) -> Iterator[Timer]:
        """All processing-time timers there are now, but none registered meanwhile."""
        due = []
        while (timer := self._processing.pop_due(MAX_TIMESTAMP)) is not None:
            due.append(timer)
        for timer in due:
            self._current.key = timer[1]
            yield timer

    def _due(self, pop_due: Callable[[int], Timer | None], until: int) -> Iterator[Timer]:
        current = self._current
        while (timer := pop_due(until)) is not None:
            current.key = timer[1]
            yield timer

    def _set_alarm(self) -> None:
        head = self._processing.peek()
        if head is not None and head < self._alarm:
            self._alarm = head
            self._wake_after(head)

    def _wake_after(self, timestamp: int) -> None:
        if timestamp < MAX_TIMESTAMP:
            self._wake_at(timestamp + 1)


def _move(source: TimerQueue, target: TimerQueue) -> None:
    """All timers of one queue to another, in order."""
    while (timer := source.pop_due(MAX_TIMESTAMP)) is not None:
        target.register(*timer)


def timer_time(timestamp: Any, method: str) -> int:
    """The time of a timer that a user's function asks for. TypeMismatchError naming the method
    unless it is an int that a timestamp can be: no watermark and no clock reaches any other."""
    try:
        time = operator.index(timestamp)
    except TypeError:
        time = None
    if time is None or not MIN_TIMESTAMP <= time <= MAX_TIMESTAMP:
        raise TypeMismatchError(
            f"{method}({timestamp!r}): a timer's time is an int of ms since the epoch, from -2^63 "
            "to 2^63 - 1; round other numbers, and use datetime.timestamp() * 1000 of datetimes"
        )
    return time

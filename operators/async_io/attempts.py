"""When a request is asked again, and when it is given up. No loop, no thread; times are given.

A request has one timeout for all of its attempts and the pauses between them, from the moment it
is begun. Since all have the same timeout, deadlines come in the order in which requests are begun:
a queue tells the next one, and no timer per request is needed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from ...api.functions.async_functions import AsyncRetryStrategy
from .requests import Request


class Group(dict[Request, Any]):
    """Requests in flight that expire together, with what carries each out."""

    __slots__ = ("due",)

    def __init__(self, due: float | None) -> None:
        super().__init__()
        self.due = due
        """Seconds; None: never."""


class Deadlines:
    """Of the requests that are in flight. Times are seconds of one clock.

    Requests begun at about the same time share a group, which is due up to a 64th of the timeout
    late, and 50 ms at most: so there are few groups, however many requests there are. Whoever
    completes a request takes it out of its group, which is all that keeps it alive here."""

    def __init__(self, timeout_s: float | None) -> None:
        """None: requests never expire."""
        self._timeout_s = timeout_s
        self._width = 1.0 if timeout_s is None else max(min(timeout_s / 64, 0.05), 1e-6)
        self._groups: deque[Group] = deque()
        """In order of `due`."""

    def group(self, now_s: float) -> Group:
        """For requests that are begun now."""
        last = self._groups[-1] if self._groups else None
        due = None
        if self._timeout_s is not None:
            due = math.ceil((now_s + self._timeout_s) / self._width) * self._width
        if last is None or (due is not None and last.due is not None and last.due < due):
            last = Group(due)
            self._groups.append(last)
        return last

    def expired(self, now_s: float) -> list[tuple[Request, Any]]:
        """Those whose time is over; each once."""
        late: list[tuple[Request, Any]] = []
        while (due := self.next_due()) is not None and due <= now_s:
            group = self._groups.popleft()
            late += group.items()
            group.clear()
        return late

    def next_due(self) -> float | None:
        """The next time at which a request may expire; None: none will, unless it is begun yet."""
        groups = self._groups
        while len(groups) > 1 and not groups[0]:
            groups.popleft()
        return groups[0].due if groups and groups[0] else None

    def in_flight(self) -> list[tuple[Request, Any]]:
        """All, the oldest first."""
        return [item for group in self._groups for item in group.items()]


class Retries:
    """What a retry strategy says of one outcome after another. Runs the user's predicates: what
    they raise comes out."""

    def __init__(self, strategy: AsyncRetryStrategy[Any]) -> None:
        predicate = strategy.get_retry_predicate()
        self._strategy = strategy
        self._of_results: Callable[[Any], bool] | None = predicate.result_predicate()
        self._of_errors: Callable[[Exception], bool] | None = predicate.exception_predicate()

    def after_results(self, results: Any, attempt: int) -> float | None:
        """Seconds until the request is asked again; None: these are its results. `attempt`: how
        often it was asked."""
        if self._of_results is None or not self._of_results(results):
            return None
        return self._pause(attempt)

    def after_error(self, error: BaseException, attempt: int) -> float | None:
        """Seconds until the request is asked again; None: the error stays. What is no Exception is
        never asked about."""
        if self._of_errors is None or not isinstance(error, Exception):
            return None
        return self._pause(attempt) if self._of_errors(error) else None

    def _pause(self, attempt: int) -> float | None:
        if not self._strategy.can_retry(attempt):
            return None
        return max(0, self._strategy.get_backoff_time_millis(attempt)) / 1000.0

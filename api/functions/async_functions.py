"""Asynchronous functions and when they are asked again, under PyFlink's names.

An `AsyncFunction` runs on an event loop of its subtask, beside the task's own thread: `open`,
`async_invoke`, `timeout` and `close` are all called there, so that a client made in `open` (an HTTP
session, a pool of connections) belongs to the loop that uses it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ...core.errors import ConfigurationError
from .user_functions import Function

IN = TypeVar("IN")
OUT = TypeVar("OUT")


class AsyncFunction(Function, ABC, Generic[IN, OUT]):
    """Asks something outside for each record. `open` and `close` may be `async def`, too."""

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """The results for one record, as a list; an empty one for none. What it raises fails the
        job, or is retried."""

    def timeout(self, value: IN) -> list[OUT]:
        """The results for a record whose time is over; its coroutine is cancelled. An error unless
        overridden."""
        raise TimeoutError(f"Async function call has timed out for input: {value}")


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Which outcomes are asked about again."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """True for results that are not wanted; None: all are."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """True for errors after which to ask again; None: after none."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """Whether and when a request is asked again. `current_attempts` is how often it was asked: 1
    after the first time. One object serves all requests of a subtask: keep nothing per request."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool: ...

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int: ...

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]: ...

    @staticmethod
    def no_restart() -> AsyncRetryStrategy[Any]:
        """Never ask again."""
        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Any]], bool] | None = None,
        exception_predicate: Callable[[Exception], bool] | None = None,
    ) -> AsyncRetryStrategy[Any]:
        """See `FixedDelayRetryStrategy`."""
        return FixedDelayRetryStrategy(
            max_attempts, backoff_time_millis, result_predicate, exception_predicate
        )

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[Any]], bool] | None = None,
        exception_predicate: Callable[[Exception], bool] | None = None,
    ) -> AsyncRetryStrategy[Any]:
        """See `ExponentialBackoffDelayRetryStrategy`."""
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts,
            initial_delay,
            max_retry_delay,
            multiplier,
            result_predicate,
            exception_predicate,
        )


class RetryPredicate(AsyncRetryPredicate[OUT]):
    """Two functions; None: never."""

    def __init__(
        self,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        return self._result_predicate

    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[OUT]):
    """Never asks again."""

    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return RetryPredicate(None, None)


class _DelayedRetries(AsyncRetryStrategy[OUT]):
    """At most `max_attempts` times after the first."""

    def __init__(
        self,
        max_attempts: int,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        self._max_attempts = _positive("max_attempts", max_attempts)
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return bool(current_attempts <= self._max_attempts)

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return self._predicate


class FixedDelayRetryStrategy(_DelayedRetries[OUT]):
    """Asks again at most `max_attempts` times, always after the same time."""

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[OUT]], bool] | None = None,
        exception_predicate: Callable[[Exception], bool] | None = None,
    ) -> None:
        super().__init__(max_attempts, result_predicate, exception_predicate)
        self._backoff_time_millis = _positive("backoff_time_millis", backoff_time_millis)

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return int(self._backoff_time_millis)


class ExponentialBackoffDelayRetryStrategy(_DelayedRetries[OUT]):
    """Asks again at most `max_attempts` times, first after `initial_delay` ms, each time
    `multiplier` times as long as before, at most `max_retry_delay` ms.

    >>> strategy = ExponentialBackoffDelayRetryStrategy(5, 100, 500, 2.0)
    >>> [strategy.get_backoff_time_millis(attempts) for attempts in range(1, 6)]
    [100, 200, 400, 500, 500]
    """

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[OUT]], bool] | None = None,
        exception_predicate: Callable[[Exception], bool] | None = None,
    ) -> None:
        super().__init__(max_attempts, result_predicate, exception_predicate)
        self._initial_delay = _positive("initial_delay", initial_delay)
        self._max_retry_delay = _positive("max_retry_delay", max_retry_delay)
        self._multiplier = _positive("multiplier", multiplier)

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        if current_attempts <= 1:
            return int(self._initial_delay)
        try:
            delay = self._initial_delay * float(self._multiplier) ** (current_attempts - 1)
        except OverflowError:
            delay = math.inf
        return int(min(delay, self._max_retry_delay))


NO_RETRY_STRATEGY: AsyncRetryStrategy[Any] = NoRetryStrategy()


def _positive(what: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ConfigurationError(f"retry strategy: {what} must be greater than zero, is {value!r}")
    return value

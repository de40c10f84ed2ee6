"""PyFlink's futures, where the answer is there already.

PyFlink's `JobClient` answers with futures (`client.get_job_status().result()`), ours with values.
A value that is its own future can be read both ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Generic, Self, TypeVar

from .checks import check_kind

T = TypeVar("T")


Timeout = timedelta | float | None
"""How long to wait, a number is seconds; None: for ever."""


class Answered:
    """Makes a value its own future: done, without an exception, with itself as the result."""

    __slots__ = ()

    def result(self, timeout: Timeout = None) -> Self:
        return self

    def done(self) -> bool:
        return True

    def exception(self, timeout: Timeout = None) -> BaseException | None:
        return None

    def cancelled(self) -> bool:
        return False


class CompletableFuture(Generic[T]):
    """An answer that is there, for calls that have no value to give; as PyFlink's."""

    def __init__(self, result: T | None = None) -> None:
        self._result = result

    def result(self, timeout: Timeout = None) -> Any:
        return self._result

    def done(self) -> bool:
        return True

    def exception(self, timeout: Timeout = None) -> BaseException | None:
        return None

    def cancel(self) -> bool:
        """It is too late for that."""
        return False

    def cancelled(self) -> bool:
        return False


class Promise(CompletableFuture[T]):
    """An answer that may come later, from any thread. The first one counts."""

    def __init__(self) -> None:
        self._future: Future[T] = Future()

    def result(self, timeout: Timeout = None) -> Any:
        """Wait for the answer; raises what it failed with, TimeoutError, or CancelledError (of
        `concurrent.futures`) if it was cancelled."""
        with self._telling(timeout):
            return self._future.result(seconds_of(timeout))

    def done(self) -> bool:
        return self._future.done()

    def exception(self, timeout: Timeout = None) -> BaseException | None:
        """Wait for the answer; what it failed with, if it did. Raises as `result` if there is
        none."""
        with self._telling(timeout):
            return self._future.exception(seconds_of(timeout))

    def cancel(self) -> bool:
        """Wait no more, wherever somebody does; whether there was no answer yet. It is as in Java
        and PyFlink: what was asked for is done all the same, and nobody is told."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        return self._future.cancelled()

    @contextmanager
    def _telling(self, timeout: Timeout) -> Iterator[None]:
        """What ended a wait; an answer may be such an error itself."""
        try:
            yield
        except TimeoutError:
            if self._future.done():
                raise
            raise TimeoutError(f"there is no answer yet after {seconds_of(timeout)} s") from None

    def keep(self, result: T) -> None:
        """This is the answer."""
        with suppress(InvalidStateError):
            self._future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """There is none."""
        with suppress(InvalidStateError):
            self._future.set_exception(error)


def seconds_of(timeout: Timeout) -> float | None:
    """ConfigurationError if it is none."""
    if isinstance(timeout, timedelta):
        return timeout.total_seconds()
    check_kind("timeout", timeout, timedelta, int, float, type(None))
    return timeout


class AnsweredDict(Answered, dict[str, Any]):
    """Values by name."""


class JobID(Answered, str):
    """A job's id: a text, as PyFlink's prints."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"JobID({str(self)!r})"

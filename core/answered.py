"""PyFlink's futures, where the answer is there already.

PyFlink's `JobClient` answers with futures (`client.get_job_status().result()`), ours with values.
A value that is its own future can be read both ways.
"""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from datetime import timedelta
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class Answered:
    """Makes a value its own future: done, without an exception, with itself as the result."""

    __slots__ = ()

    def result(self) -> Self:
        return self

    def done(self) -> bool:
        return True

    def exception(self) -> BaseException | None:
        return None

    def cancelled(self) -> bool:
        return False


class CompletableFuture(Generic[T]):
    """An answer that is there, for calls that have no value to give; as PyFlink's."""

    def __init__(self, result: T | None = None) -> None:
        self._result = result

    def result(self) -> Any:
        return self._result

    def done(self) -> bool:
        return True

    def exception(self) -> BaseException | None:
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

    def result(self, timeout: timedelta | None = None) -> Any:
        """Wait for the answer (None: for ever); raises what it failed with, or TimeoutError."""
        return self._future.result(None if timeout is None else timeout.total_seconds())

    def done(self) -> bool:
        return self._future.done()

    def exception(self) -> BaseException | None:
        """Wait for the answer; what it failed with, if it did."""
        return self._future.exception()

    def keep(self, result: T) -> None:
        """This is the answer."""
        with suppress(InvalidStateError):
            self._future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """There is none."""
        with suppress(InvalidStateError):
            self._future.set_exception(error)


class AnsweredDict(Answered, dict[str, Any]):
    """Values by name."""


class JobID(Answered, str):
    """A job's id: a text, as PyFlink's prints."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"JobID({str(self)!r})"

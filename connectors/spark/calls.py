"""One call of the Spark gateway, asked again when the gateway or Spark was lost on the way.

Source readers and enumerators poll it (`poll` never waits); sink writers wait for it beside the
task's thread. A call is repeated only after the loss of a process, or of Kafka's brokers, with
longer and longer pauses, at most `attempts` times in all; an error of Spark itself (a bad filter, a
missing file) is not retried: it would come again.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

from ...core.errors import OperatorError, StromError, TransportError
from .options import SparkOptions
from .session import get_or_start_gateway

PENDING = object()
"""What `poll` returns while there is no result."""


PAUSE_S: Final = 0.5
"""Before the second attempt; twice as long before each next one."""


class GatewayCall:
    """`method(*arguments)` of the gateway. `fetch`: the result is a list with one reference, and
    what is wanted is the object behind it; the reference is dropped once it is read."""

    def __init__(
        self,
        method: str,
        *arguments: Any,
        options: SparkOptions | None,
        operator: str,
        subtask: int,
        fetch: bool = False,
        attempts: int = 4,
    ) -> None:
        self._method = method
        self._arguments = arguments
        self._options = options
        self._where = (operator, subtask)
        self._fetch = fetch
        self._attempts = attempts
        self._outer: Any = None
        """Reference of the call's result; None before it is submitted and once it is read."""
        self._inner: Any = None
        """Reference of the object to fetch, once known."""
        self._resume: float | None = None
        """Monotonic time of the next attempt, while one is due; else None."""
        self.submitted = 0
        """How many times the call was made; never above `attempts`."""
        self._submit()

    def poll(self) -> Any:
        """The result, or PENDING. Raises OperatorError when the call failed for good."""
        return self._advance(0)

    def wait(self) -> Any:
        """The result, however long it takes."""
        while (result := self._advance(None)) is PENDING:
            pass
        return result

    def cancel(self) -> None:
        """Forget the call; what it produces is freed."""
        self._outer = self._inner = self._resume = None
        self.submitted = self._attempts

    def _submit(self) -> None:
        self._inner = self._resume = None
        self.submitted += 1
        gateway = get_or_start_gateway(self._options)
        self._outer = getattr(gateway, self._method).remote(self._options, *self._arguments)

    def _advance(self, timeout: float | None) -> Any:
        import ray

        if self._resume is not None:
            pause = self._resume - time.monotonic()
            if pause > 0 and timeout is not None:
                return PENDING
            time.sleep(max(0.0, pause))
            self._submit()
        wanted = self._outer if self._inner is None else self._inner
        ready, _ = ray.wait([wanted], timeout=timeout)
        if not ready:
            return PENDING
        try:
            value = ray.get(wanted)
        except Exception as error:
            self._again_after(error)
            return PENDING
        if self._fetch and self._inner is None:
            self._outer, self._inner = None, value[0]
            return PENDING
        self._outer = self._inner = None
        return value

    def _again_after(self, error: Exception) -> None:
        cause = getattr(error, "cause", None) or error
        operator, subtask = self._where
        if not _was_lost(cause):
            if isinstance(cause, StromError) and not isinstance(cause, OperatorError):
                raise type(cause)(f"operator '{operator}', subtask {subtask}: {cause}") from None
            summary = getattr(cause, "summary", str(cause))
            detail = getattr(cause, "cause", "")
            text = detail if isinstance(detail, str) else ""
            raise OperatorError(operator, subtask, f"Spark: {summary}", text) from None
        if self.submitted >= self._attempts:
            raise OperatorError(
                operator,
                subtask,
                f"Spark or what it works with was lost in each of {self.submitted} attempts to "
                f"{self._method}; the last time: {cause}",
            ) from None
        self._outer = self._inner = None
        self._resume = time.monotonic() + PAUSE_S * 2 ** (self.submitted - 1)


def _was_lost(error: Exception) -> bool:
    from ray.exceptions import ObjectLostError, RayActorError, TaskUnschedulableError

    if isinstance(error, TaskUnschedulableError):
        return False
    return isinstance(error, (TransportError, RayActorError, ObjectLostError))


def path_told(path: str | os.PathLike[str]) -> str:
    """As Spark is told: absolute, if it is no URL. Spark may have been started in another folder
    than this program."""
    text = os.fspath(path)
    return text if "://" in text else os.path.abspath(text.removeprefix("file:"))

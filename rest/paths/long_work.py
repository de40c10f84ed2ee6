"""What takes long holds up no other path.

What a client waits for gets threads of its own (`apart`), so that a dozen of them hold up nothing:
all the rest of the API shares the forty of the framework. What may take minutes nobody waits for:
it is remembered under an id for who asks again later, as Flink's asynchronous operations are
(`Triggers`).
"""

from __future__ import annotations

import functools
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from ...core.errors import StromError
from ...core.redaction import redacted
from ..catalogs.catalog import Refused, Unavailable

P = ParamSpec("P")
T = TypeVar("T")

Subject = tuple[str, str]
"""What something is done to: a job, and the path below it that tells what has become of that."""

MOST_RUNNING: Final = 32
"""More are refused until some are done."""

MOST_KEPT: Final = 1000
KEPT_S: Final = 3600.0
"""How long what has become of one is known."""


def apart(most: int) -> Callable[[Callable[P, T]], Callable[P, Awaitable[T]]]:
    """Decorates the function of a path. `most`: so many of it run at once, and others wait without
    holding a thread."""

    def decorate(function: Callable[P, T]) -> Callable[P, Awaitable[T]]:
        rooms: RunVar[CapacityLimiter] = RunVar(f"strom-rest {function.__name__}")
        """Of each event loop."""

        @functools.wraps(function)
        async def on_a_thread(*arguments: P.args, **options: P.kwargs) -> T:
            room = rooms.get(None)
            if room is None:
                room = CapacityLimiter(most)
                rooms.set(room)
            call = functools.partial(function, *arguments, **options)
            return await to_thread.run_sync(call, limiter=room)

        return on_a_thread

    return decorate


@dataclass(frozen=True)
class Operation:
    """`result`: None while it is on, and if it failed."""

    subject: Subject
    result: dict[str, Any] | None = None
    error: str | None = None
    error_class: str = ""
    ended_s: float | None = None

    @property
    def done(self) -> bool:
        return self.ended_s is not None


class Triggers:
    """From any thread."""

    def __init__(self) -> None:
        self._operations: OrderedDict[str, Operation] = OrderedDict()
        self._lock = threading.Lock()

    def begin(
        self, subject: Subject, work: Callable[[], dict[str, Any]], trigger: str | None = None
    ) -> str:
        """The id of what `work` does from now on. `trigger`: an id of the asker's choice; asked for
        again it is not done again. Refused for one of another subject; Unavailable if too much is
        being done."""
        name = trigger or secrets.token_hex(16)
        with self._lock:
            self._tidy()
            known = self._operations.get(name)
            if known is not None and known.subject == subject:
                return name
            if known is not None:
                raise Refused(f"trigger '{name}' is of another job, or of something else")
            if sum(not one.done for one in self._operations.values()) >= MOST_RUNNING:
                raise Unavailable(f"{MOST_RUNNING} operations are on: ask again later")
            self._operations[name] = Operation(subject)
        threading.Thread(
            target=self._run, args=(name, subject, work), name="strom-rest-work", daemon=True
        ).start()
        return name

    def get(self, subject: Subject, trigger: str) -> Operation | None:
        """None: nobody asked for it, or long ago."""
        with self._lock:
            known = self._operations.get(trigger)
        return known if known is not None and known.subject == subject else None

    def _run(self, name: str, subject: Subject, work: Callable[[], dict[str, Any]]) -> None:
        try:
            done = Operation(subject, result=work(), ended_s=time.monotonic())
        except Exception as error:
            known = isinstance(error, StromError)
            text = str(error) if known else f"{type(error).__name__}: {error}"
            done = Operation(subject, None, redacted(text), type(error).__name__, time.monotonic())
        with self._lock:
            self._operations[name] = done

    def _tidy(self) -> None:
        old = time.monotonic() - KEPT_S
        for name, one in list(self._operations.items()):
            late = one.ended_s is not None and one.ended_s < old
            if late or (one.done and len(self._operations) >= MOST_KEPT):
                del self._operations[name]

"""What functions on a loop have counted, read where they count.

Counters, distributions, gauges and accumulators of an asynchronous function change on its loop, at
any moment of the task's thread: what that thread looks through or pickles meanwhile is torn, or
raises. So they are read on the loop, between two steps of coroutines, which costs nothing while
records flow. The task's thread does not wait for it: a report tells what the loop has told since
the report before. Only the last ones wait, and once the loop's thread has ended nobody else counts.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from .loops import Loop

EXACT_S = 1.0
"""How long a report that is to be exact waits for a loop that is busy."""


class LoopFigures:
    """An `Elsewhere` (see `operators.user_metrics`). Used on the task's thread."""

    def __init__(self, host: Loop) -> None:
        self._host = host
        self._asked: dict[str, Future[Any]] = {}
        """What the loop was asked for last, by what it is."""
        self._latest: dict[str, Future[Any]] = {}
        """What it told last; all are done."""
        self._ended = False

    def told(self, what: str, make: Callable[[], Any], exact: bool) -> Any | None:
        self._take(what)
        if self._ended:
            return make()
        if exact or what not in self._asked:
            self._asked[what] = self._ask(make)
        if exact:
            wait([self._asked[what]], EXACT_S)
            self._take(what)
        latest = self._latest.get(what)
        return None if latest is None else latest.result()

    def end(self) -> None:
        """The loop's thread has ended."""
        self._ended = True

    def _take(self, what: str) -> None:
        asked = self._asked.get(what)
        if asked is not None and asked.done():
            self._latest[what] = self._asked.pop(what)

    def _ask(self, make: Callable[[], Any]) -> Future[Any]:
        answer: Future[Any] = Future()

        def tell() -> None:
            try:
                made = make()
            except BaseException as error:  # it is the report's, not the loop's
                answer.set_exception(error)
            else:
                answer.set_result(made)

        self._host.soon(tell)
        return answer

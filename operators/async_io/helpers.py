"""Threads for calls that block: what `asyncio.to_thread` and the like use in one subtask.

Daemon threads, as the loop's own is: those of Python's `ThreadPoolExecutor` are joined when the
program ends, so that one call that blocks keeps the program of a job that is long over.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

HELPERS = 32
"""The most threads of one subtask."""

Call = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Helpers(ThreadPoolExecutor):
    """An Executor; asyncio takes no other kind than ThreadPoolExecutor, of which nothing else is
    used. Threads are started when there is more to do than idle ones take, and end at `shutdown`.

    Invariant: `_idle` threads wait in `_changed`, and no more than `HELPERS` were started."""

    def __init__(self, name: str) -> None:
        super().__init__(HELPERS, thread_name_prefix=name)
        self._name = name
        self._changed = threading.Condition()
        self._calls: deque[Call] = deque()
        self._started: list[threading.Thread] = []
        self._idle = 0
        self._over = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """RuntimeError after `shutdown`."""
        future: Future[Any] = Future()
        with self._changed:
            if self._over:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._calls.append((future, fn, args, kwargs))
            if len(self._calls) > self._idle and len(self._started) < HELPERS:
                name = f"{self._name}_{len(self._started)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                thread.start()
                self._started.append(thread)
            self._changed.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Threads end once nothing is left to call, or with `cancel_futures` after the call that
        they are at. `wait`: until they have."""
        with self._changed:
            self._over = True
            left, self._calls = (self._calls, deque()) if cancel_futures else ((), self._calls)
            self._changed.notify_all()
        for future, *_ in left:
            future.cancel()
        if wait:
            for thread in self._started:
                thread.join()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            future, function, args, kwargs = call
            del call
            if future.set_running_or_notify_cancel():
                try:
                    result = function(*args, **kwargs)
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del future, function, args, kwargs  # nothing is kept while there is nothing to do

    def _next(self) -> Call | None:
        """The next call, once there is one; None: there will be none."""
        with self._changed:
            self._idle += 1
            try:
                while not self._calls and not self._over:
                    self._changed.wait()
                return self._calls.popleft() if self._calls else None
            finally:
                self._idle -= 1

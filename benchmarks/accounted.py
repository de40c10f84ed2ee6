"""How much CPU time some methods take in all, of this process: what wall clocks of a shared machine
cannot tell."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any


class Account:
    """`seconds`: of all calls so far, those within others once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self._lock = threading.Lock()
        self._inside = threading.local()

    def of(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, with what it takes on the account."""

        @wraps(method)
        def counted(*args: Any, **options: Any) -> Any:
            if getattr(self._inside, "yes", False):
                return method(*args, **options)
            self._inside.yes, began = True, time.thread_time()
            try:
                return method(*args, **options)
            finally:
                self._inside.yes = False
                with self._lock:
                    self.seconds += time.thread_time() - began
                    self.calls += 1

        return counted


@contextmanager
def accounted(methods: Sequence[tuple[type, str]]) -> Iterator[Account]:
    """For as long as the block lasts."""
    account = Account()
    before = [getattr(owner, name) for owner, name in methods]
    for (owner, name), method in zip(methods, before, strict=True):
        setattr(owner, name, account.of(method))
    try:
        yield account
    finally:
        for (owner, name), method in zip(methods, before, strict=True):
            setattr(owner, name, method)

"""The results of a job, read on a thread of their own: who shows them waits for a record or for the
time to draw, whichever comes first."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any

MOST_WAITING = 50_000
"""Records that are read ahead of who shows them, so that the end is near when time is up."""

JOIN_S = 5.0
"""How long a thread may take to see that its job is cancelled, before it is left to itself."""


class Incoming:
    """Context manager, which cancels the job if it still runs. `results`: `CollectedResults`, of
    which the first `limit` records are read (None: all); `timeout`: how long."""

    def __init__(
        self,
        results: Any,
        limit: int | None = None,
        timeout: timedelta | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._results = results
        self._limit = limit
        self._clock = clock
        self._deadline = None if timeout is None else clock() + timeout.total_seconds()
        self._changed = threading.Condition()
        self._fresh: list[Any] = []
        self._read_all = False
        self._closed = False
        """Whether nobody wants more."""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="strom-results", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for record in itertools.islice(self._results, self._limit):
                with self._changed:
                    self._fresh.append(record)
                    self._changed.notify_all()
                    self._changed.wait_for(self._has_room)
                    if self._closed:
                        return
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._read_all = True
                self._changed.notify_all()

    def _has_room(self) -> bool:
        return self._closed or len(self._fresh) < MOST_WAITING

    def take(self, timeout_s: float | None = None) -> list[Any]:
        """What has come since the last call; waits for something, for the end or for so long."""
        left = None if self._deadline is None else max(0.0, self._deadline - self._clock())
        waits = [one for one in (timeout_s, left) if one is not None]
        with self._changed:
            self._changed.wait_for(
                lambda: self._fresh or self._read_all, min(waits) if waits else None
            )
            fresh, self._fresh = self._fresh, []
            self._changed.notify_all()
            return fresh

    @property
    def over(self) -> bool:
        """Whether all was taken, or time is up."""
        if self._deadline is not None and self._clock() >= self._deadline:
            return True
        with self._changed:
            return self._read_all and not self._fresh

    @property
    def ended(self) -> bool:
        """Whether there are no more records than were read, and the job did not fail."""
        with self._changed:
            return self._read_all and self._error is None

    def check(self) -> None:
        """Raise what the job failed with, if it did."""
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Incoming:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            reading = not self._read_all
            self._closed = True
            self._changed.notify_all()
        if reading:
            # What waits for the next record hears of it by the end of the job.
            self._results.client.cancel()
            self._thread.join(JOIN_S)
            if self._thread.is_alive():
                return
            self._error = None
        self._thread.join()
        self._results.close()

"""What catalogs know for a moment. However many look at a job, who knows of it is asked a few times
a second: one thread asks, and the others wait for what it gets."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from ...core.errors import StromError
from ...engine.hosts.job_view import JobView
from .catalog import Unavailable

FRESH_S: Final = 0.5
"""As often as tasks report."""

WAIT_S: Final = 2.0
"""How long one waits for what another has asked."""

MOST_ENDED: Final = 64
"""Views of jobs that are over."""

T = TypeVar("T")


class SharedAnswers(Generic[T]):
    """From any thread. By key; answers are kept for `FRESH_S`. That nobody answered is an answer,
    too, for as long as it took to find out: who hangs holds up one thread of the server now and
    then, and not every one of them in turn."""

    def __init__(self) -> None:
        self._fresh: dict[Hashable, tuple[float, T]] = {}
        self._failed: dict[Hashable, tuple[float, StromError]] = {}
        """Until when it is told to whoever asks."""
        self._asking: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, fetch: Callable[[], T]) -> T:
        """Raises what `fetch` does, and Unavailable while another has been waiting for long."""
        known = self._told(key)
        if known is not None:
            return known
        with self._lock:
            mine = self._asking.setdefault(key, threading.Lock())
        if not mine.acquire(timeout=WAIT_S):
            raise Unavailable("who knows has been asked and does not answer yet: ask again")
        try:
            known = self._told(key)
            if known is None:
                known = self._fetched(key, fetch)
                self.keep(key, known)
            return known
        finally:
            mine.release()

    def known(self, key: Hashable) -> T | None:
        """Without asking."""
        with self._lock:
            at, answer = self._fresh.get(key, (0.0, None))
        return answer if time.monotonic() - at < FRESH_S else None

    def keep(self, key: Hashable, answer: T) -> None:
        """As `get` keeps what it fetches."""
        now = time.monotonic()
        with self._lock:
            self._tidy(now)
            self._fresh[key] = (now, answer)

    def forget(self, key: Hashable) -> None:
        """It is otherwise now: whoever made it so is to see it."""
        with self._lock:
            self._fresh.pop(key, None)

    def _told(self, key: Hashable) -> T | None:
        with self._lock:
            until, error = self._failed.get(key, (0.0, None))
        if error is not None and time.monotonic() < until:
            raise error.with_traceback(None)
        return self.known(key)

    def _fetched(self, key: Hashable, fetch: Callable[[], T]) -> T:
        began = time.monotonic()
        try:
            return fetch()
        except StromError as failure:
            now = time.monotonic()
            with self._lock:
                self._tidy(now)
                self._failed[key] = (now + max(FRESH_S, now - began), failure)
            raise

    def _tidy(self, now: float) -> None:
        """Forget what is old, also where nobody answers any more."""
        self._fresh = {k: v for k, v in self._fresh.items() if now - v[0] < FRESH_S}
        self._failed = {k: v for k, v in self._failed.items() if now < v[0]}
        self._asking = {k: lock for k, lock in self._asking.items() if lock.locked()}


class KeptViews:
    """Views of jobs, kept for a moment, or, of jobs that are over, as long as there is room. From
    any thread. Of one job one thread asks at a time; the others wait for what it got."""

    def __init__(self) -> None:
        self._asked: SharedAnswers[JobView] = SharedAnswers()
        """By job, and whether it is over."""
        self._ended: OrderedDict[str, JobView] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, job_id: str, ended: bool, fetch: Callable[[], JobView]) -> JobView:
        """`ended`: the job is over, and `fetch` gives its last view, for good. Raises what `fetch`
        does; Unavailable."""
        if not ended:
            return self._asked.get((job_id, False), fetch)
        known = self._last(job_id)
        if known is None:
            known = self._asked.get((job_id, True), lambda: self._kept(job_id, fetch))
            self._asked.forget((job_id, True))
        return known

    def known(self, job_id: str) -> JobView | None:
        """Of a job that runs, without asking."""
        return self._asked.known((job_id, False))

    def keep(self, job_id: str, view: JobView) -> None:
        """Of a job that runs, as `get` keeps what it fetches."""
        self._asked.keep((job_id, False), view)

    def forget(self, job_id: str) -> None:
        """Something was done to a job that runs: whoever asked for that is to see it."""
        self._asked.forget((job_id, False))

    def _kept(self, job_id: str, fetch: Callable[[], JobView]) -> JobView:
        view = self._last(job_id) or fetch()
        with self._lock:
            self._ended[job_id] = view
            while len(self._ended) > MOST_ENDED:
                self._ended.popitem(last=False)
        return view

    def _last(self, job_id: str) -> JobView | None:
        with self._lock:
            if job_id in self._ended:
                self._ended.move_to_end(job_id)
            return self._ended.get(job_id)

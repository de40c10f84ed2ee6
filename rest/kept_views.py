"""Views of jobs, kept for a moment, or, of jobs that are over, as long as there is room: however
many look at a job, its coordinator is asked a few times a second."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ..core.errors import StromError
from ..engine.hosts.job_view import JobView

FRESH_S: Final = 0.5
"""As often as tasks report."""

MOST_ENDED: Final = 64


class KeptViews:
    """From any thread. Of one job one thread asks at a time; the others wait for what it got."""

    def __init__(self) -> None:
        self._fresh: dict[str, tuple[float, JobView]] = {}
        self._ended: OrderedDict[str, JobView] = OrderedDict()
        self._failed: dict[str, tuple[float, StromError]] = {}
        """Of whom nobody could say anything, a moment ago."""
        self._asking: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, job_id: str, ended: bool, fetch: Callable[[], JobView]) -> JobView:
        """`ended`: the job is over, and `fetch` gives its last view, for good. Raises what `fetch`
        does."""
        known = self._known(job_id, ended)
        if known is not None:
            return known
        with self._lock:
            mine = self._asking.setdefault(job_id, threading.Lock())
        with mine:
            known = self._known(job_id, ended)
            if known is None:
                known = self._fetched(job_id, fetch)
                self.keep(job_id, ended, known)
        return known

    def known(self, job_id: str) -> JobView | None:
        """Of a job that runs, without asking."""
        return self._known(job_id, False)

    def _fetched(self, job_id: str, fetch: Callable[[], JobView]) -> JobView:
        """Who waited while somebody asked in vain does not ask again."""
        at, error = self._failed.get(job_id, (0.0, None))
        if error is not None and time.monotonic() - at < FRESH_S:
            raise error
        try:
            view = fetch()
        except StromError as failure:
            with self._lock:
                self._failed[job_id] = (time.monotonic(), failure)
            raise
        return view

    def forget(self, job_id: str) -> None:
        """Something was done to a job that runs: whoever asked for that is to see it."""
        with self._lock:
            self._fresh.pop(job_id, None)

    def keep(self, job_id: str, ended: bool, view: JobView) -> None:
        """As `get` keeps what it fetches."""
        now = time.monotonic()
        with self._lock:
            self._fresh = {k: v for k, v in self._fresh.items() if now - v[0] < FRESH_S}
            if ended:
                self._ended[job_id] = view
                while len(self._ended) > MOST_ENDED:
                    self._ended.popitem(last=False)
            else:
                self._fresh[job_id] = (now, view)
            self._failed = {k: v for k, v in self._failed.items() if now - v[0] < FRESH_S}
            busy = {name: lock for name, lock in self._asking.items() if lock.locked()}
            self._asking = busy

    def _known(self, job_id: str, ended: bool) -> JobView | None:
        with self._lock:
            if ended:
                if job_id in self._ended:
                    self._ended.move_to_end(job_id)
                return self._ended.get(job_id)
            at, view = self._fresh.get(job_id, (0.0, None))
            return view if time.monotonic() - at < FRESH_S else None

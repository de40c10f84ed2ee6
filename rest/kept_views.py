"""Views of jobs, kept for a moment, or, of jobs that are over, as long as there is room: however
many look at a job, its coordinator is asked a few times a second."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ..engine.hosts.job_view import JobView
from .shared_answers import SharedAnswers

MOST_ENDED: Final = 64


class KeptViews:
    """From any thread. Of one job one thread asks at a time; the others wait for what it got."""

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

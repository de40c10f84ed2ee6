"""The coordinators of many jobs, asked at once: one that hangs holds up no list."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import ray
from ray.exceptions import RayError

from .catalog import Unavailable
from .kept_views import KeptViews
from .shared_answers import FRESH_S

LIST_S: Final = 1.0
"""How long they may take to answer: of one that does not, the dispatcher's word is shown."""


class ManyViews:
    """From any thread, of which one asks. A coordinator that has not answered is not asked again
    before it has."""

    def __init__(self, views: KeptViews) -> None:
        """`views`: where what they answer is kept."""
        self._views = views
        self._asking = threading.Lock()
        self._late: dict[str, Any] = {}
        """The calls that were not answered in time, by job."""
        self._failed: dict[str, float] = {}
        """Until when jobs are not asked whose coordinators said nothing of use."""

    def ask(self, job_ids: Sequence[str], begin: Callable[[str], Any]) -> None:
        """Those of which nothing is known. `begin`: calls a coordinator; raises Unavailable."""
        if all(self._views.known(job_id) for job_id in job_ids):
            return
        if not self._asking.acquire(timeout=LIST_S):
            return  # what is known is shown
        try:
            self._forget(job_ids)
            calls = self._begun(job_ids, begin)
            if calls:
                self._take(calls)
        finally:
            self._asking.release()

    def _forget(self, job_ids: Sequence[str]) -> None:
        """Who has answered late may be asked again: what it answered is old."""
        answered: set[str] = set()
        if self._late:
            known = {call: job_id for job_id, call in self._late.items()}
            ready, _ = ray.wait(list(known), num_returns=len(known), timeout=0)
            answered = {known[call] for call in ready}
        wanted = set(job_ids) - answered
        self._late = {job_id: call for job_id, call in self._late.items() if job_id in wanted}
        now = time.monotonic()
        self._failed = {job_id: until for job_id, until in self._failed.items() if now < until}

    def _begun(self, job_ids: Sequence[str], begin: Callable[[str], Any]) -> dict[Any, str]:
        calls: dict[Any, str] = {}
        for job_id in job_ids:
            silent = job_id in self._late or job_id in self._failed
            if silent or self._views.known(job_id) is not None:
                continue
            try:
                calls[begin(job_id)] = job_id
            except Unavailable:
                self._failed[job_id] = time.monotonic() + FRESH_S
        return calls

    def _take(self, calls: dict[Any, str]) -> None:
        ready, late = ray.wait(list(calls), num_returns=len(calls), timeout=LIST_S)
        self._late |= {calls[call]: call for call in late}
        for call in ready:
            self._failed[calls[call]] = time.monotonic() + FRESH_S
            with suppress(RayError):
                self._views.keep(calls[call], ray.get(call))
                del self._failed[calls[call]]

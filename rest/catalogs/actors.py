"""What the dispatcher and coordinators answer, in time; if not, in the words of catalogs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayError

from ...core.errors import ConfigurationError, GraphError, StromError
from .caches import FRESH_S, KeptViews
from .catalog import NoSuchJob, Unavailable

ANSWER_S: Final = 5.0
"""How long a dispatcher or coordinator may take to answer."""

LIST_S: Final = 1.0
"""How long the coordinators of a list may take: of one that does not answer, the dispatcher's word
is shown."""


def answer(call: Any, whose: str) -> Any:
    """NoSuchJob, GraphError, Unavailable."""
    try:
        return ray.get(call, timeout=ANSWER_S)
    except GetTimeoutError:
        raise Unavailable(f"{whose} does not answer within {ANSWER_S:g} s: ask again") from None
    except (ActorDiedError, ActorUnavailableError) as error:
        raise Unavailable(f"{whose} cannot be reached now: ask again ({_line(error)})") from None
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, ConfigurationError):
            raise NoSuchJob(str(cause)) from None
        if isinstance(cause, GraphError):
            raise cause from None
        if isinstance(cause, StromError):
            raise Unavailable(str(cause)) from None
        raise


def _line(error: Exception) -> str:
    lines: Sequence[str] = str(error).strip().splitlines()
    return lines[-1][:300] if lines else type(error).__name__


class ManyViews:
    """The coordinators of many jobs, asked at once: one that hangs holds up no list. From any
    thread, of which one asks. A coordinator that has not answered is not asked again
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

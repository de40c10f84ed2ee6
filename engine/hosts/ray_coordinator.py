"""The job coordinator: a named, detached Ray actor that runs one job's driver, and answers the
job's tasks, clients and session.

Calls only put events into the driver's inbox, or read published figures; how it begins, comes back
and ends is in `coordinator_life`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

import ray

from ...api.jobs.accumulator_results import Part
from ...checkpoint.savepoints import Stop
from ...core.errors import JobFailedError
from ...core.ids import Attempt, OperatorId, TaskId
from ...core.job_status import JobStatus
from ..coordinator.rescale_figures import RescaleFigures
from .asked_rescales import Wanted
from .coordinator_answers import Followed, Rescaled, rescaled_job
from .coordinator_inbox import (
    RescaleWanted,
    SavepointWanted,
)
from .coordinator_life import CoordinatorLife
from .driver import JobDriver
from .job_outcome import JobOutcome
from .job_view import JobView
from .loop_signal import wait_until
from .published import Read

log = logging.getLogger("strom")


class JobCoordinator(CoordinatorLife):
    """Made into a Ray actor by `launch.make_coordinator`."""

    # --- the program the job is attached to ------------------------------------------------

    async def renew(self) -> bool:
        """A sign of life of the program; whether the job needs more of them."""
        self._lease.renew()
        return self._attached and self._outcome is None

    async def tie(self, held: list[Any]) -> None:
        """`held`: the reference of a call of the program's own to `hold`, in a list, so that Ray
        does not wait for it. It fails when the process that made the call dies."""
        try:
            await held[0]
        except ray.exceptions.OwnerDiedError:
            self._lease.lose()
            self._tie_changed.set()

    async def hold(self) -> None:
        """Never returns."""
        await asyncio.Event().wait()

    async def detach(self) -> None:
        """The job outlives its program from now on."""
        self._attached = False
        self._tie_changed.set()
        if self._outcome is None:
            await self._term.promise(attached=False)

    # --- tasks -----------------------------------------------------------------------------

    async def report(
        self, task: TaskId, attempt: Attempt, term: int, number: int, data: bytes
    ) -> None:
        """From a task. What was for the coordinator before this (its `term`) is in the task's
        account."""
        if term != self._term.now.number:
            return
        for ready in self._reports.accept(task, attempt, number, data):
            self._inbox.put(ready)

    # --- clients ---------------------------------------------------------------------------

    async def state(self) -> JobStatus:
        await self._started.wait()
        self._touch()
        return self._state

    def _known(self) -> JobDriver:
        """JobFailedError if it died when the job was over."""
        if self._driver is None:
            raise JobFailedError(
                f"job {self._job_id} is {self._state.value}, and its coordinator died since: no "
                "more is known of it"
            )
        return self._driver

    async def followed(
        self,
        timeout: float,
        known: int | None,
        added: Mapping[str, float] | None = None,
        others_wait: bool | None = None,
        lacks: bool | None = None,
    ) -> Followed:
        """For the session, which is no client of the job: nothing depends on whether it was told.
        Waits for the end, another savepoint than the first `known` (None: for the end), or until
        the job has something else than `added` beside what it began with (None: whatever it
        has), or would have more otherwise than `lacks` (None: either way). `others_wait`: for what
        gets free, so that it does not grow; None: the caller does not know."""
        if self._growth is not None and others_wait is not None:
            self._growth.held = others_wait
        deadline = time.monotonic() + timeout
        while True:
            news = self._news.ticket()
            left = deadline - time.monotonic()
            outcome = self._outcome
            savepoints = [] if known is None else self._for_session.savepoints[known:]
            grown = added is not None and self._for_session.added != added
            grown |= lacks is not None and self._for_session.lacks != lacks
            if outcome is not None or savepoints or grown or left <= 0:
                break
            await wait_until(news, left)
        view = None if outcome is None else self._last_view()
        number = self._term.now.number
        told = self._for_session
        return Followed(savepoints, outcome, view, number, told.added, told.lacks)

    async def end_is_heard(self) -> None:
        """The session knows that the job is over, and lends its slots to others from now on."""
        self._heard_by_session = True

    def _last_view(self) -> JobView | None:
        """That there is none is no reason not to say how the job ended."""
        try:
            return None if self._driver is None else self._driver.view()
        except Exception:
            log.exception("job %s: its last view cannot be made", self._job_id)
            return None

    async def view(self) -> JobView:
        """All that is known of the job. Who looks is no client of it: it stays no longer for
        that."""
        await self._started.wait()
        return self._known().view()

    async def outcome(self, timeout: float) -> JobOutcome | None:
        """How the job ended; None if it still runs after `timeout` seconds."""
        outcome = await self._outcome_within(timeout)
        self._told = outcome is not None
        self._touch()
        return outcome

    async def _outcome_within(self, timeout: float) -> JobOutcome | None:
        deadline = time.monotonic() + timeout
        while True:
            news = self._news.ticket()
            left = deadline - time.monotonic()
            if self._outcome is not None or left <= 0:
                break
            await wait_until(news, left)
        return self._outcome

    async def savepoint(
        self, directory: str | None, stop: Stop | None, successor: str | None = None
    ) -> tuple[str | None, str | None]:
        """Take one, and wait for it: where it is, or why there is none. `successor`: the job that
        is to go on from it, and own it."""
        await self._started.wait()
        self._touch()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[str | None, str | None]] = loop.create_future()

        def told(path: str | None, error: str | None) -> None:
            loop.call_soon_threadsafe(answer.set_result, (path, error))

        self._inbox.put(SavepointWanted(directory, stop, successor, told))
        if self._outcome is not None:
            self._refuse_savepoints()
        return await answer

    async def rescale(self, wanted: Wanted) -> tuple[RescaleFigures | None, str | None]:
        """Go on at other parallelisms, and wait for it: what came of it, or why nothing did."""
        await self._started.wait()
        self._touch()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[RescaleFigures | None, str | None]] = loop.create_future()

        def told(figures: RescaleFigures | None, error: str | None) -> None:
            loop.call_soon_threadsafe(answer.set_result, (figures, error))

        self._inbox.put(RescaleWanted(wanted, told))
        if self._outcome is not None:
            self._refuse_savepoints()
        return await answer

    async def metrics(self) -> dict[str, Any]:
        await self._started.wait()
        self._touch()
        if self._driver is None and self._outcome is not None:
            return self._outcome.metrics
        return self._known().metrics()

    async def rescaled(self, parallelism: int) -> Rescaled:
        """The job, as it is to be when there is room for it, at another parallelism. GraphError."""
        await self._started.wait()
        return await asyncio.to_thread(rescaled_job, self._known().wanted, parallelism)

    async def accumulators(self) -> list[Part]:
        await self._started.wait()
        self._touch()
        if self._driver is None and self._outcome is not None:
            return list(self._outcome.accumulators)
        return self._known().accumulators()

    async def prometheus_address(self) -> str | None:
        await self._started.wait()
        self._touch()
        return None if self._prometheus is None else self._prometheus.address

    async def published(
        self,
        operator: OperatorId,
        start: int,
        timeout: float,
        complete: int | None = None,
        of: int | None = None,
    ) -> Read:
        """Values from `start` on, or all if `start` is `of` another coordinator. Waits up to
        `timeout` seconds for one, or for news of another complete checkpoint than `complete`."""
        await self._started.wait()
        deadline = time.monotonic() + timeout
        while True:
            news = self._news.ticket()
            read = self._published.since(operator, start, of)
            left = deadline - time.monotonic()
            if read.values or read.closed or read.complete != complete or left <= 0:
                break
            await wait_until(news, left)
        if read.closed:
            self._read.add(operator)
        self._touch()
        return read

    def _touch(self) -> None:
        """A client has asked: the actor stays for a while, or not so long any more."""
        self._asked = time.monotonic()
        if self._outcome is not None:
            self._news.ring()

"""The job coordinator: a named, detached Ray actor that runs one job's driver.

Calls only put events into an inbox or read published figures; the driver runs on one thread, which
is the only one that touches it. The actor outlives the program that submitted the job, and ends
some time after the job did, when no client has asked for a while: soon if one knows all there is.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import secrets
import threading
import time
from typing import Any

import cloudpickle
import ray

from ...core.clock import SystemClock
from ...core.ids import Attempt, OperatorId, TaskId
from ...core.job_status import JobStatus
from ..graph.model import JobGraph
from ..messages import TaskReport
from ..task.background import ThreadBackground
from .driver import JobDriver, JobOutcome
from .published import PublishedValues
from .ray_cluster import AllStopped, RayCluster, TaskLost
from .ray_task import use_one_thread
from .resequencer import Resequencer

log = logging.getLogger("strom")

LINGER_S = 120.0
"""How long a coordinator stays after its job ended, counted from the last question of a client."""

TOLD_S = 5.0
"""The same, once a client has been told how the job ended and has read all that was published. One
process per job that ended lately is what this costs: of many short jobs, quite some."""


def coordinator_name(job_id: str) -> str:
    """The actor's name in the namespace `strom`."""
    return f"strom-job-{job_id}"


class Cancel:
    """Somebody wants the job cancelled."""


class Answered:
    """A worker of the driver has got something done."""


class JobCoordinator:
    """Made into a Ray actor by `RayHost`. All methods are coroutines and return at once."""

    def __init__(self, payload: bytes, job_id: str) -> None:
        use_one_thread()
        self._graph: JobGraph = cloudpickle.loads(payload)
        self._job_id = job_id
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._published = PublishedValues()
        self._reports: dict[tuple[TaskId, Attempt], Resequencer[TaskReport]] = {}
        self._outcome: JobOutcome | None = None
        self._asked = time.monotonic()
        self._told = False
        """Whether some client knows the outcome."""
        self._read: set[OperatorId] = set()
        """Operators of which some client has all values there will ever be."""

    async def start(self) -> None:
        """Begin; errors of the start come out of the job's result."""
        loop = asyncio.get_running_loop()
        me = ray.get_runtime_context().current_actor
        self._cluster = RayCluster(self._graph, secrets.token_bytes(32), loop, self._inbox.put, me)
        self._driver = JobDriver(
            self._graph,
            self._job_id,
            SystemClock(),
            self._cluster,
            self._published.add,
            lambda name: ThreadBackground(name, lambda: self._inbox.put(Answered())),
        )
        threading.Thread(target=self._run, name="strom-driver", daemon=True).start()
        self._leaving = loop.create_task(self._leave_when_done(me))

    # --- the driver's thread ---------------------------------------------------------------

    def _run(self) -> None:
        driver = self._driver
        try:
            driver.start()
            while not driver.ended:
                self._take(driver)
                driver.tick()
        except BaseException as error:
            driver.crashed(error)
        self._release()
        self._outcome = driver.outcome()
        self._published.close()

    def _release(self) -> None:
        """Whatever happens here, the job's outcome must become known."""
        self._driver.close()
        try:
            self._cluster.close()
        except Exception:
            log.exception("job %s: its actors and slots could not all be released", self._job_id)

    def _take(self, driver: JobDriver) -> None:
        wait = driver.next_tick_s()
        try:
            event = self._inbox.get(timeout=1.0 if wait is None else max(0.0, min(wait, 1.0)))
        except queue.Empty:
            return
        match event:
            case TaskLost(task, attempt, reason):
                driver.on_task_lost(task, attempt, reason)
            case AllStopped(attempt):
                driver.on_all_stopped(attempt)
            case Answered():
                driver.take_answer()
            case Cancel():
                driver.cancel()
            case _:
                driver.on_report(event)

    async def _leave_when_done(self, me: Any) -> None:
        while self._outcome is None or time.monotonic() - self._asked < self._linger_s:
            await asyncio.sleep(1.0)
        ray.kill(me, no_restart=True)

    @property
    def _linger_s(self) -> float:
        known = self._told and self._published.operators() <= self._read
        return TOLD_S if known else LINGER_S

    # --- tasks -----------------------------------------------------------------------------

    async def report(self, number: int, report: TaskReport) -> None:
        """From a task, which numbers its reports."""
        order = self._reports.setdefault((report.task, report.attempt), Resequencer())
        for ready in order.accept(number, report):
            self._inbox.put(ready)

    # --- clients ---------------------------------------------------------------------------

    async def cancel(self) -> None:
        self._cluster.on_cancelled()
        self._inbox.put(Cancel())

    async def state(self) -> JobStatus:
        self._asked = time.monotonic()
        return self._driver.state

    async def outcome(self, timeout: float) -> JobOutcome | None:
        """How the job ended; None if it still runs after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self._outcome is None and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        self._asked = time.monotonic()
        self._told = self._outcome is not None
        return self._outcome

    async def metrics(self) -> dict[str, Any]:
        self._asked = time.monotonic()
        return self._driver.metrics()

    async def published(
        self, operator: OperatorId, start: int, timeout: float
    ) -> tuple[list[Any], bool]:
        """Values from `start` on, waiting up to `timeout` seconds for one; and whether that is
        all."""
        deadline = time.monotonic() + timeout
        while True:
            values, closed = self._published.since(operator, start)
            if values or closed or time.monotonic() >= deadline:
                self._asked = time.monotonic()
                if closed:
                    self._read.add(operator)
                return values, closed
            await asyncio.sleep(0.005)

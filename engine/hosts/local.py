"""The local host: a job in one thread of this process. Starts at once, debugs with a breakpoint.

Same tasks, same coordinator, same checkpoints as on Ray; only the exchange passes batches by
reference. A user function that never returns keeps the thread: `cancel` then gives it the
configured time, interrupts it if it is running Python, and lets go of it otherwise.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from ...api.jobs.host import JobExecutionResult
from ...core.clock import SystemClock
from ...core.errors import JobCancelledError
from ...core.ids import OperatorId
from ...core.job_status import JobStatus
from ..graph.model import JobGraph
from ..task.background import ThreadBackground
from .cooperative import CooperativeCluster
from .driver import JobDriver, new_job_id, result_of
from .lean import seldom_collecting
from .published import PublishedValues

NAP_S = 0.05
"""The longest nap of an idle job. Mail, reports and snapshots end it earlier."""


class _Interrupted(BaseException):
    """Raised inside a user function that does not return after a cancel."""


class LocalJob:
    """A running job; also its client."""

    def __init__(self, graph: JobGraph) -> None:
        self.job_id = new_job_id()
        self._wake = threading.Event()
        self._over = threading.Event()
        self._cancelled = threading.Event()
        self._abandoned = False
        self._published = PublishedValues()
        self._graph = graph
        clock = SystemClock()
        self._clock = clock
        self._cluster = CooperativeCluster(
            graph.config.exchange, clock, lambda name: ThreadBackground(name, self._wake.set)
        )
        self._driver = JobDriver(graph, self.job_id, clock, self._cluster, self._published.add)
        self._thread = threading.Thread(target=self._run, name=f"strom-{graph.name}", daemon=True)
        self._thread.start()

    # --- the loop --------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with seldom_collecting:
                self._driver.start()
                while not self._driver.ended and not self._abandoned:
                    if not self._round() and not self._cluster.flush():
                        self._nap()
        except _Interrupted:
            pass
        except BaseException as error:
            self._driver.crashed(error)
        finally:
            self._cluster.close()
            self._published.close()
            self._over.set()

    def _round(self) -> bool:
        busy = self._step_driver()
        if self._cancelled.is_set() and not self._driver.cancelling:
            self._driver.cancel()
            busy = True
        for running in list(self._cluster.tasks.values()):
            if self._abandoned:  # the function of the task before was interrupted
                break
            busy |= running.task.step()
        return busy

    def _step_driver(self) -> bool:
        """All that is waiting, not one report a round: a slow task would make reports pile up, and
        checkpoints wait behind them."""
        steps = 1 + len(self._cluster.reports)
        done = [self._cluster.step_driver(self._driver) for _ in range(steps)]
        return any(done)

    def _nap(self) -> None:
        due = [self._cluster.next_deadline(), self._driver.next_tick_s()]
        limit = min((d for d in due if d is not None), default=NAP_S)
        if limit > 0:
            self._wake.wait(min(limit, NAP_S))
            self._wake.clear()

    # --- the client ------------------------------------------------------------------------

    def get_job_id(self) -> str:
        return self.job_id

    def get_job_status(self) -> JobStatus:
        return JobStatus.CANCELED if self._abandoned else self._driver.state

    def cancel(self, timeout: timedelta | None = None) -> None:
        """Stop the job and wait until it has. Returns also if a user function refuses to."""
        self._cancelled.set()
        self._wake.set()
        limit = timeout or self._graph.config.cancellation_timeout
        if self._over.wait(limit.total_seconds()):
            return
        self._abandoned = True
        self._interrupt()
        self._over.wait(1.0)
        self._published.close()

    def _interrupt(self) -> None:
        ident = self._thread.ident
        if ident is not None and self._thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(ident), ctypes.py_object(_Interrupted)
            )

    def get_job_execution_result(self, timeout: timedelta | None = None) -> JobExecutionResult:
        """Wait for the end. Raises JobFailedError or JobCancelledError, TimeoutError on timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout.total_seconds()
        while not self._over.wait(0.2) and not self._abandoned:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job {self._graph.name} still runs after {timeout}")
        if self._abandoned:
            raise JobCancelledError(
                f"job '{self._graph.name}' was cancelled; a user function did not return"
            )
        return result_of(self._driver.outcome())

    def metrics(self) -> dict[str, Any]:
        return self._driver.metrics()

    def published(self, operator_id: OperatorId) -> Iterator[Any]:
        return self._published.follow(operator_id)


class LocalHost:
    """Runs each job in a thread of this process."""

    def submit(self, graph: JobGraph, job_name: str) -> LocalJob:
        return LocalJob(graph)

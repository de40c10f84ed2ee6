"""The local host: a job in one thread of this process. Starts at once, debugs with a breakpoint.

Same tasks, same coordinator, same checkpoints as on Ray; only the exchange passes batches by
reference. A user function that never returns keeps the thread: `cancel` then gives it the
configured time, interrupts it if it is running Python, and lets go of it otherwise.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from weakref import WeakSet

from ...api.jobs.host import JobExecutionResult, RescaleResult
from ...checkpoint.savepoints import Stop
from ...core.answered import AnsweredDict, CompletableFuture, JobID, Promise, Timeout
from ...core.clock import SystemClock
from ...core.errors import JobCancelledError
from ...core.ids import OperatorId
from ...core.job_status import JobStatus
from ...logs.process import JobLog, close_log, open_log
from ...logs.scope import LogScope, bind
from ..exchange.pickling import opened
from ..graph.model import JobGraph
from ..task.background import ThreadBackground
from .asked_rescales import Wanted
from .cooperative import CooperativeCluster
from .driver import JobDriver, new_job_id
from .job_folder import JobFolder
from .job_outcome import accumulator_results, deadline_of, result_of
from .job_view import JobView
from .lean import seldom_collecting
from .loaded_modules import check_modules
from .local_cache import LocalCache
from .local_folder import folders_of
from .placed_files import place
from .published import PublishedValues
from .reporters import serve_metrics
from .rescale_calls import RescaleCalls, answer_rescale
from .savepoint_calls import SavepointCalls, absolute, answer
from .shipped_code import importable, put_behind_path, put_on_path
from .shown_job import ShownJob
from .thread_folder import go_home, work_in

log = logging.getLogger("strom")

NAP_S = 0.05
"""The longest nap of an idle job. Mail, reports and snapshots end it earlier."""


class _Interrupted(BaseException):
    """Raised inside a user function that does not return after a cancel."""


class LocalJob(SavepointCalls, RescaleCalls, ShownJob):
    """A running job; also its client."""

    ends_with_program = True

    def __init__(self, graph: JobGraph) -> None:
        self.job_id = new_job_id()
        files = graph.config.job_files
        self._folder = JobFolder(self.job_id) if files.any_placed else None
        if self._folder is not None:
            self._folder.enter(lambda folder: place(files, None, folder))
        self._copies = folders_of(self.job_id, graph.config.checkpoint)
        """Where tasks keep copies of what they write for checkpoints; None: they keep none."""
        self._moved = False
        """Whether the job's thread has a working directory of its own."""
        self._wake = threading.Event()
        self._over = threading.Event()
        self._cancelled = threading.Event()
        self._abandoned = False
        self._savepoints = absolute(graph.config.savepoint_directory)
        self._calls: deque[Callable[[], None]] = deque()
        """What the job's thread is to do between two rounds."""
        self._promises: WeakSet[Promise[str]] = WeakSet()
        """Of savepoints; those that are not kept are broken when the job is over."""
        self._rescales: WeakSet[Promise[RescaleResult]] = WeakSet()
        """The same of rescales."""
        self._published = PublishedValues()
        self._graph = graph
        self._log_scope = LogScope(self.job_id, graph.name)
        self._log: JobLog | None = None
        clock = SystemClock()
        self._clock = clock

        def background(name: str) -> ThreadBackground:
            return ThreadBackground(name, self._wake.set)

        def of_driver(name: str) -> ThreadBackground:
            made = background(name)
            if self._folder is not None:
                made.start()  # from here, so that relative paths are the program's
            return made

        copies = () if self._copies is None else self._copies.enter()
        self._cluster = CooperativeCluster(
            graph.config.exchange, clock, background, self._wake.set, copies
        )
        try:
            self._driver = JobDriver(
                graph, self.job_id, clock, self._cluster, self._published.add, of_driver
            )
            try:
                self._prometheus = serve_metrics(graph.config.metrics, self._driver.samples)
            except BaseException:
                self._driver.close()
                raise
        except BaseException:
            self._leave_folder()
            raise
        if graph.config.logging.directory is not None:
            log_config = graph.config.logging
            self._log = open_log(log_config, self._log_scope, "program", alone=False)
        self._thread = threading.Thread(target=self._run, name=f"strom-{graph.name}", daemon=True)
        self._thread.start()

    # --- the loop --------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            bind(self._log_scope)
            self._enter_folder()
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
            self._driver.close()
            self._cluster.close()
            if self._prometheus is not None:
                self._prometheus.close()
            self._leave_folder()
            close_log(self._log)
            self._published.close()
            self._over.set()
            self._break_promises()

    def _enter_folder(self) -> None:
        if self._folder is None or not self._graph.config.job_files.archives:
            return
        try:
            work_in(self._folder.work)
            self._moved = True
        except OSError as error:
            log.warning(
                "job %s: its functions do not find archives by relative paths here (%s): let them "
                "ask get_distributed_cache().get_file(target_dir)",
                self.job_id,
                error,
            )

    def _leave_folder(self) -> None:
        if self._copies is not None:
            self._copies.leave()
        if self._folder is None:
            return
        try:
            if self._moved:
                go_home()
            self._folder.leave()
        except OSError as error:
            log.warning("job %s: its files could not be removed: %s", self.job_id, error)

    def _round(self) -> bool:
        busy = self._step_driver()
        if self._cancelled.is_set() and not self._driver.cancelling:
            self._driver.cancel()
            busy = True
        while self._calls:
            self._calls.popleft()()
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
        while self._driver.take_answer():
            done.append(True)
        return any(done)

    def _nap(self) -> None:
        due = [self._cluster.next_deadline(), self._driver.next_tick_s()]
        limit = min((d for d in due if d is not None), default=NAP_S)
        if limit > 0:
            self._wake.wait(min(limit, NAP_S))
            self._wake.clear()

    # --- the client ------------------------------------------------------------------------

    def get_job_id(self) -> JobID:
        return JobID(self.job_id)

    def get_job_status(self) -> JobStatus:
        return JobStatus.CANCELED if self._abandoned else self._driver.state

    def cancel(self, timeout: timedelta | None = None) -> CompletableFuture[None]:
        """Stop the job and wait until it has. Returns also if a user function refuses to."""
        self._cancelled.set()
        self._wake.set()
        limit = timeout or self._graph.config.cancellation_timeout
        if not self._over.wait(limit.total_seconds()):
            self._abandoned = True
            self._interrupt()
            self._over.wait(1.0)
            self._published.close()
            self._break_promises()
        return CompletableFuture()

    def _interrupt(self) -> None:
        ident = self._thread.ident
        if ident is not None and self._thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(ident), ctypes.py_object(_Interrupted)
            )

    def _savepoint(self, directory: str | None, stop: Stop | None) -> CompletableFuture[str]:
        promise: Promise[str] = Promise()
        self._promises.add(promise)
        told = partial(answer, promise, self._graph.name)
        place = directory or self._savepoints
        self._calls.append(lambda: self._driver.savepoint(place, stop, told))
        self._wake.set()
        if self._over.is_set() or self._abandoned:
            self._break_promises()
        return promise

    def _rescale(self, wanted: Wanted) -> CompletableFuture[RescaleResult]:
        promise: Promise[RescaleResult] = Promise()
        self._rescales.add(promise)
        told = partial(answer_rescale, promise, self._graph.name)
        self._calls.append(lambda: self._driver.rescale(wanted, told))
        self._wake.set()
        if self._over.is_set() or self._abandoned:
            self._break_promises()
        return promise

    def _break_promises(self) -> None:
        state = self.get_job_status().value
        for rescale in list(self._rescales):
            why = f"not rescaled: the job is {state}"
            answer_rescale(rescale, self._graph.name, None, why)
        for promise in list(self._promises):
            answer(promise, self._graph.name, None, f"no savepoint was taken: the job is {state}")

    def get_job_execution_result(self, timeout: Timeout = None) -> JobExecutionResult:
        """Wait for the end. Raises JobFailedError or JobCancelledError, TimeoutError on timeout."""
        deadline = deadline_of(timeout)
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

    def view(self) -> JobView:
        """All that is known of the job, while it runs and when it is over."""
        return self._driver.view()

    def get_accumulators(self) -> AnsweredDict:
        return accumulator_results(self._driver.accumulators()).results()

    @property
    def prometheus_address(self) -> str | None:
        """`host:port` of the job's Prometheus endpoint; None: it has none, or the job is over."""
        if self._prometheus is None or self._over.is_set():
            return None
        return self._prometheus.address

    def published(self, operator_id: OperatorId) -> Iterator[Any]:
        for value in self._published.follow(operator_id):
            yield opened(value, "published records")


class LocalHost:
    """Runs each job in a thread of this process."""

    def submit(self, graph: JobGraph, job_name: str) -> LocalJob:
        files = graph.config.job_files
        check_modules(graph.config.python_files)
        put_on_path(importable(path) for path in graph.config.python_files)
        if files.requirements is not None:
            from .requirements import check_installed

            check_installed(files.requirements)
        if files.archives and "" in sys.path:
            put_behind_path(os.getcwd())
        return LocalJob(graph)

    def open_cache(self) -> LocalCache:
        """A store for cached streams."""
        return LocalCache()

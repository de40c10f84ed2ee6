"""The Ray host: starts or joins a cluster, submits a job to a coordinator of its own, follows
it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any
from weakref import WeakSet

import ray
from ray.exceptions import RayActorError

from ...api.jobs.accumulator_results import Part
from ...api.jobs.host import JobExecutionResult, RescaleResult
from ...checkpoint.savepoints import Stop
from ...core.answered import AnsweredDict, CompletableFuture, JobID, Promise, Timeout
from ...core.errors import (
    ConfigurationError,
    JobFailedError,
    SerializationError,
    StromError,
    TransportError,
)
from ...core.failure_text import cut, described
from ...core.ids import OperatorId
from ...core.job_status import JobStatus
from ...core.texts import printable
from ..exchange.pickling import opened
from ..graph.model import JobGraph
from ..graph.shipping import naming_operator
from ..graph.slots import bundles_of
from .asked_rescales import Wanted
from .attachment import Attachment, goes_with_program
from .control_service import on_stderr, patiently, told_if_late
from .coordinator_life import LINGER_S
from .coordinator_names import find_coordinator
from .delivered import Delivered
from .driver import new_job_id
from .job_outcome import JobOutcome, accumulator_results, deadline_of, result_of
from .job_record import JobRecord
from .job_view import JobView
from .last_words import how_it_died
from .launch import make_coordinator, submission_of, withdraw
from .published import Read
from .ray_cache import RayCache
from .ray_connect import connect_to_ray, on_own_cluster
from .requirements import not_installed
from .rescale_calls import RescaleCalls, answer_rescale, not_rescaled
from .savepoint_calls import SavepointCalls, answer, answered_by_end, refused
from .shown_job import ShownJob

POLL_S = 1.0

AWAY_S = 150.0
"""How long a coordinator is waited for that cannot be reached: Ray takes a minute to find out that
a machine vanished, and then the coordinator has to start elsewhere."""

SOON_S = 0.5
"""What is waited for no longer than that, nobody has to be told of."""

PAUSE_S = 0.2
"""Before it is asked again."""

NOTICE_JOB = 200
"""Characters of what a job is called where its coordinator is away: its id is at the end."""

NOTICE_NAME = 120
"""Characters of a job's name that are told when it starts: who reads the line looks for the id
behind it, in so many bytes as `core.child_output` takes for a line."""

VIEW_S = 10.0
"""How long a coordinator may take to tell of its job."""


Call = Callable[[Any], Any]
"""Given a coordinator, the reference of a call of it."""


class JobOver(Exception):
    """There is no coordinator to ask, and the client knows how the job ended."""


class _Absence:
    """Of a coordinator, while a call waits for it; thread-safe, as calls of one client may wait
    side by side."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._waiting = 0
        self._told = False

    def __enter__(self) -> None:
        with self._changing:
            self._waiting += 1

    def __exit__(self, *_: object) -> None:
        with self._changing:
            self._waiting -= 1
            self._told = self._told and self._waiting > 0

    def tell(self, job: str) -> None:
        """The user, unless he has been told of it."""
        with self._changing:
            told, self._told = self._told, True
        if not told:
            job = cut(printable(job), NOTICE_JOB)
            notice = f"strom: the coordinator of {job} cannot be reached; waiting until it is back"
            print(notice, file=sys.stderr, flush=True)


class RayJobClient(SavepointCalls, RescaleCalls, ShownJob):
    """Follows one job through its coordinator; works from any process of the cluster. Needs the
    coordinator no more once it knows how the job ended."""

    def __init__(
        self,
        job_id: str,
        name: str | None,
        coordinator: Any,
        checkpoints: str | None = None,
        attachment: Attachment | None = None,
    ) -> None:
        """`name`: None: nobody has told it, nor of `checkpoints`. `checkpoints`: where they are, if
        they outlive the coordinator. `attachment`: what the job ends with this program by, if it
        does."""
        self._job_id = job_id
        self._name = name or job_id
        self._job = f"job {job_id}" if name is None else f"job '{name}' ({job_id})"
        """What it is called in messages."""
        self._knows = name is not None
        self._away = _Absence()
        self._coordinator = coordinator
        self._checkpoints = checkpoints
        self._attachment = attachment
        self._outcome: JobOutcome | None = None
        """How the job ended, once this client has been told."""

    @classmethod
    def attach(cls, job_id: str) -> RayJobClient:
        """The client of a job submitted elsewhere. ConfigurationError if there is no such job."""
        try:
            coordinator = patiently(partial(find_coordinator, job_id), on_stderr)
        except ValueError:
            raise ConfigurationError(
                f"this cluster has no job '{job_id}': it runs on another, or ended more than "
                f"{LINGER_S:.0f} s ago (only a session, `strom cluster start`, keeps account)"
            ) from None
        return cls(job_id, None, coordinator)

    @property
    def ends_with_program(self) -> bool:
        """Whether the job is attached to this program."""
        return self._attachment is not None

    def get_job_id(self) -> JobID:
        return JobID(self._job_id)

    def get_job_status(self) -> JobStatus:
        status: JobStatus = self._told(lambda c: c.state.remote(), lambda end: end.status)
        return status

    def cancel(self, timeout: timedelta | None = None) -> CompletableFuture[None]:
        """Stop the job and wait until it has."""
        self._told(lambda c: c.cancel.remote(), lambda end: None)
        self._wait(timeout)
        return CompletableFuture()

    def get_job_execution_result(self, timeout: Timeout = None) -> JobExecutionResult:
        """Wait for the end. Raises JobFailedError, JobCancelledError, TimeoutError."""
        return result_of(self._wait(timeout))

    def _wait(self, timeout: Timeout) -> JobOutcome:
        deadline = deadline_of(timeout)

        def ask(coordinator: Any) -> Any:
            left = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
            return coordinator.outcome.remote(max(0.0, left))

        while self._outcome is None:
            with suppress(JobOver):
                self._outcome = self._ask(ask, deadline)
            if self._outcome is not None:
                self._release()
                break
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job '{self._name}' still runs after {timeout}")
        return self._outcome

    def metrics(self) -> dict[str, Any]:
        metrics: dict[str, Any] = self._told(lambda c: c.metrics.remote(), lambda end: end.metrics)
        return metrics

    def view(self) -> JobView:
        """All that is known of the job; JobFailedError once its coordinator is gone, TransportError
        if that does not answer."""
        view: JobView = self._ask(lambda c: c.view.remote(), answer_s=VIEW_S)
        return view

    def last_view(self, timeout: timedelta) -> JobView | None:
        """The view once the job is over, which its coordinator leaves soon after; None: it is not
        within `timeout`. Raises as `view` does; JobFailedError also if there is none."""
        seconds = timeout.total_seconds()
        told = self._ask(lambda c: c.followed.remote(seconds, None), answer_s=seconds + VIEW_S)
        if told.outcome is not None and told.view is None:
            raise JobFailedError(f"the last view of job '{self._name}' could not be made")
        view: JobView | None = told.view
        return view

    def get_accumulators(self) -> AnsweredDict:
        parts: Sequence[Part] = self._told(
            lambda c: c.accumulators.remote(), lambda end: end.accumulators
        )
        return accumulator_results(parts).results()

    @property
    def prometheus_address(self) -> str | None:
        """`host:port` of the job's Prometheus endpoint, on the node of its coordinator; None: it
        has none, or the job is over."""
        address: str | None = self._told(lambda c: c.prometheus_address.remote(), lambda end: None)
        return address

    def published(self, operator_id: OperatorId) -> Iterator[Any]:
        delivered = Delivered(self._job)
        reading: list[Any] = []

        def ask(coordinator: Any) -> Any:
            if reading != [coordinator]:
                reading[:] = [coordinator]
                delivered.restart()
            position, complete = delivered.position, delivered.complete
            of = delivered.of
            return coordinator.published.remote(operator_id, position, POLL_S, complete, of)

        closed = False
        while not closed:
            try:
                read: Read = self._ask(ask)
            except JobOver:
                if self._outcome is not None and self._outcome.status is JobStatus.FINISHED:
                    raise delivered.gone() from None
                return
            for value in delivered.take(read):
                yield opened(value, "published records")
            closed = read.closed

    def _savepoint(self, directory: str | None, stop: Stop | None) -> CompletableFuture[str]:
        if self._outcome is not None:
            return refused(self._name, f"the job is {self._outcome.status.value}")
        promise: Promise[str] = Promise()

        def take() -> None:
            """Once more, if the coordinator took the question with it."""
            try:
                told = self._told(
                    lambda c: c.savepoint.remote(directory, stop),
                    lambda end: answered_by_end(end, directory, stop),
                )
                answer(promise, self._name, *told)
            except BaseException as error:
                promise.fail(error)

        threading.Thread(target=take, name="strom-savepoint", daemon=True).start()
        return promise

    def _rescale(self, wanted: Wanted) -> CompletableFuture[RescaleResult]:
        """Asked once more if the coordinator took the question with it: what is so already is
        answered at once."""
        promise: Promise[RescaleResult] = Promise()

        def ask() -> None:
            try:
                told = self._ask(lambda c: c.rescale.remote(wanted))
                answer_rescale(promise, self._name, *told)
            except JobOver:
                assert self._outcome is not None
                why = f"not rescaled: the job is {self._outcome.status.value}"
                answer_rescale(promise, self._name, None, why)
            except BaseException as error:
                promise.fail(error)

        if self._outcome is not None:
            return not_rescaled(self._name, f"the job is {self._outcome.status.value}")
        threading.Thread(target=ask, name="strom-rescale", daemon=True).start()
        return promise

    # --- asking ----------------------------------------------------------------------------------

    def _told(self, call: Call, of_end: Callable[[JobOutcome], Any]) -> Any:
        """What the coordinator answers or, of a job that is over, what its end tells."""
        if self._outcome is None:
            with suppress(JobOver):
                return self._ask(call)
        assert self._outcome is not None
        return of_end(self._outcome)

    def _ask(self, call: Call, deadline: float | None = None, answer_s: float | None = None) -> Any:
        """What the coordinator answers. JobOver if there is none any more, and the outcome is
        known. `deadline`: of the monotonic clock; TimeoutError if there is none until then.
        `answer_s`: how long one may take to answer, before that is a TransportError."""
        while True:
            coordinator = self._reached(deadline)
            try:
                return ray.get(call(coordinator), timeout=answer_s)
            except ray.exceptions.GetTimeoutError:
                raise TransportError(
                    f"the coordinator of {self._job} does not answer "
                    f"within {answer_s:g} s: ask again"
                ) from None
            except ray.exceptions.ActorUnavailableError:
                self._unavailable(coordinator)
            except ray.exceptions.ActorDiedError as error:
                self._lost(coordinator, error)

    def _reached(self, deadline: float | None) -> Any:
        """The coordinator to ask."""
        return self._coordinator

    def _unavailable(self, coordinator: Any) -> None:
        """It cannot be reached now. Returns if it is to be asked again: its process may just have
        died, and comes back; or its node hangs."""
        began = time.monotonic()
        with self._away:
            while time.monotonic() < began + AWAY_S:
                try:
                    ray.get(coordinator.state.remote(), timeout=AWAY_S)
                    return
                except ray.exceptions.GetTimeoutError:
                    break
                except ray.exceptions.ActorUnavailableError:
                    if time.monotonic() > began + SOON_S:
                        self._away.tell(self._job)
                    time.sleep(PAUSE_S)
                except ray.exceptions.RayError:
                    return  # whoever asks it hears that, too
        raise self._out_of_reach()

    def _lost(self, coordinator: Any, error: Exception) -> None:
        """It is gone. Returns if another may be asked."""
        self._release()
        raise JobFailedError(self._gone(error)) from None

    def _out_of_reach(self) -> TransportError:
        return TransportError(
            f"the coordinator of {self._job} cannot be reached; the "
            f"job may go on: ask again, or from elsewhere with strom.attach('{self._job_id}')"
        )

    def _release(self) -> None:
        if self._attachment is not None:
            self._attachment.release()

    def _gone(self, error: Exception) -> str:
        return (
            f"the coordinator of {self._job} is gone, and the job with it: "
            f"{why_gone(str(error))}; {self._remedy()}"
        )

    def _remedy(self) -> str:
        """What to do now that the coordinator is gone."""
        if not self._knows:
            return "start it again with restore_from its newest checkpoint, if it keeps any"
        if self._checkpoints is None:
            return "start it again from the beginning: it keeps no checkpoints in a storage"
        folder = f"{self._checkpoints.rstrip('/')}/{self._job_id}"
        return f"start it again with restore_from the newest checkpoint in {folder}"


def why_gone(account: str) -> str:
    """What a dead coordinator died of, out of Ray's account of it."""
    if "ray.kill" in account:
        return (
            "it was ended by ray.kill, or by itself as nobody had asked for its job for "
            f"{LINGER_S:.0f} s after the end"
        )
    if "its node has died" in account:
        return "its node died"
    if "low on memory" in account:
        return "its process was killed as its node ran low on memory"
    return "its process died"


class RayHost:
    """Runs each job under a coordinator actor of its own."""

    def __init__(
        self,
        address: str | None = None,
        num_cpus: int | None = None,
        log_to_driver: bool = True,
    ) -> None:
        """`address`: of a running cluster. `num_cpus`: logical CPUs of a cluster started for this
        program; default: what the job and the machine ask for. `log_to_driver`: show what tasks
        print, if this program is not connected to Ray yet."""
        self._address = address
        self._num_cpus = num_cpus
        self._log_to_driver = log_to_driver
        self._caches: WeakSet[RayCache] = WeakSet()

    def open_cache(self) -> RayCache:
        """A store for cached streams."""
        cache = RayCache()
        self._caches.add(cache)
        return cache

    def submit(self, graph: JobGraph, job_name: str) -> RayJobClient:
        cpus = sum(bundle.get("CPU", 0.0) for bundle in bundles_of(graph))
        wanted = max(os.cpu_count() or 1, round(cpus + 0.5))
        connect_to_ray(self._num_cpus or wanted, self._address, self._log_to_driver)
        job_id = new_job_id()
        if _keeps_streams(graph):
            for cache in self._caches:
                cache.prepare()
        try:
            client = self._start(graph, job_name, job_id)
        except ray.exceptions.RayError as error:
            withdraw(job_id, JobRecord(graph.config.checkpoint.storage, job_id))
            raise _start_error(graph, error) from None
        except BaseException:
            # An interrupt, above all: nobody would ever hear of this job.
            withdraw(job_id, JobRecord(graph.config.checkpoint.storage, job_id))
            raise
        print(_notice(job_name, client), file=sys.stderr, flush=True)
        return client

    def _start(self, graph: JobGraph, job_name: str, job_id: str) -> RayJobClient:
        """The job is tied to this process until that is settled, so that it cannot be lost."""
        submission = submission_of(graph, job_id)
        with told_if_late(on_stderr):
            coordinator = make_coordinator(submission)
        attachment = Attachment(job_id, coordinator)
        try:
            ray.get(coordinator.start.remote(submission.begun()))
            if not graph.config.attached:
                ray.get(coordinator.detach.remote())
        except BaseException:
            attachment.release()
            raise
        storage = graph.config.checkpoint.storage
        if on_own_cluster():
            goes_with_program(JobRecord(storage, job_id))
        if graph.config.attached:
            return RayJobClient(job_id, job_name, coordinator, storage, attachment)
        attachment.release()
        return RayJobClient(job_id, job_name, coordinator, storage)


def _keeps_streams(graph: JobGraph) -> bool:
    operators = (operator for vertex in graph.vertices for operator in vertex.operators)
    return any(hasattr(getattr(o.spec, "sink", None), "cache_token") for o in operators)


def _notice(job_name: str, client: RayJobClient) -> str:
    """The line that tells the user how to find the job again."""
    job_id = client.get_job_id()
    job = f"strom: job '{cut(printable(job_name), NOTICE_NAME)}' has the id {job_id}"
    if on_own_cluster():
        return f"{job}, on a Ray of this program's own, which ends with it"
    how = "ends with this program" if client.ends_with_program else "outlives this program"
    return f"{job} and {how}; from another: strom.attach('{job_id}')"


def _start_error(graph: JobGraph, error: Exception) -> Exception:
    """What kept the coordinator from starting: strom's own error, or one that says where."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, SerializationError):
        return naming_operator(graph, cause)
    if isinstance(cause, StromError):
        return cause
    lacking = not_installed(graph.config.job_files.requirements, error)
    if lacking is not None:
        return lacking
    why = how_it_died(None, str(error)) if isinstance(error, RayActorError) else described(error)
    return JobFailedError(f"job '{graph.name}': its coordinator could not start: {why}")

"""The driver: carries out what the job master decides. One per job; every host has the same.

The master is pure and the cluster belongs to the host, so this is the only place where a job's
decisions meet storage, clocks and tasks. Used from one thread, except for `state` and `metrics`.
"""

from __future__ import annotations

import logging
import random
import threading
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...api.connectors.base import EnumeratorContext, SplitEnumerator
from ...api.jobs.host import JobExecutionResult
from ...api.specs.records import SourceSpec
from ...checkpoint.coordinator_types import CheckpointStatistics
from ...checkpoint.storage import CheckpointStorage, open_storage
from ...core.clock import Clock
from ...core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    JobCancelledError,
    JobFailedError,
    OperatorError,
)
from ...core.ids import Attempt, OperatorId, TaskId
from ...core.job_status import JobStatus
from ..coordinator.actions import (
    Action,
    Actions,
    CancelAll,
    DeployAll,
    DiscardCheckpoint,
    JobEnded,
    LoadLatest,
    Publish,
    Send,
    StoreCheckpoint,
    TickAt,
    Warn,
)
from ..coordinator.job_master import JobMaster
from ..graph.execution import build_execution_graph
from ..graph.model import JobGraph
from ..messages import Mail, TaskReport
from ..task.deployment import TaskDeployment, deployment_of
from .job_metrics import summarise
from .restore import RestorePoint, load_latest

log = logging.getLogger("strom")


class Cluster(Protocol):
    """Where a job's tasks run."""

    def deploy(self, deployments: Sequence[TaskDeployment]) -> None:
        """Start all tasks of one attempt. Raises what went wrong; some may have started then."""
        ...

    def cancel_all(self, attempt: Attempt) -> None:
        """Begin to stop every task; the host calls `on_all_stopped` when none runs any more."""
        ...

    def send(self, task: TaskId, attempt: Attempt, mail: Mail) -> None:
        """Deliver in order; dropped if the task is gone."""
        ...


@dataclass(frozen=True)
class JobOutcome:
    """How a job ended. `net_runtime_ms`: from the first moment all tasks ran to the end."""

    job_id: str
    name: str
    status: JobStatus
    error: str | None
    net_runtime_ms: float
    checkpoints: int
    restarts: int
    metrics: dict[str, Any]


def new_job_id() -> str:
    """A fresh, unique job id."""
    return uuid.uuid4().hex[:16]


def result_of(outcome: JobOutcome) -> JobExecutionResult:
    """The result of a finished job. Raises JobFailedError or JobCancelledError for others."""
    match outcome.status:
        case JobStatus.FINISHED:
            return JobExecutionResult(
                outcome.job_id,
                outcome.net_runtime_ms,
                outcome.checkpoints,
                outcome.restarts,
                outcome.metrics,
            )
        case JobStatus.CANCELED:
            raise JobCancelledError(f"job '{outcome.name}' ({outcome.job_id}) was cancelled")
        case _:
            raise JobFailedError(
                f"job '{outcome.name}' ({outcome.job_id}) failed: {outcome.error or 'no cause'}"
            )


class JobDriver:
    """Runs one job from start to end. The host calls a method per event, and `tick` when due."""

    def __init__(
        self,
        graph: JobGraph,
        job_id: str,
        clock: Clock,
        cluster: Cluster,
        publish: Callable[[OperatorId, str, Any], None],
        rng: random.Random | None = None,
        storage: CheckpointStorage | None = None,
    ) -> None:
        """`storage`: where checkpoints go, when not where the configuration says."""
        self.graph = build_execution_graph(graph)
        self.job_id = job_id
        self._clock = clock
        self._cluster = cluster
        self._publish = publish
        location = graph.config.checkpoint.storage
        self._storage = storage or open_storage(location, job_id)
        self._restore = RestorePoint(self._storage)
        self._master = JobMaster(
            job_id,
            self.graph,
            self._make_enumerators,
            rng or random.Random(job_id),
            allow_unmatched=graph.config.allow_unmatched_state,
        )
        self._lock = threading.RLock()
        """Held while the master is called: `state` and `metrics` come from other threads."""
        self._attempt = Attempt(0)
        self._tick_at: int | None = None
        self._error: str | None = None
        self._running_since: float | None = None
        self._runtime_ms = 0.0
        self._restarts = 0
        """Those that have been logged."""
        self.cancelling = False
        self.ended = False

    # --- events from the host --------------------------------------------------------------

    def start(self) -> None:
        self._run(self._master.start)

    def on_report(self, report: TaskReport) -> None:
        self._run(self._master.on_report, report)
        if self._running_since is None and self.state is JobStatus.RUNNING:
            self._running_since = self._clock.monotonic()

    def on_task_lost(self, task: TaskId, attempt: Attempt, reason: str) -> None:
        self._run(self._master.on_task_lost, task, attempt, reason)

    def on_all_stopped(self, attempt: Attempt) -> None:
        self._run(self._master.on_all_stopped, attempt)

    def cancel(self) -> None:
        """Idempotent."""
        self.cancelling = True
        self._run(self._master.on_cancel)

    def tick(self) -> bool:
        """Do what is due; whether anything was."""
        if self._tick_at is None or self._clock.now_ms() < self._tick_at:
            return False
        self._tick_at = None
        self._run(self._master.on_tick)
        return True

    def crashed(self, error: BaseException) -> None:
        """The host's loop broke: the job cannot go on."""
        log.exception("the driver of job %s broke", self.job_id, exc_info=error)
        self._error = f"the coordinator broke: {type(error).__name__}: {error}"
        self.ended = True

    # --- for anybody -----------------------------------------------------------------------

    @property
    def state(self) -> JobStatus:
        with self._lock:
            status = self._master.status().status
        broken = self._error is not None and not status.is_terminal
        return JobStatus.FAILED if broken else status

    def checkpoints(self) -> CheckpointStatistics:
        """Figures of the job's checkpoints."""
        with self._lock:
            return self._master.status().checkpoints

    def next_tick_s(self) -> float | None:
        """Seconds until `tick` has something to do."""
        if self._tick_at is None:
            return None
        return max(0.0, (self._tick_at - self._clock.now_ms()) / 1000.0)

    def metrics(self) -> dict[str, Any]:
        """The figures of `JobClient.metrics()`."""
        with self._lock:
            state = self._master.status()
        return summarise(state, self.graph.job, self._runtime_now_ms())

    def outcome(self) -> JobOutcome:
        """Only when `ended`."""
        state = self._master.status()
        return JobOutcome(
            job_id=self.job_id,
            name=self.graph.job.name,
            status=self.state,
            error=self._error,
            net_runtime_ms=self._runtime_ms,
            checkpoints=state.checkpoints.completed,
            restarts=state.restarts,
            metrics=self.metrics(),
        )

    def _runtime_now_ms(self) -> float:
        if self.ended:
            return self._runtime_ms
        since = self._running_since
        return 0.0 if since is None else (self._clock.monotonic() - since) * 1000.0

    # --- carrying out ----------------------------------------------------------------------

    def _run(self, event: Callable[..., Actions], *args: Any) -> None:
        """Hand one event to the master, then carry out its actions and what follows from them."""
        actions = deque(self._event(event, *args))
        while actions:
            actions.extend(self._carry_out(actions.popleft()))

    def _event(self, event: Callable[..., Actions], *args: Any) -> Actions:
        with self._lock:
            actions = event(*args, self._clock.now_ms())
            state = self._master.status()
        if state.restarts > self._restarts:
            self._restarts = state.restarts
            log.warning("job %s: restart %s: %s", self.job_id, state.restarts, state.last_failure)
        return actions

    def _carry_out(self, action: Action) -> Actions:
        match action:
            case Send(task, mail):
                self._cluster.send(task, self._attempt, mail)
            case TickAt(time_ms):
                self._tick_at = time_ms
            case Publish(operator, key, value):
                self._publish(operator, key, value)
            case StoreCheckpoint(manifest):
                return self._store(manifest)
            case DiscardCheckpoint(checkpoint_id):
                self._discard(checkpoint_id)
            case LoadLatest(after):
                return self._load(after)
            case DeployAll(attempt, manifest, revoke):
                return self._deploy(attempt, manifest, revoke)
            case CancelAll(attempt):
                self._cluster.cancel_all(attempt)
            case Warn(message):
                log.warning("job %s: %s", self.job_id, message)
            case JobEnded(_, error):
                self._end(error)
        return ()

    def _store(self, manifest: Any) -> Actions:
        try:
            self._storage.publish(manifest)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            return self._event(self._master.on_store_failed, manifest.checkpoint_id, why)
        return self._event(self._master.on_stored, manifest.checkpoint_id)

    def _discard(self, checkpoint_id: Any) -> None:
        try:
            self._storage.delete(checkpoint_id)
        except Exception as error:
            log.warning("job %s: checkpoint %s stays: %s", self.job_id, checkpoint_id, error)

    def _load(self, after: int) -> Actions:
        try:
            latest, self._restore = load_latest(
                self._storage, self.graph.job.config.restore_from, after
            )
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            hopeless = isinstance(error, (CorruptCheckpointError, ConfigurationError))
            with self._lock:
                return self._master.on_load_failed(why, self._clock.now_ms(), not hopeless)
        return self._event(self._master.on_loaded, latest)

    def _deploy(self, attempt: Attempt, manifest: Any, revoke: bool) -> Actions:
        self._attempt = attempt
        deployments = [
            deployment_of(
                task,
                self.graph,
                attempt,
                self.job_id,
                self._storage,
                manifest,
                self._restore.storage,
                revoke,
            )
            for task in self.graph.tasks
        ]
        try:
            self._cluster.deploy(deployments)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            return self._event(self._master.on_deploy_failed, attempt, why)
        return self._event(self._master.on_deployed, attempt)

    def _end(self, error: str | None) -> None:
        self._runtime_ms = self._runtime_now_ms()
        self._error = error
        self.ended = True

    def _make_enumerators(
        self, restored: dict[OperatorId, Any]
    ) -> Mapping[OperatorId, SplitEnumerator]:
        made: dict[OperatorId, SplitEnumerator] = {}
        for vertex in self.graph.job.vertices:
            for operator in vertex.operators:
                if isinstance(operator.spec, SourceSpec):
                    context = EnumeratorContext(operator.name, vertex.parallelism, self.job_id)
                    state = restored.get(operator.operator_id)
                    try:
                        enumerator = operator.spec.source.create_enumerator(context, state)
                    except Exception as error:
                        raise _enumerator_error(operator.name, error) from error
                    made[operator.operator_id] = enumerator
        return made


def _enumerator_error(operator: str, error: Exception) -> OperatorError:
    summary = f"its enumerator could not be made: {type(error).__name__}: {error}"
    return OperatorError(operator, 0, summary, "".join(traceback.format_exception(error)))

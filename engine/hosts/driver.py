"""The driver: carries out what the job master decides. One per job; every host has the same.

The master is pure and the cluster belongs to the host, so this is the only place where a job's
decisions meet storage, clocks and tasks. Used from one thread; what may take long it gives to
`errands`. Others read the picture of the job that it leaves behind after each event, and wait for
nothing.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ...api.jobs.host import JobExecutionResult
from ...checkpoint.coordinator_types import CheckpointStatistics
from ...checkpoint.manifest import Manifest
from ...checkpoint.storage import CheckpointStorage, open_storage
from ...core.clock import Clock
from ...core.errors import JobCancelledError, JobFailedError
from ...core.failure_text import described
from ...core.ids import Attempt, OperatorId, TaskId
from ...core.job_status import JobStatus
from ..coordinator.actions import (
    Action,
    Actions,
    AskForSplits,
    CancelAll,
    CloseSources,
    DeployAll,
    DiscardCheckpoint,
    JobEnded,
    LoadLatest,
    PrepareSources,
    Publish,
    Send,
    SnapshotSources,
    StoreCheckpoint,
    TickAt,
    Warn,
)
from ..coordinator.job_master import JobMaster
from ..graph.execution import build_execution_graph
from ..graph.model import JobGraph
from ..messages import Mail, TaskReport
from ..task.deployment import TaskDeployment, deployment_of
from .errands import Errands, MakeBackground
from .job_metrics import summarise

log = logging.getLogger("strom")

WIND_UP_S: Final = 2.0
"""How long a job that failed or was cancelled waits for what its workers still do (files being
deleted, enumerators being closed) before it is over."""

FINISH_S: Final = 60.0
"""The same for a job that finished: nobody wanted it to end sooner."""


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
    """Runs one job from start to end. The host calls a method per event, `take_answer` when a
    worker has got something done, `tick` when due, and `close` in the end."""

    def __init__(
        self,
        graph: JobGraph,
        job_id: str,
        clock: Clock,
        cluster: Cluster,
        publish: Callable[[OperatorId, str, Any], None],
        make_background: MakeBackground,
        rng: random.Random | None = None,
        storage: CheckpointStorage | None = None,
    ) -> None:
        """`make_background`: the workers that do what may take long. `storage`: where checkpoints
        go, when not where the configuration says."""
        self.graph = build_execution_graph(graph)
        self.job_id = job_id
        self._clock = clock
        self._cluster = cluster
        self._publish = publish
        location = graph.config.checkpoint.storage
        self._storage = storage or open_storage(location, job_id)
        self._master = JobMaster(
            job_id,
            self.graph,
            rng or random.Random(job_id),
            allow_unmatched=graph.config.allow_unmatched_state,
        )
        self.errands = Errands(make_background, self._master, graph, job_id, self._storage)
        self._picture = self._master.status()
        """The job after the last event; replaced, never changed. Read from other threads."""
        self._attempt = Attempt(0)
        self._tick_at: int | None = None
        self._over_at: int | None = None
        """When the job is over though its workers are not done; None until it has ended."""
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

    def on_task_lost(self, task: TaskId, attempt: Attempt, reason: str) -> None:
        self._run(self._master.on_task_lost, task, attempt, reason)

    def on_all_stopped(self, attempt: Attempt) -> None:
        self._run(self._master.on_all_stopped, attempt)

    def cancel(self) -> None:
        """Idempotent."""
        self.cancelling = True
        if self._over_at is not None:
            self._over_at = min(self._over_at, self._in(WIND_UP_S))
        self._run(self._master.on_cancel)

    def take_answer(self) -> bool:
        """Hear the oldest of what the workers got done; whether there was anything."""
        answer = self.errands.take()
        if answer is None:
            return False
        self._run(answer)
        return True

    def tick(self) -> bool:
        """Do what is due; whether anything was."""
        now = self._clock.now_ms()
        if self._over_at is not None:
            if self.ended or now < self._over_at:
                return False
            log.warning("job %s is over, but its storage or a source still works", self.job_id)
            self.ended = True
            return True
        if self._tick_at is None or now < self._tick_at:
            return False
        self._tick_at = None
        self._run(self._master.on_tick)
        return True

    def crashed(self, error: BaseException) -> None:
        """The host's loop broke: the job cannot go on."""
        log.exception("the driver of job %s broke", self.job_id, exc_info=error)
        self._error = f"the coordinator broke: {described(error)}"
        self.ended = True

    def close(self) -> None:
        """Let go of the workers; what they still do is dropped. The last call."""
        self.errands.close()

    # --- for anybody, from any thread ------------------------------------------------------

    @property
    def state(self) -> JobStatus:
        status = self._picture.status
        broken = self._error is not None and not status.is_terminal
        return JobStatus.FAILED if broken else status

    def checkpoints(self) -> CheckpointStatistics:
        """Figures of the job's checkpoints."""
        return self._picture.checkpoints

    def next_tick_s(self) -> float | None:
        """Seconds until `tick` has something to do."""
        due = self._tick_at if self._over_at is None else self._over_at
        return None if due is None else max(0.0, (due - self._clock.now_ms()) / 1000.0)

    def metrics(self) -> dict[str, Any]:
        """The figures of `JobClient.metrics()`."""
        return summarise(self._picture, self.graph.job, self._runtime_now_ms())

    def outcome(self) -> JobOutcome:
        """Only when `ended`."""
        state = self._picture
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
        if self.ended or self._over_at is not None:
            return self._runtime_ms
        since = self._running_since
        return 0.0 if since is None else (self._clock.monotonic() - since) * 1000.0

    # --- carrying out ----------------------------------------------------------------------

    def _run(self, event: Callable[..., Actions], *args: Any) -> None:
        """Hand one event to the master, then carry out its actions and what follows from them."""
        actions = deque(self._event(event, *args))
        while actions:
            actions.extend(self._carry_out(actions.popleft()))
        if self._over_at is not None and self.errands.idle:
            self.ended = True

    def _event(self, event: Callable[..., Actions], *args: Any) -> Actions:
        actions = event(*args, self._clock.now_ms())
        self._picture = state = self._master.status()
        if self._running_since is None and state.status is JobStatus.RUNNING:
            self._running_since = self._clock.monotonic()
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
            case StoreCheckpoint() | DiscardCheckpoint() | LoadLatest():
                self.errands.in_storage(action)
            case PrepareSources() | AskForSplits() | SnapshotSources() | CloseSources():
                self.errands.in_sources(action)
            case DeployAll(attempt, manifest, revoke):
                return self._deploy(attempt, manifest, revoke)
            case CancelAll(attempt):
                self._cluster.cancel_all(attempt)
            case Warn(message):
                log.warning("job %s: %s", self.job_id, message)
            case JobEnded(status, error):
                self._end(status, error)
        return ()

    def _deploy(self, attempt: Attempt, manifest: Manifest | None, revoke: bool) -> Actions:
        self._attempt = attempt
        deployments = [
            deployment_of(
                task,
                self.graph,
                attempt,
                self.job_id,
                self._storage,
                manifest,
                self.errands.restored,
                revoke,
            )
            for task in self.graph.tasks
        ]
        try:
            self._cluster.deploy(deployments)
        except Exception as error:
            return self._event(self._master.on_deploy_failed, attempt, described(error))
        return self._event(self._master.on_deployed, attempt)

    def _end(self, status: JobStatus, error: str | None) -> None:
        self._runtime_ms = self._runtime_now_ms()
        self._error = error
        limit = FINISH_S if status is JobStatus.FINISHED else WIND_UP_S
        self._over_at = self._in(limit)

    def _in(self, seconds: float) -> int:
        """The time so many seconds from now."""
        return self._clock.now_ms() + int(seconds * 1000)

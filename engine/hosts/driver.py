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
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ...checkpoint.savepoints import Stop
from ...checkpoint.storage import CheckpointStorage, located, open_storage
from ...core.clock import Clock
from ...core.failure_text import described
from ...core.ids import Attempt, OperatorId, TaskId
from ...core.job_status import JobStatus
from ..coordinator.actions import (
    Action,
    Actions,
    AnswerRescale,
    AnswerSavepoint,
    CancelAll,
    CancelTasks,
    DeployAll,
    DeployTasks,
    FindTasks,
    JobEnded,
    KeepGraph,
    LeaveRoom,
    MakeRoom,
    Publish,
    Send,
    TakeOverSources,
    TickAt,
    Warn,
)
from ..coordinator.askers import Asker
from ..coordinator.handover import Handover
from ..coordinator.job_master import JobMaster
from ..graph.execution import build_execution_graph
from ..graph.model import ExecutionGraph, JobGraph
from ..graph.rescaling import Widths, widths_of, with_widths
from ..messages import Mail, TaskReport
from .asked_rescales import AskedRescales, RescaleAnswer, Wanted
from .asked_savepoints import AskedSavepoints, SavepointAnswer
from .cluster import Cluster
from .deployed_tasks import DeployedTasks
from .errand_events import MakeBackground
from .errands import Errands
from .job_outcome import JobOutcome
from .job_picture import JobPicture
from .job_traces import JobTraces
from .not_deployed import not_deployed
from .outputs import Outputs
from .own_rescales import MakeScaler, OwnRescales
from .publishing import Publishing
from .result_log import ResultLog
from .source_errands import SourceAction
from .storage_errands import StorageAction
from .tenure import Tenure

log = logging.getLogger("strom")

history = logging.getLogger("strom.job")
"""What becomes of the job, for its log alone: programs get it as results and errors."""
history.addHandler(logging.NullHandler())

WIND_UP_S: Final = 2.0
"""How long a job that failed or was cancelled waits for what its workers still do (files being
deleted, enumerators being closed) before it is over."""

Keep = Callable[[Handover[Widths]], None]
"""Writes it down for the driver that comes; the host calls `on_graph_kept` when that is done."""

FINISH_S: Final = 60.0
"""The same for a job that finished: nobody wanted it to end sooner."""


def new_job_id() -> str:
    """A fresh, unique job id."""
    return uuid.uuid4().hex[:16]


class JobDriver(JobPicture):
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
        first_attempt: int = 0,
        token: str | None = None,
        takes_over: bool = False,
        before_end: Callable[[JobOutcome], None] = lambda outcome: None,
        results: ResultLog | None = None,
        keep: Keep | None = None,
        left: Handover[Widths] | None = None,
        make_scaler: MakeScaler | None = None,
        number: int | None = None,
    ) -> None:
        """`make_background`: the workers that do what may take long. `storage`: where checkpoints
        go, when not where the configuration says. `first_attempt`, `takes_over`: as of `JobMaster`.
        `token`: what the job's sinks know its drivers by; None: nobody has taken over these yet.
        `before_end`: called on the driver's thread when it is settled how the job ends, before
        anything is removed that it could go on from. `results`: where what is published is written
        down for the drivers that come; None: there will be none. `keep`: None: nobody takes over
        from this driver. `left`: what was kept last; None: nothing was. `make_scaler`: as of
        `OwnRescales`. `number`: as of `Tenant`."""
        self._before_end = before_end
        self._keep = keep
        self._rescales = AskedRescales(graph)
        planned = graph

        def made(widths: Widths) -> ExecutionGraph:
            return build_execution_graph(with_widths(planned, widths))

        handed = (left or Handover[Widths]()).told_as(made)
        self.graph = handed.now or build_execution_graph(planned)
        graph = self.graph.job
        self.job_id = job_id
        self._cluster = cluster
        location = graph.config.checkpoint.storage
        self._storage = storage or open_storage(location, job_id)
        if graph.config.record.path is not None:
            located(graph.config.record.path, "record")
        self._master = JobMaster(
            job_id,
            self.graph,
            rng or random.Random(job_id),
            allow_unmatched=graph.config.allow_unmatched_state,
            first_attempt=first_attempt,
            takes_over=takes_over,
            left=handed,
        )
        own = OwnRescales(
            job_id,
            planned,
            clock,
            partial(self.rescale, asker=Asker.LOAD),
            lambda: self._master.why_no_rescale(Asker.LOAD),
            make_scaler,
        )
        super().__init__(clock, self._master, graph, own)
        self.token = token or uuid.uuid4().hex
        """No other job's."""
        tenure = Tenure(self._storage, graph.name, uuid.uuid4().hex, clock.now_ms(), number)
        self.errands = Errands(
            make_background,
            self._master,
            graph,
            self._storage,
            clock,
            tenure,
            Outputs(graph, job_id, self.token, self._storage.home),
            results,
        )
        self._tasks = DeployedTasks(job_id, cluster, self._storage, self.errands)
        self._results = Publishing(publish, results)
        self._tick_at: int | None = None
        self._restarts = self._master.restarts
        """Those that have been logged."""
        traces = graph.config.traces
        self._traces = JobTraces(traces, job_id, graph.name, self._master.labels)
        self._held: list[Callable[[], None]] | None = [] if takes_over else None
        """What was wanted before it was known whether the job runs; None: it is."""
        self._asked = AskedSavepoints(job_id, graph.config.savepoint_directory)
        self.cancelling = False

    # --- events from the host --------------------------------------------------------------

    def start(self) -> None:
        self._run(self._master.start)

    def on_report(self, report: TaskReport) -> None:
        self._run(self._master.on_report, report)

    def on_task_lost(self, task: TaskId, attempt: Attempt, reason: str) -> None:
        self._run(self._master.on_task_lost, task, attempt, reason)

    def on_all_stopped(self, attempt: Attempt) -> None:
        self._run(self._master.on_all_stopped, attempt)

    def on_tasks_stopped(self, tasks: tuple[TaskId, ...], attempt: Attempt) -> None:
        self._run(self._master.on_tasks_stopped, attempt, tasks)

    def on_reached(self, mails: Iterable[tuple[TaskId, Attempt, Mail]]) -> None:
        """As of `DeployedTasks`."""
        self._tasks.on_reached(mails)

    def on_not_deployed(self, attempt: Attempt, error: Exception) -> None:
        self._run(not_deployed, self._master, attempt, error)

    def cancel(self) -> None:
        """Idempotent."""
        self.cancelling = True
        if self._over_at is not None:
            self._over_at = min(self._over_at, self._in(WIND_UP_S))
        self._run(self._master.on_cancel)

    def savepoint(
        self,
        directory: str | None,
        stop: Stop | None,
        answer: SavepointAnswer,
        successor: str | None = None,
    ) -> None:
        """Take one in a new folder below `directory`, None: the job's default. `successor`: as of
        `savepoint_location`. `answer` is called on this thread."""
        asked = self._asked.ask(directory, stop, answer, successor)
        if asked is None:
            return
        if self.ended or self._over_at is not None:
            self._refuse_savepoints()
        else:
            self._when_known(lambda: self._run(self._master.on_savepoint, asked))

    def rescale(self, wanted: Wanted, answer: RescaleAnswer, asker: Asker = Asker.SOMEBODY) -> None:
        """Go on at other parallelisms, as the same job. `answer` is called on this thread."""
        if self.ended or self._over_at is not None:
            answer(None, f"not rescaled: the job is {self.state.value}")
        else:
            self._rescales.want(wanted, answer, asker)
            self._when_known(self._rescale)

    def _rescale(self) -> None:
        """The oldest that is wanted."""
        asked = self._rescales.next(self.graph.job, self._picture.metrics)
        if asked is not None:
            event = partial(self._master.on_rescale, balance=asked.balance)
            self._run(event, asked.request, asked.graph, asked.asker)

    def _when_known(self, do: Callable[[], None]) -> None:
        """Now, or as soon as it is known whether the job runs."""
        if self._held is not None:
            self._held.append(do)
        else:
            do()

    def on_room(self, request: int, why: str | None) -> None:
        """`why`: there is none."""
        self._run(self._master.on_room, request, why)

    def on_graph_kept(self) -> None:
        self._run(self._master.on_graph_kept)

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
        if self.errands.on_time():
            self.ended |= self._over_at is not None and self.errands.idle
            return True
        if self._over_at is not None:
            if self.ended or now < self._over_at:
                return False
            retention = self.graph.job.config.checkpoint.retention
            stay = "; checkpoints that it was to remove may stay"
            log.warning(
                "job %s is over, but its storage or a source still works%s",
                self.job_id,
                stay if retention.removes(self.state) else "",
            )
            self.ended = True
            return True
        if self._tick_at is None or now < self._tick_at:
            return self._own.tick(*self._shown, now)
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
        self._refuse_savepoints()
        self._traces.close(self._clock.now_ms(), f"the job is {self.state.value}")

    def _refuse_savepoints(self) -> None:
        self._asked.refuse_all(f"the job is {self.state.value}", self._master.stopped_with)
        self._rescales.refuse_all(f"the job is {self.state.value}")

    # --- for anybody, from any thread ------------------------------------------------------

    @property
    def began_with(self) -> int | None:
        """As of `Publishing`."""
        return self._results.began_with

    def next_tick_s(self, looks: bool = True) -> float | None:
        """Seconds until `tick` has something to do. Without `looks`: those of the autoscaler, of
        which nothing may come, do not count."""
        due = [self._tick_at if self._over_at is None else self._over_at, self.errands.due_ms()]
        if looks and self._over_at is None:
            due.append(self._own.due_ms)
        first = min((ms for ms in due if ms is not None), default=None)
        return None if first is None else max(0.0, (first - self._clock.now_ms()) / 1000.0)

    # --- carrying out ----------------------------------------------------------------------

    def _run(self, event: Callable[..., Actions], *args: Any) -> None:
        """Hand one event to the master, then carry out its actions and what follows from them."""
        actions = deque(self._event(event, *args))
        while actions:
            actions.extend(self._carry_out(actions.popleft()))
        if self._over_at is not None and self.errands.idle:
            self.ended = True
        if self._held is not None and self.state is not JobStatus.CREATED:
            held, self._held = self._held, None
            for do in held:
                do()

    def _event(self, event: Callable[..., Actions], *args: Any) -> Actions:
        now_ms, earlier = self._clock.now_ms(), self._picture
        actions = event(*args, now_ms)
        if self._master.graph is not self.graph:
            self._adopt(self._master.graph)
        state = self._master.status()
        self._shown = state, self.graph.job
        self._own.seen(state, now_ms)
        name = getattr(event, "__name__", "")
        self._traces.observe(name, args, earlier, state, actions, now_ms)
        if self._running_since is None and state.status is JobStatus.RUNNING:
            self._running_since = self._clock.monotonic()
        if state.status is JobStatus.RUNNING and state.running_tasks == state.total_tasks:
            self.errands.on_running()
        if state.restarts > self._restarts:
            self._restarts = state.restarts
            log.warning("job %s: restart %s: %s", self.job_id, state.restarts, state.last_failure)
        if state.status is not earlier.status:
            history.info("job %s is %s", self.job_id, state.status.value)
            if state.status.is_terminal:
                error = state.last_failure if state.status is JobStatus.FAILED else None
                self._before_end(replace(self.outcome(), error=error))
        return actions

    def _adopt(self, graph: ExecutionGraph) -> None:
        """The job is this from now on: of vertices that change no task runs."""
        self.graph = graph
        self.errands.adopt(graph.job)
        self._cluster.adopt(graph.job)
        self._traces.adopt(self._master.labels)

    def _carry_out(self, action: Action) -> Actions:
        if isinstance(action, Send):  # by far the most
            self._tasks.send(action.task, action.mail)
            return ()
        if isinstance(action, StorageAction):
            self.errands.in_storage(action)
            return ()
        if isinstance(action, TakeOverSources):
            self._results.begin(int(action.checkpoint_id), ran_on=True)
        if isinstance(action, SourceAction):
            self.errands.in_sources(action)
            return ()
        match action:
            case TickAt(time_ms):
                self._tick_at = time_ms
            case Publish():
                self._results.publish(action)
            case AnswerSavepoint(request, path, error):
                self._asked.answer(request, path, error)
            case FindTasks():
                return self._event(self._master.on_tasks_found, self._tasks.find(self.graph))
            case MakeRoom(request, graph):
                self._cluster.make_room(request, graph.job)
            case LeaveRoom():
                self._cluster.adopt(self.graph.job)
            case KeepGraph():
                return self._keep_graph(action)
            case AnswerRescale(request, figures, error):
                self._rescales.answer(request, figures, error)
            case DeployAll():
                return self._deploy(action)
            case DeployTasks():
                return self._deploy_beside(action)
            case CancelAll(attempt):
                self._cluster.cancel_all(attempt)
            case CancelTasks(attempt, tasks):
                self._cluster.cancel_tasks(tasks, attempt)
            case Warn(message):
                log.warning("job %s: %s", self.job_id, message)
            case JobEnded(status, error):
                self._end(status, error)
        return ()

    def _keep_graph(self, action: KeepGraph) -> Actions:
        if self._keep is None:
            return self._event(self._master.on_graph_kept)
        left = self._master.handover(action)
        self._keep(left.told_as(lambda graph: widths_of(graph.job)))
        return ()

    def _deploy(self, action: DeployAll) -> Actions:
        if self._results.began_with is None:
            self._results.begin(0 if action.restore is None else int(action.restore.checkpoint_id))
        try:
            self._tasks.deploy(self.graph, action)
        except Exception as error:
            return self._event(not_deployed, self._master, action.attempt, error)
        return self._event(self._master.on_deployed, action.attempt)

    def _deploy_beside(self, action: DeployTasks) -> Actions:
        try:
            self._tasks.deploy_beside(self.graph, action)
        except Exception as error:
            return self._event(not_deployed, self._master, action.attempt, error)
        return ()

    def _end(self, status: JobStatus, error: str | None) -> None:
        self._runtime_ms = self._runtime_now_ms()
        self._error = error
        if error is not None:
            history.error("job %s failed: %s", self.job_id, error)
        self.errands.last(status.value)
        limit = FINISH_S if status is JobStatus.FINISHED else WIND_UP_S
        self._over_at = self._in(limit)

    def _in(self, seconds: float) -> int:
        """The time so many seconds from now."""
        return self._clock.now_ms() + int(seconds * 1000)

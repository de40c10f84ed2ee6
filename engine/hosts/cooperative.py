"""All tasks of one job and its driver in one thread, each a unit that does one step at a time.

The local host and the simulator differ only in who steps which unit when, and in the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

from ...api.specs.records import SinkSpec, SourceSpec
from ...core import code_pickles
from ...core.clock import Clock
from ...core.config import ExchangeConfig
from ...core.failure_text import described
from ...core.ids import NO_CHECKPOINT, Attempt, TaskId, VertexId
from ..accounts import Ledger, TaskAccount
from ..exchange.inprocess import InProcessEndpoint, InProcessNetwork
from ..graph.model import JobGraph, JobVertex
from ..messages import CancelTask, Mail, TaskFailed, TaskReport
from ..task.background import Background
from ..task.deployment import TaskDeployment
from ..task.task import Task
from .driver import JobDriver
from .mail import rewired, sealed

MakeBackground = Callable[[str], Background]


@dataclass
class RunningTask:
    """A task, its endpoint and its background, all of one attempt."""

    task: Task
    endpoint: InProcessEndpoint
    background: Background

    def drop(self) -> None:
        """Take it away without a word."""
        self.task.abandon()
        self.endpoint.close()


class FreshFunctions:
    """Gives each subtask of each attempt its own copy of the user's functions, as unpickling does
    on Ray: what they keep on `self` is shared with nobody and does not outlive a failure. Sources
    and sinks stay as they are: they only make readers and writers, and may hold much data.
    """

    def __init__(self) -> None:
        self._pickled: dict[VertexId, list[bytes | None]] = {}
        """Of each vertex the specs of its operators; None for sources and sinks."""

    def fresh(self, vertex: JobVertex) -> JobVertex:
        """The vertex with new copies. Raises what the pickled functions raise."""
        if vertex.id not in self._pickled:
            self._pickled[vertex.id] = [_pickle(o.spec) for o in vertex.operators]
        pickled = self._pickled[vertex.id]
        return replace(
            vertex,
            operators=tuple(
                o if data is None else replace(o, spec=cloudpickle.loads(data))
                for o, data in zip(vertex.operators, pickled, strict=True)
            ),
        )


def _pickle(spec: Any) -> bytes | None:
    if isinstance(spec, (SourceSpec, SinkSpec)):
        return None
    return code_pickles.dumps(spec)


class CooperativeCluster:
    """Runs the tasks of one job in the caller's thread. Implements the driver's `Cluster`.

    A task is in `tasks` from its deployment until it, or all of them, are stopped, or it crashes.
    """

    def __init__(
        self,
        config: ExchangeConfig,
        clock: Clock,
        make_background: MakeBackground,
        wake: Callable[[], None] = lambda: None,
        local_folders: tuple[str, ...] = (),
    ):
        """`wake`, from any thread: a task has got something to do. `local_folders`: where tasks
        keep copies of what they write for checkpoints."""
        self.local_folders = local_folders
        self.tasks: dict[TaskId, RunningTask] = {}
        self.reports: deque[TaskReport] = deque()
        self._config = config
        self._clock = clock
        self._make_background = make_background
        self._network = InProcessNetwork(clock, wake=wake)
        self._stopping: Attempt | None = None
        self._stopping_some: deque[tuple[tuple[TaskId, ...], Attempt]] = deque()
        """Tasks that are being stopped while others go on; none once all of them are."""
        self._functions = FreshFunctions()
        self._rooms: deque[int] = deque()
        """Requests for room that are not answered; there is always some."""
        self.check_room: Callable[[], None] = lambda: None
        """Raises if there is too little for what is to be started."""
        self._ledgers: dict[TaskId, Ledger] = {}
        """Of the newest attempt of each task."""

    # --- what the driver asks for ----------------------------------------------------------

    def take_over(self) -> list[TaskAccount]:
        """What the driver before has not heard is not heard any more but through these."""
        self.reports.clear()
        self._rooms.clear()
        self._stopping = None
        self._stopping_some.clear()
        return [self._ledgers[task].account() for task in self.tasks]

    def deploy(self, deployments: Sequence[TaskDeployment]) -> None:
        self.deploy_beside(deployments)

    def deploy_beside(
        self, deployments: Sequence[TaskDeployment], stays: Sequence[TaskDeployment] = ()
    ) -> None:
        self.check_room()
        endpoints = {d.task: self._network.endpoint(d.task, self._config) for d in deployments}
        reached = {**endpoints, **{d.task: self.tasks[d.task].endpoint for d in stays}}
        addresses = {task: endpoint.address for task, endpoint in reached.items()}
        for d in deployments:
            endpoints[d.task].connect(d.wiring(addresses))
        for d in deployments:
            self._start(d, endpoints[d.task])
        for d in stays:
            attempt = self.tasks[d.task].task.deployment.attempt
            self.send(d.task, attempt, rewired(d, addresses))

    def _start(self, d: TaskDeployment, endpoint: InProcessEndpoint) -> None:
        background = self._make_background(d.label)
        restored = NO_CHECKPOINT if d.restore is None else d.restore.checkpoint_id
        ledger = Ledger(d.task, d.attempt, restored, d.shape, d.own_share, d.tokens)
        self._ledgers[d.task] = ledger

        def report(said: TaskReport) -> None:
            ledger.on_report(said)
            self.reports.append(said)

        try:
            vertex = self._functions.fresh(d.vertex)
            d = replace(d, vertex=vertex, local_folders=self.local_folders)
            task = Task(d, endpoint, self._clock, report, background)
        except Exception as error:
            background.close()
            endpoint.close()
            text = f"task {d.label} could not start: {described(error)}"
            self.reports.append(TaskFailed(d.task, d.attempt, text))
        else:
            self.tasks[d.task] = RunningTask(task, endpoint, background)

    def make_room(self, request: int, job: JobGraph) -> None:
        self._rooms.append(request)

    def adopt(self, job: JobGraph) -> None:
        """Tasks take no room here."""

    def cancel_all(self, attempt: Attempt) -> None:
        for task in self.tasks:
            self._cancel(task)
        self._stopping = attempt
        self._stopping_some.clear()

    def cancel_tasks(self, tasks: Sequence[TaskId], attempt: Attempt) -> None:
        for task in tasks:
            if task in self.tasks:
                self._cancel(task)
        self._stopping_some.append((tuple(tasks), attempt))

    def _cancel(self, task: TaskId) -> None:
        cancel = CancelTask()
        self._ledgers[task].on_mail(cancel)
        self.tasks[task].task.post(cancel)

    def send(self, task: TaskId, attempt: Attempt, mail: Mail) -> None:
        running = self.tasks.get(task)
        if running is not None and running.task.deployment.attempt == attempt:
            match sealed(mail, task, attempt, running.task.deployment.vertex):
                case TaskFailed() as failure:
                    self.reports.append(failure)
                case letter:
                    self._ledgers[task].on_mail(letter)
                    running.task.post(letter)

    # --- what the loop steps ---------------------------------------------------------------

    def step_driver(self, driver: JobDriver) -> bool:
        """Hand one report, an answer to `cancel_all`, or a due tick to the driver."""
        if self.reports:
            driver.on_report(self.reports.popleft())
            return True
        if self._stopping is not None and all(r.task.state.over for r in self.tasks.values()):
            attempt, self._stopping = self._stopping, None
            self._drop_all()
            driver.on_all_stopped(attempt)
            return True
        if self._rooms:
            driver.on_room(self._rooms.popleft(), None)
            return True
        for tasks, attempt in self._stopping_some:
            left = [self.tasks[task] for task in tasks if task in self.tasks]
            if all(running.task.state.over for running in left):
                self._stopping_some.remove((tasks, attempt))
                for task in tasks:
                    if task in self.tasks:
                        self.tasks.pop(task).drop()
                driver.on_tasks_stopped(tasks, attempt)
                return True
        return driver.tick()

    def crash(self, task: TaskId) -> Attempt:
        """Drop a task as a killed process would; the caller tells the driver."""
        running = self.tasks.pop(task)
        running.drop()
        return running.task.deployment.attempt

    def close(self) -> None:
        self._drop_all()
        self.reports.clear()

    def _drop_all(self) -> None:
        for running in self.tasks.values():
            running.drop()
        self.tasks.clear()

    def flush(self) -> bool:
        """Send all partly filled buffers; whether there were any. For when nobody has work."""
        filled = [r for r in self.tasks.values() if r.endpoint.next_flush() is not None]
        for running in filled:
            running.endpoint.flush()
        return bool(filled)

    def next_deadline(self) -> float | None:
        """Seconds until a task has something to do by itself."""
        known = [r.task.next_deadline() for r in self.tasks.values() if not r.task.state.over]
        return min((d for d in known if d is not None), default=None)

"""Ten thousand tasks that only answer: what a coordinator hears of them, without running any.

They say what real ones do, in that order: figures as tasks of the same program reported them, parts
of checkpoints with files that are there. All of it is made between what is measured.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from strom import DiscardSink, FixedDelayRestart, JobConfig, StreamExecutionEnvironment
from strom.checkpoint.handles import FileHandle, KeyedHandle, OperatorSnapshot, SubtaskSnapshot
from strom.checkpoint.names import shared_name
from strom.checkpoint.storage import CheckpointStorage, checksum
from strom.connectors.datagen import DataGenSource
from strom.core.config import FailoverStrategy
from strom.core.ids import Attempt, CheckpointId, TaskId
from strom.engine.accounts import Ledger, TaskAccount
from strom.engine.graph.model import JobGraph, JobVertex
from strom.engine.hosts.driver import JobDriver
from strom.engine.hosts.simulator import Simulation, SimulationPlan
from strom.engine.messages import (
    CheckpointAcknowledged,
    Mail,
    MetricsReported,
    SplitsRequested,
    TaskCancelled,
    TaskReport,
    TaskRunning,
    TriggerCheckpoint,
)
from strom.engine.task.deployment import TaskDeployment
from strom.state.key_groups import range_for

DEPTH: Final = 10
"""Vertices of a pipeline, one behind the other. Each of its subtasks is a region."""

STATES: Final = 3
"""Of each subtask but the sources'."""

KEY_GROUPS: Final = 4
"""Of each subtask."""
INTERVAL_MS: Final = 10_000
"""From one checkpoint to the next."""

TYPES: Final = {"format": "columns", "types": '{"value":"int64"}'}
PART: Final = bytes(100)
"""The file of a state. Those of a subtask are one file, as of all small ones."""
SCHEMA: Final = pa.schema([("n", pa.int64())])


def numbers(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": np.arange(start, start + count)})


def same(batch: Any) -> Any:
    return batch


def program(tasks: int, pipelines: int = 1, failover: FailoverStrategy = "region") -> JobGraph:
    """A job of so many tasks, in pipelines of `DEPTH` vertices with forward edges between."""
    width = tasks // (DEPTH * pipelines)
    if not width or width * DEPTH * pipelines != tasks:
        raise SystemExit(f"{tasks} tasks are not {pipelines} pipelines of {DEPTH} vertices")
    least = JobConfig(
        parallelism=width, max_parallelism=KEY_GROUPS * width, failover_strategy=failover
    )
    env = StreamExecutionEnvironment.get_execution_environment(None, "local", defaults=least)
    env.enable_checkpointing(timedelta(milliseconds=INTERVAL_MS))
    env.set_restart_strategy(FixedDelayRestart(1_000_000, timedelta(0)))
    for i in range(pipelines):
        source = DataGenSource(numbers, 1000 * width, splits=width, schema=SCHEMA)
        stream = env.from_source(source, source_name=f"numbers {i}").uid(f"numbers {i}")
        for stage in range(1, DEPTH):
            name = f"stage {i}.{stage}"
            stream = stream.map_batches(same).name(name).uid(name).start_new_chain()
        stream.sink_to(DiscardSink()).name(f"sink {i}").uid(f"sink {i}")
    return env.get_job_graph("many tasks")


def reported() -> dict[str, dict[str, Any]]:
    """By stage what a task of it reports: taken from a small job of one pipeline that is run."""
    graph = program(DEPTH)
    stages = {vertex.id: _stage(vertex) for vertex in graph.vertices}
    found: dict[str, dict[str, Any]] = {}

    class Listening:
        def employed(self, driver: JobDriver, cluster: Any) -> None:
            hear = driver.on_report

            def heard(report: TaskReport) -> None:
                if isinstance(report, MetricsReported):
                    found[stages[report.task.vertex]] = report.metrics
                hear(report)

            driver.on_report = heard  # type: ignore[method-assign]

        def stepped(self) -> None:
            """Nothing to look at."""

    Simulation(graph, SimulationPlan(seed=1), watch=Listening()).run()
    return found


class AnsweringTasks:
    """Implements the driver's `Cluster`. What it is told it only notes; what tasks make of that is
    made by `answers`, which nobody measures."""

    def __init__(self, graph: JobGraph, storage: CheckpointStorage, shared: Path) -> None:
        """`shared`: the folder of the files that checkpoints of `storage` share."""
        self._shared = shared
        self._storage = storage
        self._vertices = {vertex.id: vertex for vertex in graph.vertices}
        self.attempts: dict[TaskId, Attempt] = {}
        """Of the tasks that run."""
        self.sent: list[tuple[TaskId, Mail]] = []
        """Not answered yet."""
        self.told: dict[type, int] = {}
        """How many of each kind of mail were sent so far."""
        self._deployed: list[TaskDeployment] = []
        self._stopping: list[tuple[Sequence[TaskId] | None, Attempt]] = []
        self._over: list[tuple[Sequence[TaskId] | None, Attempt]] = []
        """All of whose tasks have said that they stopped."""
        self._ledgers: dict[TaskId, Ledger] = {}
        self._accounts: list[TaskAccount] = []

    # --- what the driver asks for ----------------------------------------------------------

    def take_over(self) -> Sequence[TaskAccount]:
        return self._accounts

    def deploy(self, deployments: Sequence[TaskDeployment]) -> None:
        self._deployed += deployments

    def deploy_beside(
        self, deployments: Sequence[TaskDeployment], stays: Sequence[TaskDeployment] = ()
    ) -> None:
        self._deployed += deployments

    def make_room(self, request: int, job: JobGraph) -> None:
        """Nobody asks for it."""

    def adopt(self, job: JobGraph) -> None:
        """The job stays as it is."""

    def cancel_all(self, attempt: Attempt) -> None:
        self._stopping.append((None, attempt))

    def cancel_tasks(self, tasks: Sequence[TaskId], attempt: Attempt) -> None:
        self._stopping.append((tasks, attempt))

    def send(self, task: TaskId, attempt: Attempt, mail: Mail) -> None:
        self.sent.append((task, mail))

    # --- what comes of it ------------------------------------------------------------------

    def answers(self) -> list[TaskReport]:
        """What tasks say to what they were told last, in the order in which they say it."""
        said: list[TaskReport] = []
        deployed, self._deployed = self._deployed, []
        for one in deployed:
            self.attempts[one.task] = one.attempt
            ledger = self._ledgers[one.task] = Ledger(one.task, one.attempt)
            said.append(TaskRunning(one.task, one.attempt))
            ledger.on_report(said[-1])
            for operator in one.vertex.operators:
                if operator.is_source:
                    said.append(SplitsRequested(one.task, one.attempt, operator.operator_id))
                    ledger.on_report(said[-1])
        for tasks, _ in self._stopping:
            stopping = self.attempts if tasks is None else tasks
            said += [TaskCancelled(task, self.attempts[task]) for task in stopping]
        self._over += self._stopping
        self._stopping = []
        sent, self.sent = self.sent, []
        triggered: dict[CheckpointId, None] = {}
        for task, mail in sent:
            self.told[type(mail)] = self.told.get(type(mail), 0) + 1
            self._ledgers[task].on_mail(mail)
            if isinstance(mail, TriggerCheckpoint):
                triggered[mail.checkpoint_id] = None
        for n in triggered:
            for task, attempt in self.attempts.items():
                part = self._snapshot(task, n)
                said.append(CheckpointAcknowledged(task, attempt, n, part, 1.5, 20.0, 3.0))
        return said

    def stopped(self, driver: JobDriver) -> Callable[[], None] | None:
        """Tells the driver of tasks that it has stopped, if there are any."""
        if not self._over:
            return None
        tasks, attempt = self._over.pop(0)
        if tasks is None:
            self.attempts.clear()
            return lambda: driver.on_all_stopped(attempt)
        for task in tasks:
            del self.attempts[task]
        return lambda: driver.on_tasks_stopped(tuple(tasks), attempt)

    def figures(self, like: dict[str, dict[str, Any]]) -> list[TaskReport]:
        """A report of each task; `like`: as of `reported`."""
        said: list[TaskReport] = []
        for task, attempt in self.attempts.items():
            vertex = self._vertices[task.vertex]
            figures = copy.deepcopy(like[_stage(vertex)])
            ids = [operator.operator_id for operator in vertex.operators]
            operators = dict(zip(ids, figures["operators"].values(), strict=True))
            said.append(MetricsReported(task, attempt, {**figures, "operators": operators}))
        return said

    def leave(self) -> None:
        """Their coordinator died: what they say of themselves to the next one."""
        self.answers()
        self._accounts = [ledger.account() for ledger in self._ledgers.values()]

    def _snapshot(self, task: TaskId, n: CheckpointId) -> SubtaskSnapshot:
        vertex = self._vertices[task.vertex]
        operators = [operator.operator_id for operator in vertex.operators]
        if vertex.is_source:
            return SubtaskSnapshot(task, tuple(OperatorSnapshot(o) for o in operators))
        name = self._storage.own_name(f"{operators[0]}-{task.subtask}-0.pack")
        path = self._shared / shared_name(n, name)
        path.write_bytes(STATES * PART)
        keyed = tuple(self._state(i, path.name, task.subtask, vertex) for i in range(STATES))
        first = OperatorSnapshot(operators[0], keyed)
        return SubtaskSnapshot(task, (first, *(OperatorSnapshot(o) for o in operators[1:])))

    def _state(self, index: int, path: str, subtask: int, vertex: JobVertex) -> KeyedHandle:
        mine = range_for(subtask, vertex.parallelism, vertex.max_parallelism)
        offset = index * len(PART)
        part = FileHandle(path, len(PART), checksum(PART), None, True, offset)
        rows = tuple((g, 10 * i, 10) for i, g in enumerate(range(mine.first, mine.last + 1)))
        return KeyedHandle(f"state-{index}", "value", part, rows, dict(TYPES))


def _stage(vertex: JobVertex) -> str:
    """Where it is in its pipeline, of whichever that is."""
    return vertex.operators[0].name.partition(".")[2]

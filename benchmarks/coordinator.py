"""`coordinator`: what the coordinator of a large job takes, in CPU time, and how that grows.

A whole coordinator (`JobDriver`: job master, checkpoints, storage, enumerators, history, figures)
over tasks that only answer (`coordinator_tasks`), in one thread and without a process: CPU time of
what it hears, does and tells. Network and pickling are not in it. Each part is measured at so many
tasks and at a tenth of them.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from strom.checkpoint.names import SHARED
from strom.checkpoint.storage import CheckpointStorage, open_storage
from strom.core.clock import VirtualClock
from strom.core.ids import TaskId
from strom.engine.graph.model import JobGraph
from strom.engine.hosts.driver import JobDriver
from strom.engine.messages import CheckpointCompleted, TaskFailed
from strom.engine.task.background import SteppedBackground

from .coordinator_tasks import INTERVAL_MS, AnsweringTasks, program, reported

JOB: Final = "many-tasks"
LESS: Final = 10
"""So many times fewer tasks is what growth is measured from."""


@dataclass
class Taken:
    """CPU seconds: of the coordinator's own thread, and of its workers, which have others."""

    own: float = 0.0
    beside: float = 0.0

    @property
    def all(self) -> float:
        return self.own + self.beside


class Coordinator:
    """One, and its tasks. `former`: the one before it, which died and whose tasks go on."""

    def __init__(self, graph: JobGraph, folder: Path, former: Coordinator | None = None) -> None:
        """`folder`: of the checkpoints."""
        self.taken = Taken()
        """Since `measured` began."""
        self._graph = graph
        self._workers: list[SteppedBackground] = []
        self.clock: VirtualClock = VirtualClock() if former is None else former.clock
        self._storage: CheckpointStorage = (
            open_storage(str(folder), JOB) if former is None else former._storage
        )
        shared = folder / JOB / SHARED
        shared.mkdir(parents=True, exist_ok=True)
        self.tasks: AnsweringTasks = (
            AnsweringTasks(graph, self._storage, shared) if former is None else former.tasks
        )
        self._former = former
        self.driver = self.timed(self._make)

    def _make(self) -> JobDriver:
        before = self._former
        return JobDriver(
            self._graph,
            JOB,
            self.clock,
            self.tasks,
            lambda operator, key, value: None,
            self._hire,
            storage=self._storage,
            first_attempt=0 if before is None else before.driver.attempt + 1,
            token=None if before is None else before.driver.token,
            takes_over=before is not None,
        )

    def _hire(self, name: str) -> SteppedBackground:
        self._workers.append(SteppedBackground())
        return self._workers[-1]

    # --- measured ----------------------------------------------------------------------------

    def timed(self, call: Callable[..., Any], *args: Any, beside: bool = False) -> Any:
        """Its result; what it took is on the account."""
        began = time.thread_time()
        try:
            return call(*args)
        finally:
            taken = time.thread_time() - began
            if beside:
                self.taken.beside += taken
            else:
                self.taken.own += taken

    def settle(self) -> None:
        """Until nobody has anything to say, and nothing is due."""
        while True:
            if reports := self.tasks.answers():
                self.timed(self._hear, reports)
            elif any(worker.busy for worker in self._workers):
                for worker in self._workers:
                    while self.timed(worker.step, beside=True):
                        self.timed(self._take_answers)
            elif stopped := self.tasks.stopped(self.driver):
                self.timed(stopped)
            elif not self.timed(self.driver.tick):
                return

    def _hear(self, reports: list[Any]) -> None:
        """As a host does: it asks behind each when the next thing is due."""
        for report in reports:
            self.driver.on_report(report)
            self.driver.next_tick_s()

    def _take_answers(self) -> None:
        while self.driver.take_answer():
            self.driver.next_tick_s()

    # --- its parts ---------------------------------------------------------------------------

    def start(self) -> None:
        """The job runs behind this, unless something is wrong with what is measured."""
        self.timed(self.driver.start)
        self.settle()
        self._check()

    def checkpoint(self) -> None:
        """One, from its trigger to the word that it is complete."""
        before = self.driver.checkpoints().completed
        told = self.tasks.told.get(CheckpointCompleted, 0)
        self.clock.advance_ms(INTERVAL_MS)
        self.settle()
        assert self.driver.checkpoints().completed == before + 1, self.driver.checkpoints()
        assert self.tasks.told[CheckpointCompleted] == told + len(self.tasks.attempts)

    def fail(self, task: TaskId) -> None:
        """What hangs together with it begins again; all tasks, if the job restarts whole."""
        failed = TaskFailed(task, self.tasks.attempts[task], "broken")
        self.timed(self.driver.on_report, failed)
        self.settle()
        self._check()

    def report(self, like: dict[str, dict[str, Any]]) -> None:
        """Each task tells its figures."""
        self.timed(self._hear, self.tasks.figures(like))

    def read_samples(self) -> int:
        """As Prometheus does, of which this is how many they are."""
        return sum(1 for _ in self.driver.samples())

    def _check(self) -> None:
        """Whether all of it runs, in an attempt that all tasks know of."""
        view = self.driver.metrics()
        assert view["state"] == "RUNNING", (view["state"], view["last_failure"])
        assert len(self.tasks.attempts) == sum(v.parallelism for v in self._graph.vertices)


def measured(tasks: int, pipelines: int, rounds: int) -> dict[str, Taken]:
    """By part, the least of so many rounds where it can be done again."""
    with TemporaryDirectory(prefix="strom-bench-") as folder:
        return _measured(Path(folder), tasks, pipelines, rounds)


def _measured(folder: Path, tasks: int, pipelines: int, rounds: int) -> dict[str, Taken]:
    found: dict[str, Taken] = {}
    like = reported()
    graph = program(tasks, pipelines)

    def note(part: str, coordinator: Coordinator, work: Callable[[], Any]) -> None:
        gc.collect()
        coordinator.taken = Taken()
        work()
        best = found.get(part)
        if best is None or coordinator.taken.all < best.all:
            found[part] = coordinator.taken

    one = Coordinator(graph, folder / "one")
    made = one.taken
    note("deploy", one, one.start)
    found["deploy"].own += made.own
    for _ in range(rounds + 1):  # what comes behind the first removes the one before it, too
        note("checkpoint", one, one.checkpoint)
    for _ in range(rounds):
        note("reports", one, partial(one.report, like))
        for part in ("metrics", "view"):
            note(part, one, partial(one.timed, getattr(one.driver, part)))
        note("samples", one, partial(one.timed, one.read_samples))
    heads = [task for task in one.tasks.attempts if task.vertex == graph.vertices[0].id]
    for i in range(rounds):
        note("failover_region", one, partial(one.fail, heads[i % len(heads)]))
    for _ in range(rounds):
        one.checkpoint()
        one.tasks.leave()
        next_ = Coordinator(graph, folder / "one", one)
        made, one = next_.taken, next_
        note("take_over", one, one.start)
        found["take_over"].own += made.own
    full = Coordinator(program(tasks, pipelines, "full"), folder / "full")
    full.start()
    full.checkpoint()
    for _ in range(rounds):
        full.checkpoint()
        note("failover", full, partial(full.fail, next(iter(full.tasks.attempts))))
    return found


def lines(tasks: int, pipelines: int, rounds: int) -> Iterator[dict[str, Any]]:
    """A line per part."""
    if tasks // LESS < LESS:
        raise SystemExit(f"{tasks} tasks are too few to see how it grows: {LESS * LESS} at least")
    with _quiet():
        few = measured(tasks // LESS, max(1, pipelines // LESS), rounds)
        many = measured(tasks, pipelines, rounds)
    for part, taken in many.items():
        each, before = taken.all / tasks, few[part].all / (tasks // LESS)
        yield {
            "name": "coordinator",
            "part": part,
            "tasks": tasks,
            "pipelines": pipelines,
            "cpu_ms": round(taken.all * 1e3, 1),
            "own_ms": round(taken.own * 1e3, 1),
            "beside_ms": round(taken.beside * 1e3, 1),
            "us_per_task": round(each * 1e6, 2),
            "fewer_tasks": tasks // LESS,
            "fewer_cpu_ms": round(few[part].all * 1e3, 1),
            "fewer_us_per_task": round(before * 1e6, 2),
            "growth": round(each / before, 2),
        }


@contextmanager
def _quiet() -> Iterator[None]:
    """Restarts are what is measured, and no news."""
    log = logging.getLogger("strom")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)

"""The simulator: a whole job in one thread, under a virtual clock and a seeded scheduler.

Everything that happens is a choice of the seeded random generator: which task, snapshot writer or
coordinator steps next, when time passes, and who crashes when. The same seed replays the same run.
The code that runs is the real one: tasks, coordinator, exchange, checkpoints; only the clock, the
schedule and the crashes are ours.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...api.jobs.host import JobExecutionResult
from ...checkpoint.storage import CheckpointStorage, open_storage
from ...core.clock import VirtualClock
from ...core.errors import StromError
from ...core.ids import CheckpointId, OperatorId, TaskId
from ...core.job_status import JobStatus
from ..coordinator.actions import Actions
from ..graph.model import JobGraph
from ..task.background import SteppedBackground
from ..task.task import TaskState
from .cooperative import CooperativeCluster
from .driver import JobDriver, JobOutcome, new_job_id, result_of


class SimulationError(StromError):
    """A simulated job hung or broke; the message holds the seed that replays it."""


@dataclass(frozen=True)
class SimulationPlan:
    """What happens to the job besides its own work.

    `crashes`: this many tasks crash, each at a random step of the first `crash_window` steps.
    `coordinator_crashes`: this often the coordinator and all tasks crash, each from a random step
    of the same window on; half of the times right behind the next checkpoint's publication, before
    anybody was told of it. A new coordinator starts on the same storage.
    `crash_after_checkpoints`: a random task crashes right after each of the first so many completed
    checkpoints. `stop_after_checkpoint`: everything is dropped, for good, once so many completed.
    """

    seed: int = 0
    crashes: int = 0
    coordinator_crashes: int = 0
    crash_window: int = 2000
    crash_after_checkpoints: int = 0
    stop_after_checkpoint: int | None = None
    max_steps: int = 1_000_000


@dataclass
class SimulationResult:
    """`published`: what reached the client, by operator and key, in order. `outcome` is None if
    the simulation was stopped. `midway`: how many of the crashes (and the stop) came while there
    was a checkpoint to go back to and input left to read."""

    job_id: str
    outcome: JobOutcome | None
    published: dict[OperatorId, dict[str, Any]] = field(default_factory=dict)
    steps: int = 0
    crashed: int = 0
    coordinators_crashed: int = 0
    midway: int = 0
    last_checkpoint: CheckpointId | None = None


class _CoordinatorDied(Exception):
    """Ends the step in which the coordinator dies."""


class _MortalDriver(JobDriver):
    """A driver that may die right behind a publication."""

    doomed = False

    def _store(self, manifest: Any) -> Actions:
        actions = super()._store(manifest)
        if self.doomed:
            raise _CoordinatorDied
        return actions


class Simulation:
    """One run of one job."""

    def __init__(
        self, graph: JobGraph, plan: SimulationPlan, storage: CheckpointStorage | None = None
    ) -> None:
        self._plan = plan
        self._graph = graph
        self._rng = random.Random(plan.seed)
        self._clock = VirtualClock()
        self._storage = storage or open_storage(graph.config.checkpoint.storage, new_job_id())
        self._result = SimulationResult(self._storage.job_id, None)
        self._crash_steps = self._draw_steps(plan.crashes)
        self._coordinator_steps = self._draw_steps(plan.coordinator_crashes)
        self._crashes_left = plan.crash_after_checkpoints
        self._seen = 0
        """Completed checkpoints after which somebody could have crashed."""
        self._before = 0
        """Checkpoints that dead coordinators completed."""
        self._idle = 0
        """Fruitless choices in a row."""
        self._employ()

    def _employ(self) -> None:
        """A coordinator, and a place for its tasks."""
        self._cluster = CooperativeCluster(
            self._graph.config.exchange, self._clock, lambda name: SteppedBackground()
        )
        self._driver = _MortalDriver(
            self._graph,
            self._storage.job_id,
            self._clock,
            self._cluster,
            self._publish,
            rng=random.Random(self._plan.seed),
            storage=self._storage,
        )

    def run(self) -> SimulationResult:
        """To the end of the job. SimulationError if it hangs, or publishes two values under one
        key."""
        self._driver.start()
        while not self._driver.ended and not self._stopped():
            self._count_step()
            self._maybe_crash()
            try:
                self._turn()
            except _CoordinatorDied:
                self._replace_coordinator()
        self._result.last_checkpoint = self._driver.checkpoints().latest_completed
        self._cluster.close()
        if self._driver.ended:
            self._result.outcome = self._driver.outcome()
        return self._result

    # --- the schedule ----------------------------------------------------------------------

    def _turn(self) -> None:
        """One unit steps; sometimes time passes."""
        units = self._units()
        self._idle = 0 if self._rng.choice(units)() else self._idle + 1
        if self._rng.random() < 0.05:
            self._clock.advance_ms(self._rng.randrange(3))
        if self._idle > 6 * len(units):
            self._idle = 0
            self._sweep(units)

    def _units(self) -> list[Callable[[], bool]]:
        """Everything that may step next."""
        units: list[Callable[[], bool]] = [lambda: self._cluster.step_driver(self._driver)]
        for running in self._cluster.tasks.values():
            units.append(running.task.step)
            background = running.background
            if isinstance(background, SteppedBackground) and background.busy:
                units.append(background.step)
        return units

    def _sweep(self, units: list[Callable[[], bool]]) -> None:
        """Nothing seems to happen: let each unit step once, and if none has work, let time pass."""
        if sum(unit() for unit in units):
            return
        wishes = [self._cluster.next_deadline(), self._driver.next_tick_s()]
        known = [w for w in wishes if w is not None]
        if not known:
            raise SimulationError(
                f"seed {self._plan.seed}: the job hangs in {self._driver.state.value} after "
                f"{self._result.steps} steps: nothing to do and nothing to wait for\n"
                f"{self._picture()}"
            )
        self._clock.advance_ms(max(1, round(min(known) * 1000)))

    def _count_step(self) -> None:
        self._result.steps += 1
        if self._result.steps > self._plan.max_steps:
            raise SimulationError(
                f"seed {self._plan.seed}: not over after {self._plan.max_steps} steps\n"
                f"{self._picture()}"
            )

    def _picture(self) -> str:
        tasks = self._cluster.tasks.values()
        return "\n".join(f"  {r.task.deployment.label}: {r.task.state.value}" for r in tasks)

    # --- crashes ---------------------------------------------------------------------------

    def _draw_steps(self, count: int) -> list[int]:
        return sorted(self._rng.randrange(self._plan.crash_window) for _ in range(count))

    def _maybe_crash(self) -> None:
        if self._crash_steps and self._result.steps >= self._crash_steps[0]:
            self._crash_steps.pop(0)
            self._crash_one()
        if self._crashes_left and self._completed() > self._seen:
            self._seen = self._completed()
            self._crashes_left -= 1
            self._crash_one()
        if self._coordinator_steps and self._result.steps >= self._coordinator_steps[0]:
            self._coordinator_steps.pop(0)
            if self._rng.random() < 0.5:
                self._driver.doomed = True
            else:
                self._replace_coordinator()

    def _crash_one(self) -> None:
        alive = [t for t, r in self._cluster.tasks.items() if not r.task.state.over]
        if not alive:
            return
        task: TaskId = self._rng.choice(sorted(alive))
        self._note_midway()
        attempt = self._cluster.crash(task)
        self._result.crashed += 1
        self._driver.on_task_lost(task, attempt, "crashed by the simulator")

    def _replace_coordinator(self) -> None:
        """The coordinator's process dies, and its tasks with it; another starts on the storage."""
        self._note_midway()
        self._before += self._driver.checkpoints().completed
        self._result.coordinators_crashed += 1
        self._cluster.close()
        self._employ()
        self._driver.start()

    def _note_midway(self) -> None:
        reading = any(r.task.state is TaskState.RUNNING for r in self._cluster.tasks.values())
        self._result.midway += reading and self._completed() > 0

    def _completed(self) -> int:
        return self._before + self._driver.checkpoints().completed

    def _stopped(self) -> bool:
        limit = self._plan.stop_after_checkpoint
        if limit is None or self._completed() < limit:
            return False
        self._note_midway()
        return True

    def _publish(self, operator: OperatorId, key: str, value: Any) -> None:
        """Coordinators know what they published themselves; here is what the client has seen."""
        seen = self._result.published.setdefault(operator, {})
        known = seen.setdefault(key, value)
        if known is not value and repr(known) != repr(value):
            raise SimulationError(
                f"seed {self._plan.seed}: operator {operator} published two values under the key "
                f"'{key}': {known!r} and {value!r}"
            )


class SimulatedJob:
    """The client of a simulated job, which is over before anybody can ask."""

    def __init__(self, result: SimulationResult) -> None:
        self.result = result

    @property
    def _outcome(self) -> JobOutcome:
        assert self.result.outcome is not None, "the simulation was stopped"
        return self.result.outcome

    def get_job_id(self) -> str:
        return self.result.job_id

    def get_job_status(self) -> JobStatus:
        return self._outcome.status

    def cancel(self, timeout: Any = None) -> None:
        """Too late: the job is over."""

    def get_job_execution_result(self, timeout: Any = None) -> JobExecutionResult:
        return result_of(self._outcome)

    def metrics(self) -> dict[str, Any]:
        return self._outcome.metrics

    def published(self, operator_id: OperatorId) -> Any:
        return iter(self.result.published.get(operator_id, {}).values())


class SimulatorHost:
    """Runs each submitted job to its end under `plan` before `submit` returns."""

    def __init__(self, plan: SimulationPlan | None = None) -> None:
        self.plan = plan or SimulationPlan()

    def submit(self, graph: JobGraph, job_name: str) -> SimulatedJob:
        return SimulatedJob(Simulation(graph, self.plan).run())

"""The simulator: a whole job in one thread, under a virtual clock and a seeded scheduler.

Everything that happens is a choice of the seeded random generator: which task, snapshot writer,
coordinator or worker of the coordinator steps next, how long the workers take, when time passes,
and who crashes when. The same seed replays the same run.
The code that runs is the real one: tasks, coordinator, exchange, checkpoints; only the clock, the
schedule and the crashes are ours.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from ...api.jobs.host import JobExecutionResult
from ...checkpoint.savepoints import Stop
from ...checkpoint.storage import CheckpointStorage, open_storage
from ...core.answered import AnsweredDict, CompletableFuture, JobID
from ...core.clock import VirtualClock
from ...core.errors import CheckpointError, StromError
from ...core.ids import CheckpointId, OperatorId, TaskId
from ...core.job_status import JobStatus
from ..exchange.pickling import opened
from ..graph.model import JobGraph
from ..task.background import Done, SteppedBackground
from ..task.task import Task, TaskState
from .cooperative import CooperativeCluster
from .driver import JobDriver, JobOutcome, accumulator_results, new_job_id, result_of
from .local_folder import LocalFolders, entered
from .placed_files import files_at_hand
from .savepoint_calls import SavepointCalls, refused
from .shown_job import ShownJob


class SimulationError(StromError):
    """A simulated job hung or broke; the message holds the seed that replays it."""


@dataclass(frozen=True)
class SimulationPlan:
    """What happens to the job besides its own work.

    `crashes`: this many tasks crash, each at a random step of the first `crash_window` steps.
    `coordinator_crashes`: this often the coordinator and all tasks crash, each from a random step
    of the same window on; half of the times right behind the next checkpoint's publication, before
    anybody was told of it. What its workers had not begun is never done. A new coordinator starts
    on the same storage. `slow_workers`: a piece of work of the coordinator's workers (publishing,
    deleting and finding checkpoints, asking enumerators) begins up to so many ms late.
    `crash_after_checkpoints`: a random task crashes right after each of the first so many completed
    checkpoints. `stop_after_checkpoint`: everything is dropped, for good, once so many completed.
    `savepoints`: so many are asked for, each at a random step of the same window.
    `halt_after_checkpoint`: once so many completed, the job is stopped with a savepoint, which is
    asked for again when that fails. `continues`: the job starts from a checkpoint, to which it can
    go back before it has one of its own. `cut_offs`: this often the coordinator and its tasks are
    taken for dead, each from a random step of the same window on, and go on all the same, while
    others start on the same storage: as the same job, or as another one that is restored from it.
    Those that were taken for dead do nothing for up to `away` ms first.
    `slow_writers`: the same delay of what tasks write.
    `hangs`: of a thousand pieces of work (of workers and writers) so many take `hang_ms` to begin.
    `slow_tasks`: so many of a hundred tasks are seldom given a step. `brisk`: who had nothing to do
    is left out until it may have heard of something, and time passes once all are: fewer steps, and
    other schedules. `choices`: so many are drawn; from then on all take turns.
    """

    seed: int = 0
    crashes: int = 0
    coordinator_crashes: int = 0
    crash_window: int = 2000
    crash_after_checkpoints: int = 0
    stop_after_checkpoint: int | None = None
    savepoints: int = 0
    halt_after_checkpoint: int | None = None
    savepoint_directory: str = "memory://strom-simulator"
    slow_workers: int = 10
    slow_writers: int = 0
    hangs: int = 0
    hang_ms: int = 100
    slow_tasks: int = 0
    continues: bool = False
    cut_offs: int = 0
    away: int = 0
    brisk: bool = False
    choices: int | None = None
    max_steps: int = 1_000_000


@dataclass
class SimulationResult:
    """`published`: what reached the client, by operator and key, in order. `savepoints`: where each
    one is that is complete, with what was published when it was taken; `refused`: why others are
    not; `halted_at`: the one that stopped the job. `outcome` is None if
    the simulation was stopped. `midway`: how many of the crashes (and the stop) came while there
    was a checkpoint to go back to and input left to read; `stopped_midway`: whether the stop
    did. `cut_off`: how those ended that were taken for dead."""

    job_id: str
    outcome: JobOutcome | None
    published: dict[OperatorId, dict[str, Any]] = field(default_factory=dict)
    steps: int = 0
    crashed: int = 0
    coordinators_crashed: int = 0
    midway: int = 0
    stopped_midway: bool = False
    last_checkpoint: CheckpointId | None = None
    savepoints: dict[str, dict[OperatorId, dict[str, Any]]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    halted_at: str | None = None
    cut_off: list[JobOutcome] = field(default_factory=list)
    hanging: bool = False
    """Whether the storage still hung when the job was over, so that files may be left."""


class Watch(Protocol):
    """Who looks on."""

    def employed(self, driver: JobDriver, cluster: CooperativeCluster) -> None:
        """A coordinator begins, the first one or another."""
        ...

    def stepped(self) -> None:
        """One unit has done a step. What this raises ends the simulation."""
        ...


class _CoordinatorDied(Exception):
    """Ends the step in which the coordinator dies."""


class _Worker(SteppedBackground):
    """One that takes its time: each piece of work may begin so many ms after it was submitted."""

    def __init__(self, clock: VirtualClock, delay_ms: Callable[[], int]) -> None:
        super().__init__()
        self._clock = clock
        self._delay_ms = delay_ms
        self.unit: Callable[[], bool] = self.step
        """What steps it."""
        self._ready: deque[int] = deque()
        """When each piece of work that waits may begin."""

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        super().submit(work, done)
        self._ready.append(self._clock.now_ms() + self._delay_ms())

    def step(self) -> bool:
        """The oldest piece of work, if it is time; whether anything was done."""
        if not self._ready or self._ready[0] > self._clock.now_ms():
            return False
        self._ready.popleft()
        return super().step()

    def next_deadline(self) -> float | None:
        """Seconds until there is something to do."""
        return max(0, self._ready[0] - self._clock.now_ms()) / 1000.0 if self._ready else None

    def close(self, wait_s: float = 0.0) -> None:
        super().close()
        self._ready.clear()


class Simulation:
    """One run of one job."""

    def __init__(
        self,
        graph: JobGraph,
        plan: SimulationPlan,
        storage: CheckpointStorage | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._plan = plan
        self._watch = watch
        self._graph = graph
        self._rng = random.Random(plan.seed)
        self._clock = VirtualClock()
        self._storage = storage or open_storage(graph.config.checkpoint.storage, new_job_id())
        self._result = SimulationResult(self._storage.job_id, None)
        self._crash_steps = self._draw_steps(plan.crashes)
        self._coordinator_steps = self._draw_steps(plan.coordinator_crashes)
        self._savepoint_steps = self._draw_steps(plan.savepoints)
        self._cut_off_steps = self._draw_steps(plan.cut_offs)
        self._cut_off: list[tuple[JobDriver, CooperativeCluster, list[_Worker]]] = []
        """What was taken for dead."""
        self._back_at: dict[JobDriver, int] = {}
        """When (ms) each of these goes on."""
        self._asked = 0
        """Requests for savepoints that are not answered."""
        self._halting = False
        self._crashes_left = plan.crash_after_checkpoints
        self._seen = 0
        """Completed checkpoints after which somebody could have crashed."""
        self._before = 0
        """Checkpoints that dead coordinators completed."""
        self._idle = 0
        """Fruitless choices in a row."""
        self._resting: set[Any] = set()
        """If `brisk`: who had nothing to do, and has not heard of anything since."""
        self._neighbours: dict[TaskId, list[TaskId]] = {}
        self._fruitless = 0
        """How often in a row time passed and nobody did anything."""
        self._slow: dict[TaskId, bool] = {}
        """Whether a task is drawn to be slow, once that was asked."""
        self._turns = 0
        """Those taken since nothing is drawn any more."""
        self._folders: tuple[str, ...] = ()
        """Where tasks keep copies of what they write for checkpoints; known from `run` on."""
        self._employ()

    def _employ(self) -> None:
        """A coordinator, and a place for its tasks."""
        self._cluster = CooperativeCluster(
            self._graph.config.exchange,
            self._clock,
            self._make_writer,
            local_folders=self._folders,
        )
        self._workers: list[_Worker] = []
        self._doomed = False
        """Whether the coordinator dies behind the next publication of a checkpoint."""
        self._driver = JobDriver(
            self._graph,
            self._storage.job_id,
            self._clock,
            self._cluster,
            self._publish,
            self._hire,
            rng=random.Random(self._plan.seed),
            storage=self._storage,
        )
        if self._watch is not None:
            self._watch.employed(self._driver, self._cluster)

    def _make_writer(self, name: str) -> SteppedBackground:
        plan = self._plan
        if not (plan.slow_writers or plan.hangs):
            return SteppedBackground()
        return _Worker(self._clock, partial(self._draw_delay, plan.slow_writers))

    def _hire(self, name: str) -> _Worker:
        worker = _Worker(self._clock, partial(self._draw_delay, self._plan.slow_workers))
        worker.unit = partial(self._step_worker, worker.step)
        self._workers.append(worker)
        return worker

    def _draw_delay(self, most: int) -> int:
        """Most work begins at once."""
        if self._plan.hangs and self._rng.randrange(1000) < self._plan.hangs:
            return self._plan.hang_ms
        late = most > 0 and self._rng.random() < 0.2
        return self._rng.randint(1, most) if late else 0

    def run(self) -> SimulationResult:
        """To the end of the job. SimulationError if it hangs, or publishes two values under one
        key."""
        config, job_id = self._graph.config, self._result.job_id
        with (
            files_at_hand(job_id, config.job_files),
            entered(self._copies()) as folders,
        ):
            self._folders = self._cluster.local_folders = folders
            return self._run()

    def _copies(self) -> LocalFolders | None:
        config = self._graph.config.checkpoint
        if not (config.keeps_copies and self._storage.copies):
            return None
        return LocalFolders(self._storage.job_id, config.local_dirs)

    def _run(self) -> SimulationResult:
        self._driver.start()
        while self._goes_on() and not self._stopped():
            self._count_step()
            try:
                self._maybe_crash()
                self._maybe_save()
                self._turn()
            except _CoordinatorDied:
                self._replace_coordinator()
            if self._watch is not None:
                self._watch.stepped()
        self._result.last_checkpoint = self._driver.checkpoints().latest_completed
        for driver, cluster, _ in [*self._cut_off, (self._driver, self._cluster, ())]:
            driver.close()
            cluster.close()
        self._result.hanging = self._driver.errands.hanging
        self._result.cut_off = [d.outcome() for d, _, _ in self._cut_off if d.ended]
        if self._asked:
            raise SimulationError(
                f"seed {self._plan.seed}: {self._asked} requests for savepoints were not answered"
            )
        if self._driver.ended:
            self._result.outcome = self._driver.outcome()
        return self._result

    # --- the schedule ----------------------------------------------------------------------

    def _turn(self) -> None:
        """One unit steps; sometimes time passes."""
        plan = self._plan
        if plan.choices is not None and self._result.steps > plan.choices:
            self._take_turns()
            return
        if plan.brisk and not (self._cut_off and self._is_shared(self._clock.now_ms())):
            self._turn_briskly()
            return
        self._resting.clear()
        units = self._units()
        self._idle = 0 if units and self._rng.choice(units)() else self._idle + 1
        if self._rng.random() < 0.05:
            self._clock.advance_ms(self._rng.randrange(3))
        if self._idle > 6 * len(units):
            self._idle = 0
            self._sweep(units)

    def _goes_on(self) -> bool:
        return not self._driver.ended or self._is_shared()

    def _is_shared(self, now_ms: float = math.inf) -> bool:
        """Whether one of those that were taken for dead goes on by then, or will."""
        return any(not d.ended and self._back_at[d] <= now_ms for d, _, _ in self._cut_off)

    def _turn_briskly(self) -> None:
        """One of those steps that may have something to do."""
        rng, resting = self._rng, self._resting
        ready = self._awake()
        if not ready:
            self._pass_time()
            return
        if self._plan.slow_tasks and rng.random() < 0.9:
            ready = [one for one in ready if not self._is_slow(one)] or ready
        one = ready[int(rng.random() * len(ready))]
        if not self._step(one):
            resting.add(one)
        else:
            self._fruitless = 0
            if isinstance(one, Task) and resting:
                self._rouse_near(one)
        if rng.random() < 0.03:
            self._advance(1 + int(rng.random() * 2))

    def _rouse_near(self, task: Task) -> None:
        """Those that have got something from it, or may send again. Mail is looked at anyway."""
        for name in self._near(task):
            running = self._cluster.tasks.get(name)
            if running is not None and running.endpoint.stirs:
                self._resting.discard(running.task)

    def _pass_time(self) -> None:
        """Nobody has anything to do now."""
        self._fruitless += 1
        if self._fruitless % 3:
            due = [d for d in self._deadlines() if d is not None]
            if due:
                self._advance(max(1, round(min(due) * 1000)))
                return
        self._resting.clear()
        self._sweep(self._units())

    def _advance(self, ms: int) -> None:
        """Time passes; whoever waited for it may step."""
        self._clock.advance_ms(ms)
        resting = self._resting
        resting.discard(self._driver)
        for running in self._cluster.tasks.values():
            if running.task in resting:
                due = running.task.next_deadline()
                if due is not None and due <= 0:
                    resting.discard(running.task)
        resting.difference_update([w for w in self._workers if w.busy])
        resting.difference_update([r.background for r in self._cluster.tasks.values()])

    def _awake(self) -> list[Any]:
        """Who may have something to do: tasks, their writers, workers, and the driver."""
        resting, driver = self._resting, self._driver
        ready: list[Any] = [w for w in self._workers if w.busy and w not in resting]
        for running in self._cluster.tasks.values():
            task, writer = running.task, running.background
            if task not in resting or task.has_mail:
                ready.append(task)
            if isinstance(writer, SteppedBackground) and writer.busy and writer not in resting:
                ready.append(writer)
        if driver not in resting or self._cluster.reports or driver.errands.answered:
            ready.append(driver)
        return ready

    def _step(self, one: Any) -> bool:
        if one is self._driver:
            first, second = self._driver.take_answer, self._step_driver
            if self._rng.random() < 0.5:
                first, second = second, first
            return first() or second()
        did: bool = one.unit() if isinstance(one, _Worker) else one.step()
        return did

    def _near(self, task: Task) -> list[TaskId]:
        """Those that it exchanges records with."""
        d = task.deployment
        near = self._neighbours.get(d.task)
        if near is None:
            names = {c.source for c in d.inputs} | {c.target for c in d.outputs}
            near = self._neighbours[d.task] = sorted(names - {d.task})
        return near

    def _is_slow(self, one: Any) -> bool:
        """Whether it is a task that is drawn to be slow."""
        if not isinstance(one, Task):
            return False
        name = one.deployment.task
        if name not in self._slow:
            self._slow[name] = self._rng.randrange(100) < self._plan.slow_tasks
        return self._slow[name]

    def _take_turns(self) -> None:
        """Nothing is drawn any more."""
        units = self._units()
        self._turns += 1
        if units and units[self._turns % len(units)]():
            self._idle = 0
        else:
            self._idle += 1
        if self._idle > len(units):
            self._idle = 0
            self._sweep(units)

    def _units(self) -> list[Callable[[], bool]]:
        """Everything that may step next."""
        steps = [worker.unit for worker in self._workers if worker.busy]
        units = self._units_of(self._driver, self._cluster, steps)
        for driver, cluster, workers in self._cut_off:
            if not driver.ended and self._clock.now_ms() >= self._back_at[driver]:
                units += self._units_of(driver, cluster, [w.step for w in workers if w.busy])
        return units

    def _units_of(
        self, driver: JobDriver, cluster: CooperativeCluster, workers: Sequence[Callable[[], bool]]
    ) -> list[Callable[[], bool]]:
        units: list[Callable[[], bool]] = []
        if not driver.ended:
            units += [lambda: cluster.step_driver(driver), driver.take_answer]
        units += workers
        for running in cluster.tasks.values():
            units.append(running.task.step)
            background = running.background
            if isinstance(background, SteppedBackground) and background.busy:
                units.append(background.step)
        return units

    def _step_driver(self) -> bool:
        return self._cluster.step_driver(self._driver)

    def _step_worker(self, step: Callable[[], bool]) -> bool:
        before = self._driver.errands.published
        did = step()
        if self._doomed and self._driver.errands.published > before:
            raise _CoordinatorDied
        return did

    def _sweep(self, units: list[Callable[[], bool]]) -> None:
        """Nothing seems to happen: let each unit step once, and if none has work, let time pass."""
        if sum(unit() for unit in units):
            return
        known = [w for w in self._deadlines() if w is not None]
        if not known:
            raise SimulationError(
                f"seed {self._plan.seed}: the job hangs in {self._driver.state.value} after "
                f"{self._result.steps} steps: nothing to do and nothing to wait for\n"
                f"{self._picture()}"
            )
        self._clock.advance_ms(max(1, round(min(known) * 1000)))

    def _deadlines(self) -> list[float | None]:
        """Seconds until somebody has something to do by itself."""
        wishes: list[float | None] = []
        for driver, cluster, workers in [
            *self._cut_off,
            (self._driver, self._cluster, self._workers),
        ]:
            away_ms = self._back_at.get(driver, 0) - self._clock.now_ms()
            if away_ms > 0:
                wishes.append(away_ms / 1000.0)
            elif not driver.ended:
                wishes += [cluster.next_deadline(), driver.next_tick_s()]
                wishes += [worker.next_deadline() for worker in workers]
                writers = [running.background for running in cluster.tasks.values()]
                wishes += [w.next_deadline() for w in writers if isinstance(w, _Worker)]
        return wishes

    def _count_step(self) -> None:
        self._result.steps += 1
        if self._result.steps > self._plan.max_steps:
            raise SimulationError(
                f"seed {self._plan.seed}: not over after {self._plan.max_steps} steps\n"
                f"{self._picture()}"
            )

    def _picture(self) -> str:
        tasks = self._cluster.tasks.values()
        lines = (f"  {r.task.deployment.label}: {r.task.state.value}" for r in tasks)
        return "\n".join([f"  {self._driver.troubles}", *lines])

    # --- savepoints ------------------------------------------------------------------------

    def _maybe_save(self) -> None:
        if self._savepoint_steps and self._result.steps >= self._savepoint_steps[0]:
            self._savepoint_steps.pop(0)
            self._ask(None)
        limit = self._plan.halt_after_checkpoint
        if limit is None or self._halting or self._completed() < limit:
            return
        if self._rng.random() < 0.05:
            self._halting = True
            self._result.stopped_midway |= self._note_midway()
            self._ask("halt")

    def _ask(self, stop: Stop | None) -> None:
        self._asked += 1
        self._driver.savepoint(self._plan.savepoint_directory, stop, partial(self._told, stop))

    def _told(self, stop: Stop | None, path: str | None, error: str | None) -> None:
        self._asked -= 1
        if path is None:
            self._halting &= stop is None
            self._result.refused.append(str(error))
        else:
            seen = {operator: dict(values) for operator, values in self._result.published.items()}
            self._result.savepoints[path] = seen
            if stop is not None:
                self._result.halted_at = path

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
        if self._cut_off_steps and self._result.steps >= self._cut_off_steps[0]:
            self._cut_off_steps.pop(0)
            if not self._driver.ended:
                self._take_for_dead()
        if self._coordinator_steps and self._result.steps >= self._coordinator_steps[0]:
            self._coordinator_steps.pop(0)
            if self._rng.random() < 0.5:
                self._doomed = True
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
        self._driver.close()
        self._cluster.close()
        self._employ()
        self._driver.start()

    def _take_for_dead(self) -> None:
        """Another coordinator starts, and the one before knows of nothing."""
        self._before += self._driver.checkpoints().completed
        self._cut_off.append((self._driver, self._cluster, self._workers))
        away_ms = self._rng.randint(0, self._plan.away) if self._plan.away else 0
        self._back_at[self._driver] = self._clock.now_ms() + away_ms
        former = self._storage
        if former.shares:
            self._storage = copy(former)  # as another process has it
        complete = former.home and any(self._is_complete(former, n) for n in former.list())
        if former.home is not None and complete and self._rng.random() < 0.5:
            job_id = f"{self._result.job_id}-{len(self._cut_off)}"
            location = f"{former.home.rstrip('/')}/{former.job_id}"
            config = replace(self._graph.config, restore_from=location)
            self._graph = replace(self._graph, config=config)
            self._storage = open_storage(former.home, job_id)
        self._employ()
        self._driver.start()

    @staticmethod
    def _is_complete(storage: CheckpointStorage, n: CheckpointId) -> bool:
        try:
            storage.load(n)
        except CheckpointError:
            return False
        return True

    def _note_midway(self) -> bool:
        reading = any(r.task.state is TaskState.RUNNING for r in self._cluster.tasks.values())
        midway = reading and (self._plan.continues or self._completed() > 0)
        self._result.midway += midway
        return midway

    def _completed(self) -> int:
        return self._before + self._driver.checkpoints().completed

    def _stopped(self) -> bool:
        limit = self._plan.stop_after_checkpoint
        if limit is None or self._completed() < limit:
            return False
        self._result.stopped_midway = self._note_midway()
        return True

    def _publish(self, operator: OperatorId, key: str, value: Any) -> None:
        """Coordinators know what they published themselves; here is what the client has seen."""
        value = opened(value, "published records")
        seen = self._result.published.setdefault(operator, {})
        known = seen.setdefault(key, value)
        if known is not value and repr(known) != repr(value):
            raise SimulationError(
                f"seed {self._plan.seed}: operator {operator} published two values under the key "
                f"'{key}': {known!r} and {value!r}"
            )


class SimulatedJob(SavepointCalls, ShownJob):
    """The client of a simulated job, which is over before anybody can ask."""

    ends_with_program = True

    def __init__(self, result: SimulationResult) -> None:
        self.result = result

    @property
    def _outcome(self) -> JobOutcome:
        assert self.result.outcome is not None, "the simulation was stopped"
        return self.result.outcome

    def get_job_id(self) -> JobID:
        return JobID(self.result.job_id)

    def get_job_status(self) -> JobStatus:
        return self._outcome.status

    def cancel(self, timeout: Any = None) -> CompletableFuture[None]:
        """Too late: the job is over."""
        return CompletableFuture()

    def _savepoint(self, directory: str | None, stop: Stop | None) -> CompletableFuture[str]:
        return refused(self._outcome.name, f"the job is {self._outcome.status.value}")

    def get_job_execution_result(self, timeout: Any = None) -> JobExecutionResult:
        return result_of(self._outcome)

    def metrics(self) -> dict[str, Any]:
        return self._outcome.metrics

    def get_accumulators(self) -> AnsweredDict:
        return accumulator_results(self._outcome.accumulators).results()

    @property
    def prometheus_address(self) -> str | None:
        """A simulation opens no port."""
        return None

    def published(self, operator_id: OperatorId) -> Any:
        return iter(self.result.published.get(operator_id, {}).values())


class SimulatorHost:
    """Runs each submitted job to its end under `plan` before `submit` returns."""

    def __init__(self, plan: SimulationPlan | None = None) -> None:
        self.plan = plan or SimulationPlan()

    def submit(self, graph: JobGraph, job_name: str) -> SimulatedJob:
        return SimulatedJob(Simulation(graph, self.plan).run())

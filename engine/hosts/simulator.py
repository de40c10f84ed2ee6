"""The simulator: a whole job in one thread, under a virtual clock and a seeded scheduler.

Everything that happens is a choice of the seeded random generator: which task, snapshot writer,
coordinator or worker of the coordinator steps next, how long the workers take, when time passes,
and who crashes when. The same seed replays the same run.
The code that runs is the real one: tasks, coordinator, exchange, checkpoints; only the clock, the
schedule and the crashes are ours.
"""

from __future__ import annotations

import random
from copy import copy
from functools import partial
from typing import Any

from ...api.jobs.host import JobExecutionResult, RescaleResult
from ...checkpoint.savepoints import Stop
from ...checkpoint.storage import CheckpointStorage, open_storage
from ...core.answered import AnsweredDict, CompletableFuture, JobID
from ...core.clock import VirtualClock
from ...core.ids import OperatorId, TaskId
from ...core.job_status import JobStatus
from ..exchange.pickling import opened
from ..graph.model import JobGraph
from ..task.background import SteppedBackground
from ..task.task import TaskState
from .asked_rescales import Wanted
from .brisk_schedule import BriskSchedule
from .cooperative import CooperativeCluster
from .cut_offs import another_start
from .driver import JobDriver, new_job_id
from .job_outcome import JobOutcome, accumulator_results, result_of
from .late_coordinators import LateCoordinators
from .local_folder import LocalFolders, entered
from .placed_files import files_at_hand
from .rescale_calls import RescaleCalls, not_rescaled
from .savepoint_calls import SavepointCalls, refused
from .schedules import EvenSchedule, Schedule, Stage, Stuck, TakingTurns
from .shown_job import ShownJob
from .simulated_client import Desk, SimulatedClient
from .simulated_rescales import SimulatedRescales
from .simulated_staff import Staff, Unit, Worker
from .simulation_plan import SimulationError, SimulationPlan, SimulationResult, Watch

__all__ = [
    "SimulatedJob",
    "Simulation",
    "SimulationError",
    "SimulationPlan",
    "SimulationResult",
    "SimulatorHost",
    "Watch",
]


class _CoordinatorDied(Exception):
    """Ends the step in which the coordinator dies."""


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
        self._rescales = SimulatedRescales(plan, self._result, graph)
        self._asked = 0
        """Requests for savepoints that are not answered."""
        self._halting = False
        self._halts_asked = 0
        self._crashes_left = plan.crash_after_checkpoints
        self._late = LateCoordinators(plan)
        self._amid, self._chance = plan.amid, random.Random(f"amid-{plan.seed}")
        """So many crashes wait for a rescale, and when they come."""
        self._at_stop, self._fate = plan.at_stop, random.Random(f"stop-{plan.seed}")
        """The same, of coordinators, that wait for a stop with a savepoint."""
        self._seen = 0
        """Completed checkpoints after which somebody could have crashed."""
        self._before = 0
        """Checkpoints that dead coordinators completed."""
        self._folders: tuple[str, ...] = ()
        """Where tasks keep copies of what they write for checkpoints; known from `run` on."""
        self._client = SimulatedClient(graph, plan.seed)
        self._employed = 0
        """So many coordinators."""
        self._stage = stage = Stage(self._rng, self._clock, self._employ())
        self._even, self._turns = EvenSchedule(stage), TakingTurns(stage)
        self._brisk = BriskSchedule(stage, plan.slow_tasks)

    def _employ(self, former: Staff | None = None, late: bool = False) -> Staff:
        """A coordinator, and a place for its tasks, unless it takes over those of the `former`. Who
        is `late` finds none: they hear another."""
        shared = former is not None and not late
        cluster = former.cluster if former is not None and shared else self._make_cluster()
        self._employed += 1
        workers: list[Worker] = []
        desk = self._client.desk()
        self._doomed = False
        """Whether the coordinator dies behind the next publication of a checkpoint."""
        driver = JobDriver(
            self._graph,
            self._storage.job_id,
            self._clock,
            cluster,
            partial(self._publish, desk),
            partial(self._hire, workers),
            rng=random.Random(self._plan.seed),
            storage=self._storage,
            first_attempt=0 if former is None else former.driver.attempt + 1,
            token=None if former is None else former.driver.token,
            takes_over=former is not None,
            before_end=desk.end,
            results=desk.log,
            keep=self._rescales.keeper(partial(self._hire, workers), lambda: driver),
            left=self._rescales.left_by(None if former is None else former.driver),
            make_scaler=self._rescales.make_scaler(lambda: driver),
            number=1_000 * self._plan.run + self._employed,
        )
        cluster.check_room = lambda: self._rescales.check_room(driver)
        desk.driver = driver
        if self._watch is not None:
            self._watch.employed(driver, cluster)
        self._staff = Staff(driver, cluster, workers)
        """Who is taken for alive."""
        return self._staff

    def _make_cluster(self) -> CooperativeCluster:
        return CooperativeCluster(
            self._graph.config.exchange,
            self._clock,
            self._make_writer,
            local_folders=self._folders,
        )

    def _replace_staff(self, former: Staff | None = None) -> None:
        """`former`: whose tasks go on."""
        self._stage.staff = self._employ(former)
        self._even.disturbed()
        self._staff.driver.start()

    def _make_writer(self, name: str) -> SteppedBackground:
        plan = self._plan
        if not (plan.slow_writers or plan.hangs):
            return SteppedBackground()
        return Worker(self._clock, partial(self._draw_delay, plan.slow_writers))

    def _hire(self, workers: list[Worker], name: str) -> Worker:
        worker = Worker(self._clock, partial(self._draw_delay, self._plan.slow_workers))
        worker.unit = partial(self._step_worker, worker.step)
        workers.append(worker)
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
            self._folders = self._staff.cluster.local_folders = folders
            return self._run()

    def _copies(self) -> LocalFolders | None:
        config = self._graph.config.checkpoint
        if not (config.keeps_copies and self._storage.copies):
            return None
        return LocalFolders(self._storage.job_id, config.local_dirs)

    def _run(self) -> SimulationResult:
        self._staff.driver.start()
        while self._goes_on() and not self._stopped():
            self._count_step()
            try:
                self._maybe_crash()
                self._maybe_save()
                driver = self._staff.driver
                if self._rescales.maybe_ask(driver, self._result.steps):
                    self._even.disturbed()
                if self._rescales.maybe_grow(driver):
                    self._even.disturbed()
                self._turn()
            except _CoordinatorDied:
                self._replace_coordinator()
            self._rescales.look(self._staff.driver)
            if self._watch is not None:
                self._watch.stepped()
            self._client.step()
        self._ask_again()
        self._result.last_checkpoint = self._staff.driver.checkpoints().latest_completed
        for staff in self._stage.all:
            staff.close()
        self._result.hanging = self._staff.driver.errands.hanging
        cut_off = [staff.driver for staff in self._stage.cut_off]
        self._result.cut_off = [driver.outcome() for driver in cut_off if driver.ended]
        self._result.late = self._late.crashed
        if self._asked:
            raise SimulationError(
                f"seed {self._plan.seed}: {self._asked} requests for savepoints were not answered"
            )
        if self._staff.driver.ended:
            self._result.outcome = outcome = self._staff.driver.outcome()
            wrong = self._client.finished() if outcome.status is JobStatus.FINISHED else None
            if wrong is not None:
                raise SimulationError(f"seed {self._plan.seed}: {wrong}")
        return self._result

    # --- the schedule ----------------------------------------------------------------------

    def _turn(self) -> None:
        """One unit steps; sometimes time passes."""
        plan = self._plan
        schedule: Schedule = self._even
        if plan.choices is not None and self._result.steps > plan.choices:
            schedule = self._turns
        elif plan.brisk and not self._stage.is_shared(self._clock.now_ms()):
            schedule = self._brisk
            self._even.disturbed()
        if schedule is not self._brisk:
            self._brisk.disturbed()
        try:
            schedule.turn()
        except Stuck as stuck:
            raise SimulationError(
                f"seed {plan.seed}: the job hangs in {self._staff.driver.state.value} after "
                f"{self._result.steps} steps: {stuck}\n{self._picture()}"
            ) from None

    def _goes_on(self) -> bool:
        return not self._staff.driver.ended or self._stage.is_shared()

    def _step_worker(self, step: Unit) -> bool:
        errands = self._staff.driver.errands
        before = errands.published
        did = step()
        if self._doomed and errands.published > before:
            raise _CoordinatorDied
        return did

    def _count_step(self) -> None:
        self._result.steps += 1
        if self._result.steps > self._plan.max_steps:
            raise SimulationError(
                f"seed {self._plan.seed}: not over after {self._plan.max_steps} steps\n"
                f"{self._picture()}"
            )

    def _picture(self) -> str:
        tasks = self._staff.cluster.tasks.values()
        lines = (f"  {r.task.deployment.label}: {r.task.state.value}" for r in tasks)
        return "\n".join([f"  {self._staff.driver.troubles}", *lines])

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
            self._halts_asked += 1
            self._result.stopped_midway |= self._note_midway()
            self._ask("halt")

    def _ask_again(self) -> None:
        """Who asked for a stop and was not told of it asks once more, now that the job is over."""
        asked = self._halts_asked and self._result.halted_at is None
        if asked and self._staff.driver.ended:
            self._ask("halt")

    def _ask(self, stop: Stop | None) -> None:
        self._asked += 1
        self._staff.driver.savepoint(
            self._plan.savepoint_directory, stop, partial(self._told, stop)
        )
        self._even.disturbed()

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
        if self._amid and self._staff.driver.rescaling and self._chance.random() < 0.04:
            self._amid -= 1
            if self._chance.random() < 0.5:
                self._crash_one()
            else:
                self._replace_coordinator()
        if self._at_stop and self._halting and self._fate.random() < 0.03:
            self._at_stop -= 1
            if not self._staff.driver.ended:
                self._replace_coordinator()
        if self._cut_off_steps and self._result.steps >= self._cut_off_steps[0]:
            self._cut_off_steps.pop(0)
            if not self._staff.driver.ended:
                self._take_for_dead()
        if self._late.is_due(self._staff, self._result.steps):
            self._overtake()
        if self._late.crash(self._stage):
            self._even.disturbed()
        if self._coordinator_steps and self._result.steps >= self._coordinator_steps[0]:
            self._coordinator_steps.pop(0)
            if self._rng.random() < 0.5:
                self._doomed = True
            else:
                self._replace_coordinator()

    def _crash_one(self) -> None:
        alive = [t for t, r in self._staff.cluster.tasks.items() if not r.task.state.over]
        if not alive:
            return
        task: TaskId = self._rng.choice(sorted(alive))
        self._note_midway()
        attempt = self._staff.cluster.crash(task)
        self._result.crashed += 1
        self._staff.driver.on_task_lost(task, attempt, "crashed by the simulator")
        self._even.disturbed()

    def _replace_coordinator(self) -> None:
        """The coordinator's process dies, and its tasks with it or not; another starts on the
        storage."""
        self._note_midway()
        self._before += self._staff.driver.checkpoints().completed
        self._result.coordinators_crashed += 1
        if self._rng.randrange(100) < self._plan.tasks_stay:
            self._result.taken_over += 1
            self._staff.driver.close()
            self._replace_staff(self._staff)
            return
        self._staff.close()
        self._replace_staff()

    def _take_for_dead(self) -> None:
        """Another coordinator starts, and the one before knows of nothing."""
        self._before += self._staff.driver.checkpoints().completed
        cut_off = self._stage.cut_off
        cut_off.append(self._staff)
        away_ms = self._rng.randint(0, self._plan.away) if self._plan.away else 0
        self._staff.back_at_ms = self._clock.now_ms() + away_ms
        job_id = f"{self._result.job_id}-{len(cut_off)}"
        self._graph, self._storage = another_start(self._graph, self._storage, job_id, self._rng)
        if self._storage.job_id == job_id:
            self._client = SimulatedClient(self._graph, self._plan.seed)
            self._rescales.forget()
        self._replace_staff()

    def _overtake(self) -> None:
        """The coordinator's process dies, who comes for it is held up, and another takes over."""
        self._note_midway()
        former = self._staff
        self._before += former.driver.checkpoints().completed
        self._result.coordinators_crashed += 1
        self._result.taken_over += 1
        former.driver.close()
        storage = self._storage
        if storage.shares:  # as another process has it
            self._storage = copy(storage)
        late = self._employ(former, late=True)
        self._storage = storage
        late.driver.start()
        self._late.hold_up(late, self._stage)
        self._replace_staff(former)

    def _note_midway(self) -> bool:
        reading = any(r.task.state is TaskState.RUNNING for r in self._staff.cluster.tasks.values())
        midway = reading and (self._plan.continues or self._completed() > 0)
        self._result.midway += midway
        return midway

    def _completed(self) -> int:
        return self._before + self._staff.driver.checkpoints().completed

    def _stopped(self) -> bool:
        limit = self._plan.stop_after_checkpoint
        if limit is None or self._completed() < limit:
            return False
        self._result.stopped_midway = self._note_midway()
        return True

    def _publish(self, desk: Desk, operator: OperatorId, key: str, value: Any) -> None:
        """Coordinators know what they published themselves; here is what the client has seen."""
        desk.publish(operator, key, value)
        value = opened(value, "published records")
        seen = self._result.published.setdefault(operator, {})
        known = seen.setdefault(key, value)
        if known is not value and repr(known) != repr(value):
            raise SimulationError(
                f"seed {self._plan.seed}: operator {operator} published two values under the key "
                f"'{key}': {known!r} and {value!r}"
            )


class SimulatedJob(SavepointCalls, RescaleCalls, ShownJob):
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

    def _rescale(self, wanted: Wanted) -> CompletableFuture[RescaleResult]:
        return not_rescaled(self._outcome.name, f"the job is {self._outcome.status.value}")

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

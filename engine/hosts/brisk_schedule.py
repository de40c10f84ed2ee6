"""The schedule of fewer steps: who had nothing to do is left out until it may have heard of
something, and time passes once all are. Crashes by steps come sooner in a job's life, then, and
other interleavings are met than in the even schedule."""

from __future__ import annotations

from typing import Any

from ...core.ids import TaskId
from ..task.background import SteppedBackground
from ..task.task import Task
from .schedules import Neighbours, Stage, all_units, sweep
from .simulated_staff import Worker


class BriskSchedule:
    """Of one coordinator and its tasks: who is cut off never steps here. `slow_tasks`: so many of a
    hundred tasks are seldom given a step."""

    def __init__(self, stage: Stage, slow_tasks: int) -> None:
        self._stage = stage
        self._slow_tasks = slow_tasks
        self._resting: set[Any] = set()
        """Who had nothing to do, and has not heard of anything since."""
        self._neighbours = Neighbours()
        self._fruitless = 0
        """How often in a row time passed and nobody did anything."""
        self._slow: dict[TaskId, bool] = {}
        """Whether a task is drawn to be slow, once that was asked."""

    def disturbed(self) -> None:
        """Something has happened besides: who had nothing to do may have something."""
        self._resting.clear()

    def turn(self) -> None:
        """One of those steps that may have something to do."""
        rng, resting = self._stage.rng, self._resting
        ready = self._awake()
        if not ready:
            self._pass_time()
            return
        if self._slow_tasks and rng.random() < 0.9:
            ready = [one for one in ready if not self._is_slow(one)] or ready
        one = ready[int(rng.random() * len(ready))]
        if not self._step(one):
            resting.add(one)
        else:
            self._fruitless = 0
            if isinstance(one, Task) and resting:
                resting.difference_update(self._neighbours.stirred(one, [self._stage.staff]))
        if rng.random() < 0.03:
            self._advance(1 + int(rng.random() * 2))

    def _awake(self) -> list[Any]:
        """Who may have something to do: tasks, their writers, workers, and the driver."""
        resting, staff = self._resting, self._stage.staff
        driver = staff.driver
        ready: list[Any] = [w for w in staff.workers if w not in resting and w.busy]
        for running in staff.cluster.tasks.values():
            task, writer = running.task, running.background
            if task not in resting or task.has_mail:
                ready.append(task)
            if writer not in resting and isinstance(writer, SteppedBackground) and writer.busy:
                ready.append(writer)
        if driver not in resting or staff.cluster.reports or driver.errands.answered:
            ready.append(driver)
        return ready

    def _step(self, one: Any) -> bool:
        staff = self._stage.staff
        if one is staff.driver:
            first, second = staff.driver.take_answer, staff.step_driver
            if self._stage.rng.random() < 0.5:
                first, second = second, first
            return first() or second()
        did: bool = one.unit() if isinstance(one, Worker) else one.step()
        return did

    def _pass_time(self) -> None:
        """Nobody has anything to do now."""
        self._fruitless += 1
        if self._fruitless % 3:
            due = self._stage.deadlines()
            if due:
                self._advance(max(1, round(min(due) * 1000)))
                return
        self._resting.clear()
        sweep(self._stage, all_units(self._stage))

    def _advance(self, ms: int) -> None:
        """Time passes; whoever waited for it may step."""
        self._stage.clock.advance_ms(ms)
        resting, staff = self._resting, self._stage.staff
        resting.discard(staff.driver)
        for running in staff.cluster.tasks.values():
            if running.task in resting:
                due = running.task.next_deadline()
                if due is not None and due <= 0:
                    resting.discard(running.task)
        resting.difference_update([w for w in staff.workers if w.busy])
        resting.difference_update([r.background for r in staff.cluster.tasks.values()])

    def _is_slow(self, one: Any) -> bool:
        """Whether it is a task that is drawn to be slow."""
        if not isinstance(one, Task):
            return False
        name = one.deployment.task
        if name not in self._slow:
            self._slow[name] = self._stage.rng.randrange(100) < self._slow_tasks
        return self._slow[name]

"""Who steps next in a simulation, and when time passes.

Each is as likely as any other, and time passes with each turn, whether there was anything to do or
not: a job that waits is interrupted as often as one that works. A task that had nothing to do is
not asked again before it may have something: its turns pass, as if it had been.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any, Protocol

from ...core.clock import VirtualClock
from ...core.errors import StromError
from ...core.ids import TaskId
from ..task.background import SteppedBackground
from ..task.deployment import TaskDeployment
from ..task.task import Task
from .simulated_staff import Staff, Unit


class Stuck(StromError):
    """Nobody has anything to do or anything to wait for."""


@dataclass
class Stage:
    """Who may step. `cut_off`: what was taken for dead and goes on all the same."""

    rng: Random
    clock: VirtualClock
    staff: Staff
    cut_off: list[Staff] = field(default_factory=list)

    @property
    def all(self) -> list[Staff]:
        """In the order in which they began."""
        return [*self.cut_off, self.staff]

    def is_shared(self, now_ms: float = inf) -> bool:
        """Whether one of those that were taken for dead goes on by then, or will."""
        if not self.cut_off:
            return False
        return any(not one.driver.ended and one.back_at_ms <= now_ms for one in self.cut_off)

    def deadlines(self) -> list[float]:
        """Seconds until somebody has something to do by itself."""
        found: list[float | None] = []
        for one in self.all:
            away_ms = one.back_at_ms - self.clock.now_ms()
            found += [away_ms / 1000.0] if away_ms > 0 else one.deadlines()
        return [due for due in found if due is not None]

    def pass_time(self) -> bool:
        """Until then; whether there is such a time."""
        known = self.deadlines()
        if known:
            self.clock.advance_ms(max(1, round(min(known) * 1000)))
        return bool(known)


def units_of(staff: Staff, workers: Sequence[Unit]) -> list[Any]:
    """Who may step next of those: tasks, and what else does steps."""
    units: list[Any] = []
    if not staff.driver.ended:
        units += [staff.step_driver, staff.driver.take_answer]
    units += workers
    for running in staff.cluster.tasks.values():
        units.append(running.task)
        background = running.background
        if isinstance(background, SteppedBackground) and background.busy:
            units.append(background.step)
    return units


def all_units(stage: Stage) -> list[Any]:
    """Everything that may step next."""
    staff = stage.staff
    units = units_of(staff, [worker.unit for worker in staff.workers if worker.busy])
    for one in stage.cut_off:
        if not one.driver.ended and stage.clock.now_ms() >= one.back_at_ms:
            units += units_of(one, [worker.step for worker in one.workers if worker.busy])
    return units


def step(unit: Any) -> bool:
    """Whether there was anything to do."""
    did: bool = unit.step() if isinstance(unit, Task) else unit()
    return did


def sweep(stage: Stage, units: Sequence[Any]) -> None:
    """Nothing seems to happen: let each unit step once, and if none has work, let time pass."""
    if not sum([step(unit) for unit in units]) and not stage.pass_time():
        raise Stuck("nothing to do and nothing to wait for")


class Neighbours:
    """Who exchanges records with whom."""

    def __init__(self) -> None:
        self._known: dict[TaskId, tuple[TaskDeployment, list[TaskId]]] = {}
        """As each task was deployed last: a rescale changes whom it is connected with."""

    def stirred(self, task: Task, staffs: Sequence[Staff]) -> Iterator[Task]:
        """Those that have got something from the task, or may send again. Mail is looked at
        anyway."""
        near = self._near(task)
        for staff in staffs:
            for name in near:
                running = staff.cluster.tasks.get(name)
                if running is not None and running.endpoint.stirs:
                    yield running.task

    def _near(self, task: Task) -> list[TaskId]:
        d = task.deployment
        known = self._known.get(d.task)
        if known is None or known[0] is not d:
            names = {c.source for c in d.inputs} | {c.target for c in d.outputs}
            known = self._known[d.task] = d, sorted(names - {d.task})
        return known[1]


class Schedule(Protocol):
    def turn(self) -> None:
        """One unit steps; sometimes time passes. Raises what a unit does, and Stuck."""
        ...


class EvenSchedule:
    """As above. `_resting`: tasks whose last step did nothing, and that have heard of nothing
    since; that somebody has mail is looked at when it is its turn."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._units: list[Any] = []
        """Tasks, and what else may step; empty: to be found out."""
        self._tasks: list[Task] = []
        """When that was found out last."""
        self._resting: dict[Task, float] = {}
        """Until when, in ms, if nothing happens."""
        self._neighbours = Neighbours()
        self._idle = 0
        """Fruitless choices in a row."""

    def turn(self) -> None:
        units, rng = self._units or self._find_units(), self._stage.rng
        self._idle = 0 if units and self._step(rng.choice(units)) else self._idle + 1
        if rng.random() < 0.05:
            self._stage.clock.advance_ms(rng.randrange(3))
        if self._idle > 6 * len(units):
            self._idle = 0
            self._sweep(units)

    def disturbed(self) -> None:
        """Something has happened besides: who had nothing to do may have something."""
        self._units = []
        self._resting.clear()

    def _find_units(self) -> list[Any]:
        units = all_units(self._stage)
        tasks = [unit for unit in units if isinstance(unit, Task)]
        if tasks != self._tasks:
            self._resting.clear()  # whom others may send to is another
        self._units, self._tasks = units, tasks
        return units

    def _step(self, unit: Any) -> bool:
        if not isinstance(unit, Task):
            did: bool = unit()
        elif self._rests(unit):
            return False
        else:
            did = unit.step()
            if not did:
                due, now = unit.next_deadline(), self._stage.clock.now_ms()
                self._resting[unit] = inf if due is None else now + int(due * 1000)
            elif self._resting:
                self._resting.pop(unit, None)
                for task in self._neighbours.stirred(unit, self._stage.all):
                    self._resting.pop(task, None)
        if did:
            self._units = []
        return did

    def _rests(self, task: Task) -> bool:
        """Whether a step of the task would do nothing."""
        until = self._resting.get(task)
        return until is not None and not task.has_mail and until > self._stage.clock.now_ms()

    def _sweep(self, units: Sequence[Any]) -> None:
        """Nothing seems to happen: let each step once, and if none has work, let time pass."""
        if sum([self._step(unit) for unit in units]):
            return
        if not self._stage.pass_time():
            sweep(self._stage, units)


class TakingTurns:
    """One after the other: nothing is drawn."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._turns = 0
        self._idle = 0
        """Fruitless turns in a row."""

    def turn(self) -> None:
        units = all_units(self._stage)
        self._turns += 1
        did = bool(units) and step(units[self._turns % len(units)])
        self._idle = 0 if did else self._idle + 1
        if self._idle > len(units):
            self._idle = 0
            sweep(self._stage, units)

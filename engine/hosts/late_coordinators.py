"""Coordinators of a simulated job that are held up before they have begun, while others come: they
come through behind these, and crash then. Draws from a generator of its own."""

from __future__ import annotations

from random import Random

from .schedules import Stage
from .simulated_staff import Staff
from .simulation_plan import SimulationPlan


class LateCoordinators:
    """Of one simulation."""

    def __init__(self, plan: SimulationPlan) -> None:
        self._rng = Random(f"late-{plan.seed}")
        self._away = plan.away
        self._steps = sorted(self._rng.randrange(plan.crash_window) for _ in range(plan.late))
        self._held: list[Staff] = []
        """Those that have not crashed."""
        self.crashed = 0

    def is_due(self, staff: Staff, steps: int) -> bool:
        """Whether the next one is to be held up, in place of `staff`, whose job runs."""
        if not self._steps or steps < self._steps[0] or staff.driver.ended:
            return False
        if not staff.cluster.tasks:  # it may not have begun itself
            return False
        self._steps.pop(0)
        return True

    def hold_up(self, staff: Staff, stage: Stage) -> None:
        """It has just been employed, and started."""
        staff.back_at_ms = stage.clock.now_ms() + self._rng.randint(0, self._away)
        self._held.append(staff)
        stage.cut_off.append(staff)

    def crash(self, stage: Stage) -> bool:
        """Those that have come through do, sooner or later; whether one does now."""
        through = [one for one in self._held if one.back_at_ms <= stage.clock.now_ms()]
        if not through or self._rng.random() >= _AT_ONCE:
            return False
        self._held.remove(through[0])
        stage.cut_off.remove(through[0])
        through[0].close()
        self.crashed += 1
        return True


_AT_ONCE = 0.02
"""How probable that is in each step."""

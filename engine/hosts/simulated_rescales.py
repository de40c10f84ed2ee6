"""Rescales of a simulated job: when it is asked for which, and what of it outlives coordinators."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ...core.job_status import JobStatus
from ..coordinator.rescale_figures import RescaleFigures
from ..graph.rescaling import Widths
from .asked_rescales import Wanted
from .driver import JobDriver, Keep
from .simulated_staff import Worker
from .simulation_plan import SimulationPlan, SimulationResult

MOST = 3
"""Nothing gets a greater parallelism."""


class SimulatedRescales:
    """Of one simulation, over all its coordinators."""

    def __init__(self, plan: SimulationPlan, result: SimulationResult) -> None:
        self._rng = rng = random.Random(f"rescales-{plan.seed}")
        self._steps = sorted(rng.randrange(plan.crash_window) for _ in range(plan.rescales))
        self._active = plan.rescales > 0
        self._result = result
        self.widths: Widths | None = None
        self.former: Widths | None = None
        """What a coordinator begins with that comes now."""

    def forget(self) -> None:
        """It is another job from now on."""
        self.widths = self.former = None

    def keeper(self, hire: Callable[[str], Worker], driver: Callable[[], JobDriver]) -> Keep | None:
        """Of one coordinator: it takes its time, as its other workers do."""
        if not self._active:
            return None
        worker = hire("record")

        def keep(widths: Widths, former: Widths | None) -> None:
            def write() -> None:
                self.widths, self.former = widths, former

            worker.submit(write, lambda _, error: driver().on_graph_kept())

        return keep

    def maybe_ask(self, driver: JobDriver, step: int) -> bool:
        """Whether it is time to, and the job runs."""
        if not self._steps or step < self._steps[0] or driver.state is not JobStatus.RUNNING:
            return False
        if self._rng.random() < 0.9:
            return False
        self._steps.pop(0)
        driver.rescale(self._draw(driver), self._told)
        return True

    def _draw(self, driver: JobDriver) -> Wanted:
        parallelism = self._rng.randint(1, MOST)
        wide: list[Any] = [v for v in driver.graph.job.vertices if v.parallelism > 1]
        if not wide or self._rng.random() < 0.6:
            return parallelism
        return {str(self._rng.choice(wide).operators[0].operator_id): parallelism}

    def _told(self, figures: RescaleFigures | None, error: str | None) -> None:
        if error is not None:
            self._result.not_rescaled.append(error)
        elif figures is not None and figures.after:
            self._result.rescaled += 1

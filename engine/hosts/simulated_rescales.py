"""Rescales of a simulated job: when it is asked for which, by others and by itself, when there is
too little room for it and when more, and what of it outlives coordinators."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...autoscaling.samples import Sample
from ...autoscaling.shape import Shape, Vertex
from ...autoscaling.verdicts import Decision, Reason, Verdict
from ...core.autoscaler_config import AutoscalerConfig
from ...core.errors import GraphError
from ...core.ids import Deal, VertexId
from ...core.job_status import JobStatus
from ...state.key_group_deals import as_deal, deal
from ..coordinator.askers import Asker
from ..coordinator.handover import Handover
from ..coordinator.rescale_figures import RescaleFigures
from ..graph.model import JobGraph
from ..graph.rescaling import Widths, dealt, limited, moved, together, widest
from .cluster import LittleRoomError
from .driver import JobDriver, Keep
from .own_rescales import MakeScaler
from .simulated_staff import Worker
from .simulation_plan import SimulationPlan, SimulationResult

MOST = 3
"""Nothing gets a greater parallelism."""


class SimulatedRescales:
    """Of one simulation, over all its coordinators."""

    def __init__(self, plan: SimulationPlan, result: SimulationResult, planned: JobGraph) -> None:
        self._planned = planned
        self._rng = rng = random.Random(f"rescales-{plan.seed}")
        self._steps = sorted(rng.randrange(plan.crash_window) for _ in range(plan.rescales))
        self._deals = random.Random(f"deals-{plan.seed}")
        self._uneven = plan.deals
        self._room = random.Random(f"room-{plan.seed}")
        self._shortages = plan.shortages
        """So often there will be too little room."""
        self._whims = random.Random(f"whims-{plan.seed}")
        self.left = plan.own_rescales
        """So often the job is still rescaled by a whim."""
        self._by_whim = self.left > 0
        self._active = plan.rescales > 0 or plan.shortages > 0 or self._by_whim
        self._result = result
        self._kept: Handover[Widths] = Handover()
        """What was written down last."""
        self._last: RescaleFigures | None = None
        """The last that went well."""

    def forget(self) -> None:
        """It is another job from now on."""
        self._kept = Handover()

    def left_by(self, driver: JobDriver | None) -> Handover[Widths]:
        """What a coordinator begins with that comes now, behind this one."""
        if driver is None:
            return replace(self._kept, failed=(), restarts=0)
        return replace(self._kept, failed=driver.failed, restarts=driver.restarts)

    def keeper(self, hire: Callable[[str], Worker], driver: Callable[[], JobDriver]) -> Keep | None:
        """Of one coordinator: it takes its time, as its other workers do."""
        if not self._active:
            return None
        worker = hire("record")

        def keep(left: Handover[Widths]) -> None:
            def write() -> None:
                self._kept = left

            worker.submit(write, lambda _, error: driver().on_graph_kept())

        return keep

    def make_scaler(self, driver: Callable[[], JobDriver]) -> MakeScaler | None:
        """Of one coordinator: figures of a simulation say nothing."""
        if not self._by_whim:
            return None

        def make(config: AutoscalerConfig, shape: Shape) -> Whims:
            return Whims(self, shape, driver, self._whims)

        return make

    def count_own(self) -> None:
        """The job was rescaled by itself."""
        self.left -= 1
        self._result.rescaled_itself += 1

    def check_room(self, driver: JobDriver) -> None:
        """Tasks are to be started: LittleRoomError if there is room for fewer now."""
        job = driver.graph.job
        most = widest(self._planned, job)
        if self._shortages and most > 1 and self._room.random() < 0.4:
            self._shortages -= 1
            self._result.shrunk += 1
            smaller = limited(self._planned, job, self._room.randrange(1, most))
            raise LittleRoomError(smaller, "the nodes are full")

    def maybe_grow(self, driver: JobDriver) -> bool:
        """Whether there is more room now than it has, and the job runs."""
        job, wanted = driver.graph.job, driver.wanted
        if job is wanted or driver.state is not JobStatus.RUNNING:
            return False
        few, most = widest(self._planned, job), widest(self._planned, wanted)
        if few >= most or self._room.random() < 0.95:
            return False
        grown = limited(self._planned, wanted, self._room.randint(few + 1, most))
        driver.rescale(grown, self._grown, Asker.ROOM)
        return True

    def _grown(self, figures: RescaleFigures | None, error: str | None) -> None:
        self._result.grown += error is None

    def maybe_ask(self, driver: JobDriver, step: int) -> bool:
        """Whether it is time to, and the job runs."""
        if not self._steps or step < self._steps[0] or driver.state is not JobStatus.RUNNING:
            return False
        if self._rng.random() < 0.9:
            return False
        self._steps.pop(0)
        wanted = self._draw(driver)
        deals = self._uneven > 0 and self._deals.randrange(100) < self._uneven
        uneven = self._deal(driver.graph.job, wanted) if deals else None
        driver.rescale(uneven or wanted, partial(self._told, uneven is not None))
        return True

    def _draw(self, driver: JobDriver) -> int | dict[str, int]:
        parallelism = self._rng.randint(1, MOST)
        wide: list[Any] = [v for v in driver.graph.job.vertices if v.parallelism > 1]
        if not wide or self._rng.random() < 0.6:
            return parallelism
        return {str(self._rng.choice(wide).operators[0].operator_id): parallelism}

    def _deal(self, now: JobGraph, wanted: int | dict[str, int]) -> JobGraph | None:
        """What is wanted with key groups dealt by any loads; None: it cannot be."""
        try:
            base = now if self._deals.random() < 0.5 else moved(self._planned, now, wanted)
            deals = dict[VertexId, Deal]()
            for group in together(base):
                width, groups = group[0].parallelism, group[0].max_parallelism
                if self._deals.random() < 0.8:
                    loads = [self._deals.randrange(100) ** 3 for _ in range(groups)]
                    drawn = as_deal(deal(loads, width))
                    deals.update((vertex.id, drawn) for vertex in group)
            return dealt(self._planned, base, deals)
        except GraphError:
            return None

    def _told(self, uneven: bool, figures: RescaleFigures | None, error: str | None) -> None:
        if error is not None:
            self._result.not_rescaled.append(error)
        elif figures is not None and figures.running_ms:
            self._result.rescaled += 1
            self._result.dealt += uneven

    def look(self, driver: JobDriver) -> None:
        """Whether another rescale went well, whoever was told."""
        last = driver.last_rescale
        if last is not None and last is not self._last:
            self._last = last
            self._result.rescaled_in_part += last.kept_tasks > 0
            self._result.rescaled_holding += last.held_tasks > 0


class Whims:
    """The autoscaler of a simulated coordinator, as of `steering.Scaler`: it wants anything that
    the job may have, now and then, and asserts that it is told of what becomes of that."""

    def __init__(
        self,
        rescales: SimulatedRescales,
        shape: Shape,
        driver: Callable[[], JobDriver],
        rng: random.Random,
    ) -> None:
        self._rescales = rescales
        self._shape = shape
        self._driver = driver
        self._rng = rng
        self._wanted: Mapping[VertexId, int] | None = None
        """What is being carried out; None: nothing."""
        self._attempt = -1

    def observe(self, sample: Sample) -> Decision:
        assert self._wanted is None, "a look while the job is rescaled"
        assert sample.attempt == self._attempt, (sample.attempt, self._attempt)
        verdicts: list[Verdict] = []
        if self._rescales.left > 0 and self._rng.random() < 0.9:
            for group in self._shape.together:
                if not any(vertex.fixed for vertex in group) and self._rng.random() < 0.6:
                    verdicts += self._wish(group, self._rng.randint(1, MOST))
        return Decision(sample.at_s, tuple(verdicts))

    def _wish(self, group: tuple[Vertex, ...], after: int) -> list[Verdict]:
        now = self._widths()
        return [Verdict(v.id, v.name, Reason.UP, now[v.id], after) for v in group]

    def rescaling(self, at_s: float, decision: Decision) -> None:
        assert self._wanted is None
        self._wanted = decision.changes

    def began(self, at_s: float, attempt: int) -> None:
        assert attempt > self._attempt, (attempt, self._attempt)
        self._attempt = attempt
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            # It may have shrunk since, where a part of it failed for which there is less room.
            made = _widths_of(self._driver().wanted)
            assert {vertex: made[vertex] for vertex in wanted} == wanted, (made, wanted)
            self._rescales.count_own()

    def failed(self, at_s: float, why: str) -> None:
        assert self._wanted is not None
        self._wanted = None

    def _widths(self) -> dict[VertexId, int]:
        return _widths_of(self._driver().graph.job)


def _widths_of(job: JobGraph) -> dict[VertexId, int]:
    return {VertexId(str(vertex.id)): vertex.parallelism for vertex in job.vertices}

"""Rescales that somebody waits for: what is wanted of the job, and who is told."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...core.errors import StromError
from ...core.ids import CheckpointId
from ...state.key_group_deals import Balance
from ..coordinator.askers import Asker
from ..coordinator.rescale_figures import RescaleFigures
from ..graph.execution import build_execution_graph
from ..graph.model import ExecutionGraph, JobGraph
from ..graph.rescaling import moved, shape_of
from .balancing import Balanced, Reports, balanced

log = logging.getLogger("strom")

RescaleAnswer = Callable[[RescaleFigures | None, str | None], None]
"""Called once, with what came of it or the reason why nothing did."""


Wanted = int | Mapping[str, int] | Balanced | JobGraph
"""As of `graph.rescaling.moved`, with key groups dealt by load, or what the job is to become."""


@dataclass(frozen=True)
class Asked:
    """What the job is to become. `balance`: as of `RescaleFigures`."""

    request: int
    graph: ExecutionGraph
    asker: Asker
    balance: Mapping[str, Balance]


class AskedRescales:
    """Of one job. Used from the driver's thread, on which answers are given."""

    def __init__(self, planned: JobGraph) -> None:
        """`planned`: as its program made it."""
        self.planned = planned
        self._wanted: deque[tuple[Wanted, RescaleAnswer, Asker]] = deque()
        """What the job master does not know of, the oldest first."""
        self._waiting: dict[int, RescaleAnswer] = {}
        """Requests that it knows of and that are not answered."""
        self._requests = 0
        """Made so far; only grows."""

    def want(self, wanted: Wanted, answer: RescaleAnswer, asker: Asker) -> None:
        """To be asked for with a later `next`."""
        self._wanted.append((wanted, answer, asker))

    def next(self, now: JobGraph, reports: Reports) -> Asked | None:
        """The oldest that is wanted. `now`: what the job is; None: it cannot be, or is that already
        and stays so, as was answered. `reports`: what its tasks told last."""
        wanted, answer, asker = self._wanted.popleft()
        try:
            made, balance = self._made(wanted, now, reports)
            graph = build_execution_graph(made)
        except Exception as error:  # the job goes on whatever was asked of it
            if not isinstance(error, StromError):
                log.exception("a rescale could not be worked out")
            answer(None, f"not rescaled: {error}")
            return None
        if shape_of(made) == shape_of(now) and not self._waiting:
            answer(RescaleFigures({}, {}, CheckpointId(0), 0, 0, 0, balance=balance), None)
            return None
        self._requests += 1
        self._waiting[self._requests] = answer
        return Asked(self._requests, graph, asker, balance)

    def _made(
        self, wanted: Wanted, now: JobGraph, reports: Reports
    ) -> tuple[JobGraph, Mapping[str, Balance]]:
        if isinstance(wanted, JobGraph):
            return wanted, {}
        if isinstance(wanted, Balanced):
            return balanced(self.planned, now, wanted, reports)
        return moved(self.planned, now, wanted), {}

    def answer(self, request: int, figures: RescaleFigures | None, error: str | None) -> None:
        """The job master's."""
        self._waiting.pop(request)(figures, error)

    def refuse_all(self, why: str) -> None:
        """The job is over."""
        wanted, self._wanted = self._wanted, deque()
        waiting, self._waiting = self._waiting, {}
        for answer in [*waiting.values(), *(answer for _, answer, _ in wanted)]:
            answer(None, f"not rescaled: {why}")

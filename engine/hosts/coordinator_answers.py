"""What a coordinator on Ray answers, and is given, beside plain values: as others see it, who have
no need of its class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...core import code_pickles
from ..graph.model import JobGraph
from ..graph.rescaling import rescaled
from ..graph.slots import Bundle, bundles_of
from .job_outcome import JobOutcome
from .job_view import JobView


def coordinator_name(job_id: str) -> str:
    """The actor's name in the namespace `strom`."""
    return f"strom-job-{job_id}"


def job_of(coordinator: str) -> str:
    """The job whose coordinator has this name."""
    return coordinator.removeprefix(coordinator_name(""))


@dataclass(frozen=True)
class Rescaled:
    """What a job is started from at another parallelism, and what each of its slots takes."""

    payload: bytes
    """The pickled job graph."""
    bundles: list[Bundle]
    spread: bool = False
    """Whether they lie on as many machines as Ray can."""


@dataclass(frozen=True)
class Followed:
    """What a session is told: the last savepoints, with the time (ms) since when they are complete;
    of a job that is over also how it ended, and its last view, if there is one. `term`: of the
    coordinator that tells it, whose first savepoint is the first that is counted. `added`: what the
    job's slots take beside those that it began with, by Ray's names. `lacks`: whether it would take
    more at once, if there were room."""

    savepoints: list[tuple[str, int]]
    outcome: JobOutcome | None = None
    view: JobView | None = None
    term: int = 0
    added: Mapping[str, float] = field(default_factory=dict)
    lacks: bool = False


Farewell = Callable[[JobOutcome], None]
"""Keeps how a job ended, but no accumulators, where it outlives its coordinator; raises nothing."""


def rescaled_job(job: JobGraph, parallelism: int) -> Rescaled:
    """The job at another parallelism. GraphError."""
    graph = rescaled(job, parallelism)
    return Rescaled(code_pickles.dumps(graph), bundles_of(graph), graph.config.spread_slots)

"""How a job ended, and what the program that asks is told of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...api.jobs.accumulator_results import AccumulatorResults, Part
from ...api.jobs.host import JobExecutionResult
from ...core.answered import Timeout, seconds_of
from ...core.errors import JobCancelledError, JobFailedError
from ...core.job_status import JobStatus
from ..exchange.pickling import opened


@dataclass(frozen=True)
class JobOutcome:
    """How a job ended. `net_runtime_ms`: from the first moment all tasks ran to the end.
    `stopped_with`: where the savepoint is that it was stopped with, None: it ended otherwise."""

    job_id: str
    name: str
    status: JobStatus
    error: str | None
    net_runtime_ms: float
    checkpoints: int
    restarts: int
    metrics: dict[str, Any]
    accumulators: Sequence[Part] = ()
    stopped_with: str | None = None

    @property
    def figures(self) -> dict[str, Any]:
        """What registries keep of it beside whose it is, `status`, `error` and `accumulators`: for
        JSON, as far as what users put into metrics is."""
        return {
            "metrics": self.metrics,
            "net_runtime_ms": self.net_runtime_ms,
            "checkpoints": self.checkpoints,
            "restarts": self.restarts,
        }

    @classmethod
    def kept(
        cls,
        job_id: str,
        name: str,
        status: JobStatus,
        error: str | None,
        figures: Mapping[str, Any],
        accumulators: Sequence[Part] = (),
    ) -> JobOutcome:
        """That of which these `figures` were kept, or a part of them."""
        return cls(
            job_id,
            name,
            status,
            error,
            figures.get("net_runtime_ms", 0.0),
            figures.get("checkpoints", 0),
            figures.get("restarts", 0),
            figures.get("metrics", {"state": status.value}),
            accumulators,
        )


def accumulator_results(parts: Sequence[Part]) -> AccumulatorResults:
    """What tasks sent, for the program that asks."""
    return AccumulatorResults(parts, lambda sealed: opened(sealed, "accumulators"))


def result_of(outcome: JobOutcome) -> JobExecutionResult:
    """The result of a finished job. Raises JobFailedError or JobCancelledError for others."""
    match outcome.status:
        case JobStatus.FINISHED:
            return JobExecutionResult(
                outcome.job_id,
                outcome.net_runtime_ms,
                outcome.checkpoints,
                outcome.restarts,
                outcome.metrics,
                accumulator_results(outcome.accumulators),
            )
        case JobStatus.CANCELED:
            raise JobCancelledError(f"job '{outcome.name}' ({outcome.job_id}) was cancelled")
        case _:
            raise JobFailedError(
                f"job '{outcome.name}' ({outcome.job_id}) failed: {outcome.error or 'no cause'}"
            )


def deadline_of(timeout: Timeout) -> float | None:
    """When a wait that begins now is over, by `time.monotonic`; None: never."""
    seconds = seconds_of(timeout)
    return None if seconds is None else time.monotonic() + seconds

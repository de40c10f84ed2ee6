"""What the hosts' clients have in common where a running job is rescaled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import timedelta

from ...api.jobs.host import RescaleResult
from ...core.answered import CompletableFuture, Promise
from ...core.checks import check_kind
from ...core.errors import ConfigurationError, RescaleError
from ..coordinator.rescale_figures import RescaleFigures
from .asked_rescales import Wanted
from .balancing import Balanced


class RescaleCalls(ABC):
    """The call of a job's client, over one that its host answers."""

    def rescale(
        self, parallelism: int | Mapping[str, int], *, balance: bool = False
    ) -> CompletableFuture[RescaleResult]:
        check_kind("parallelism", parallelism, int, Mapping)
        check_kind("balance", balance, bool)
        if isinstance(parallelism, int):
            return self._rescale(Balanced(parallelism) if balance else parallelism)
        for name, number in parallelism.items():
            check_kind("an operator to rescale", name, str)
            check_kind(f"the parallelism of '{name}'", number, int)
        if not parallelism:
            raise ConfigurationError("rescale: name at least one operator, or give one number")
        wanted = dict(parallelism)
        return self._rescale(Balanced(wanted) if balance else wanted)

    @abstractmethod
    def _rescale(self, wanted: Wanted) -> CompletableFuture[RescaleResult]:
        """What comes of it."""


def not_rescaled(job: str, why: str) -> Promise[RescaleResult]:
    """The answer of a job that is over."""
    promise: Promise[RescaleResult] = Promise()
    answer_rescale(promise, job, None, f"not rescaled: {why}")
    return promise


def answer_rescale(
    promise: Promise[RescaleResult], job: str, figures: RescaleFigures | None, error: str | None
) -> None:
    """What the job's driver said."""
    if figures is None:
        promise.fail(RescaleError(f"job '{job}' was {error}"))
        return
    promise.keep(
        RescaleResult(
            dict(figures.before),
            dict(figures.after),
            int(figures.checkpoint_id) or None,
            timedelta(milliseconds=figures.silence_ms),
            figures.stopped_tasks,
            figures.kept_tasks,
            dict(figures.balance),
            figures.held_tasks,
        )
    )

"""Rescales that a job has for its load: its coordinator looks at what the tasks have reported, lets
the autoscaler decide, and carries that out as it does what clients ask for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from ...autoscaling.autoscaler import Autoscaler
from ...autoscaling.shape import Shape
from ...autoscaling.steering import Act, Outcome, Scaler, Steering
from ...core.autoscaler_config import AutoscalerConfig
from ...core.clock import Clock
from ...core.job_status import JobStatus
from ...core.redaction import redacted
from ...core.texts import all_encodable, printable
from ..coordinator.job_state import JobState
from ..coordinator.rescale_figures import RescaleFigures
from ..graph.model import JobGraph
from ..graph.rescaling import kept_widths
from .asked_rescales import RescaleAnswer, Wanted
from .observed_load import sample_now, shape_as_planned

log = logging.getLogger("strom")

T = TypeVar("T")

MakeScaler = Callable[[AutoscalerConfig, Shape], Scaler]


class OwnRescales:
    """Of one driver, and used from its thread; `told` from any. Does nothing where the autoscaler
    is not enabled, and nothing more once it broke: the job goes on without it."""

    def __init__(
        self,
        job_id: str,
        planned: JobGraph,
        clock: Clock,
        ask: Callable[[Wanted, RescaleAnswer], None],
        why_not: Callable[[], str | None],
        make: MakeScaler | None = None,
    ) -> None:
        """`planned`: as its program made it. `ask`: as of `JobDriver.rescale`. `why_not`: why that
        would be refused now. `make`: who decides; None: an `Autoscaler`."""
        self._job_id = job_id
        self._planned = planned
        self._clock = clock
        self._ask = ask
        self._why_not = why_not
        self.fixed = kept_widths(planned)
        """Why vertices keep their parallelism."""
        self.broken: Exception | None = None
        config = planned.config.autoscaler
        self.steering: Steering | None = None
        if config.enabled:
            self.steering = Steering(
                config, (make or Autoscaler)(config, shape_as_planned(planned))
            )
            self._say_what_stays()

    def _say_what_stays(self) -> None:
        fixed = self.fixed
        if len(fixed) == len(self._planned.vertices):
            why = "; ".join(f"'{v.name}': {fixed[v.id]}" for v in self._planned.vertices)
            log.warning(
                "job %s: job.autoscaler.enabled is true, but no task of it can get another "
                "parallelism: %s. What is to follow its load needs a parallelism.default of 2 or "
                "more, and no parallelism of its own",
                self._job_id,
                printable(why),
            )

    def seen(self, state: JobState, now_ms: int) -> None:
        """What the job is behind an event. For each of them: it takes no time."""
        if self.steering is None:
            return
        running = state.status is JobStatus.RUNNING
        if running and state.running_tasks == state.total_tasks:
            self._tell(self.steering.on_running, now_ms, int(state.attempt))
        else:
            self._tell(self.steering.on_interrupted)

    @property
    def due_ms(self) -> int | None:
        """When `tick` has something to do."""
        if self.steering is None or self.broken is not None:
            return None
        return self.steering.due_ms

    def tick(self, state: JobState, job: JobGraph, now_ms: int) -> bool:
        """Look, if it is time to, and ask for what is decided; whether anything was."""
        due_ms = self.due_ms
        if due_ms is None or now_ms < due_ms:
            return False
        act = self._tell(self._look, state, job, now_ms)
        if act is None:
            return False
        self._say(act)
        if act.outcome is not Outcome.ASKED:
            return False
        wanted = {str(vertex): n for vertex, n in act.decision.changes.items()}
        self._ask(wanted, self._on_answer)  # a vertex has the id of its first operator
        return True

    def _look(self, state: JobState, job: JobGraph, now_ms: int) -> Act | None:
        assert self.steering is not None
        return self.steering.look(sample_now(state, job, now_ms), now_ms, self._why_not())

    def _tell(self, event: Callable[..., T], *args: Any) -> T | None:
        """None, too, if that breaks it."""
        if self.broken is not None:
            return None
        try:
            return event(*args)
        except Exception as error:
            self.broken = error
            log.exception("job %s: its autoscaler broke, and is off from now on", self._job_id)
            return None

    def told(self) -> list[dict[str, Any]] | None:
        """JSON-able: what was decided that changes something, and what became of it, the oldest
        first; None: the autoscaler is not enabled."""
        if self.steering is None:
            return None
        plain = [act.plain() for act in self.steering.acts]
        shown: list[dict[str, Any]] = all_encodable(plain)
        return shown

    def _on_answer(self, figures: RescaleFigures | None, error: str | None) -> None:
        assert self.steering is not None, "nothing was asked for"
        now_ms = self._clock.now_ms()
        if figures is not None and figures.after:
            act = self._tell(self.steering.on_rescaled, now_ms)
        else:
            why = redacted(error or "the job has these parallelisms already")
            why = why.removeprefix("not rescaled: ")
            act = self._tell(self.steering.on_failed, now_ms, why)
        if act is not None:
            self._say(act)

    def _say(self, act: Act) -> None:
        """A line in the log."""
        what = printable(act.explain())
        match act.outcome:
            case Outcome.ADVICE:
                log.info("job %s: should be rescaled: %s", self._job_id, what)
            case Outcome.DECLINED:
                why = printable(act.why)
                log.info("job %s: is not rescaled for its load (%s): %s", self._job_id, why, what)
            case Outcome.ASKED:
                log.info("job %s: is being rescaled for its load: %s", self._job_id, what)
            case Outcome.DONE:
                log.info("job %s: is rescaled for its load: %s", self._job_id, what)
            case Outcome.FAILED:
                why = printable(act.why)
                log.warning("job %s: could not be rescaled for its load: %s", self._job_id, why)

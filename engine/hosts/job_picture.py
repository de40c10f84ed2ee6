"""What a driver shows of its job: for anybody, from any thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...api.jobs.accumulator_results import Part
from ...checkpoint.coordinator_types import CheckpointStatistics
from ...core.clock import Clock
from ...core.ids import Attempt
from ...core.job_status import JobStatus
from ..coordinator.job_state import JobState
from ..coordinator.rescale_figures import RescaleFigures
from ..coordinator.restart import Failed
from ..coordinator.shown_master import ShownMaster
from ..graph.model import JobGraph
from .job_metrics import accumulators_of, summarise
from .job_outcome import JobOutcome
from .job_view import JobView, view_of
from .metric_samples import Sample, samples_of
from .own_rescales import OwnRescales


class JobPicture:
    """The job after the last event of its driver, which changes the fields."""

    def __init__(self, clock: Clock, told: ShownMaster, job: JobGraph, own: OwnRescales) -> None:
        self._clock = clock
        self._told = told
        self._own = own
        self._shown = told.status(), job
        """Replaced, never changed."""
        self._error: str | None = None
        self._over_at: int | None = None
        """When the job is over though its workers are not done; None until it has ended."""
        self._running_since: float | None = None
        self._runtime_ms = 0.0
        self.ended = False

    @property
    def _picture(self) -> JobState:
        return self._shown[0]

    @property
    def state(self) -> JobStatus:
        status = self._picture.status
        broken = self._error is not None and not status.is_terminal
        return JobStatus.FAILED if broken else status

    @property
    def attempt(self) -> Attempt:
        """The last that has begun."""
        return self._picture.attempt

    @property
    def troubles(self) -> str:
        """How often the job has restarted, and why the last time, as text."""
        picture = self._picture
        last = "" if picture.last_failure is None else f", the last time: {picture.last_failure}"
        return f"{picture.restarts} restarts{last}"

    @property
    def wanted(self) -> JobGraph:
        """What the job is to be when there is room for it."""
        return self._told.wanted.job

    @property
    def last_rescale(self) -> RescaleFigures | None:
        """The last under this driver that went well."""
        return self._shown[0].last_rescale

    @property
    def restarts(self) -> int:
        """As of `Handover`, with which it goes to the next coordinator."""
        return self._told.restarts

    @property
    def failed(self) -> Failed:
        """What a driver after this one has to know of the job's failures."""
        return self._told.failed

    @property
    def rescaling(self) -> bool:
        """As of `JobMaster`."""
        return self._told.rescaling

    def checkpoints(self) -> CheckpointStatistics:
        """Figures of the job's checkpoints."""
        return self._picture.checkpoints

    @property
    def newest_complete(self) -> int | None:
        """The newest checkpoint that is complete, of those taken under this driver."""
        completed = self._picture.history.completed
        return None if completed is None else int(completed.id)

    @property
    def newest_savepoint(self) -> tuple[str, int] | None:
        """Where the newest is that was taken under this driver, and since when it is complete
        (ms)."""
        found = self._picture.history.savepoint
        if found is None or found.location is None:
            return None
        return found.location, found.ended_ms or found.triggered_ms

    def metrics(self) -> dict[str, Any]:
        """The figures of `JobClient.metrics()`."""
        state, job = self._shown
        return summarise(state, job, self._runtime_now_ms()) | {"autoscaling": self._own.told()}

    def view(self) -> JobView:
        """All that is known of the job."""
        (state, job), now_ms = self._shown, self._clock.now_ms()
        runtime_ms, fixed = self._runtime_now_ms(), self._own.fixed
        view = view_of(state, self.state.value, self._error, job, runtime_ms, now_ms, fixed)
        if (told := self._own.told()) is not None:
            view["autoscaling"] = told
        return view

    def samples(self) -> Iterator[Sample]:
        """The same, subtask by subtask, for a reporter."""
        state, job = self._shown
        return samples_of(state, job, self._runtime_now_ms())

    def accumulators(self) -> list[Part]:
        """What the tasks of the current attempt said of their accumulators, still sealed."""
        return accumulators_of(self._picture)

    def outcome(self) -> JobOutcome:
        """Only when `ended`."""
        state, job = self._shown
        return JobOutcome(
            job_id=state.job_id,
            name=job.name,
            status=self.state,
            error=self._error,
            net_runtime_ms=self._runtime_ms,
            checkpoints=state.checkpoints.completed,
            restarts=state.restarts,
            metrics=self.metrics(),
            accumulators=self.accumulators(),
            stopped_with=self._told.stopped_with,
        )

    def _runtime_now_ms(self) -> float:
        if self.ended or self._over_at is not None:
            return self._runtime_ms
        since = self._running_since
        return 0.0 if since is None else (self._clock.monotonic() - since) * 1000.0

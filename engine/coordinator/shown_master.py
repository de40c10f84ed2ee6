"""What a job master shows of its job: all of it derived from what it has decided.

Whoever carries out the decisions reads it between events; what is said to be for any thread, any
time."""

from __future__ import annotations

from collections.abc import Mapping

from ...checkpoint.manifest import Manifest
from ...core.ids import OperatorId, TaskId
from ...core.job_status import JobStatus
from ..graph.model import ExecutionGraph
from .actions import KeepGraph
from .askers import Asker
from .handover import Handover
from .job_state import JobState
from .plan import JobPlan
from .restart import Failed
from .transitions import Transitions


class ShownMaster:
    """Of one job. The job master changes what is shown."""

    def __init__(self, job: Transitions) -> None:
        self._job = job
        self._life, self._history = job.life, job.history
        self._checkpoints, self._numbers = job.checkpoints, job.numbers

    def why_not(self, manifest: Manifest) -> str | None:
        """Why the job must not start from a checkpoint, if so. From any thread."""
        return self._job.starting_point.why_not(manifest)

    def why_no_rescale(self, asker: Asker) -> str | None:
        """Why `on_rescale` would be refused now; None: it would not."""
        return self._job.rescale_steps.why_no_rescale(asker)

    @property
    def graph(self) -> ExecutionGraph:
        """What the job is now."""
        return self._job.graph

    @property
    def wanted(self) -> ExecutionGraph:
        """What the job is to be when there is room for it."""
        return self._job.rescales.wanted

    def handover(self, kept: KeepGraph) -> Handover[ExecutionGraph]:
        """What another master is to go on from once this is written down."""
        rescales = self._job.rescales
        return Handover(
            kept.graph,
            kept.former,
            rescales.settled,
            kept.returns,
            self.failed,
            self.restarts,
            rescales.done,
        )

    @property
    def failed(self) -> Failed:
        """What another coordinator has to know of the failures so far."""
        return self._job.failures.so_far

    @property
    def restarts(self) -> int:
        """Of the job, those under the coordinators before this included."""
        return self._job.failures.restarts

    @property
    def rescaling(self) -> bool:
        """Whether tasks have stopped for a rescale, or are about to."""
        now = self._job.rescales.now
        return now is not None and not now.stage.runs

    @property
    def _plan(self) -> JobPlan:
        return self._job.plan

    @property
    def labels(self) -> Mapping[TaskId, str]:
        """What the tasks are called, as in `Map (1/2)`."""
        return self._plan.labels

    @property
    def shared_sources(self) -> frozenset[OperatorId]:
        """Sources of which single readers may begin again."""
        return self._plan.shared_sources

    def status(self) -> JobState:
        """The job at this moment."""
        running = self._job.running
        return JobState(
            job_id=self._plan.job_id,
            name=self._plan.job_name,
            status=self._life.status,
            attempt=self._numbers.newest,
            restarts=self.restarts,
            running_tasks=0 if running is None else len(running.progress.running),
            total_tasks=len(self._plan.tasks),
            checkpoints=self._checkpoints.statistics(),
            last_failure=self._job.failures.last_cause,
            metrics=self._job.figures.all(),
            history=self._history.picture,
            rescales=self._job.rescales.done,
            last_rescale=self._job.rescales.last,
            shortage=self._job.rescale_steps.shortage,
        )

    @property
    def stopped_with(self) -> str | None:
        """Where the savepoint is with which the job was stopped, once it has finished by that."""
        finished = self._life.status is JobStatus.FINISHED
        return self._checkpoints.stopped_with if finished else None

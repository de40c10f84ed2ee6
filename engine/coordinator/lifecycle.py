"""Which steps a job master goes through, and which status the job has meanwhile, as tables.

    step       status                    waits for                       then
    NEW        CREATED                   start                           LOADING
    LOADING    CREATED, RESTARTING       on_loaded                       PREPARING
    FINDING    CREATED                   on_tasks_found                  PREPARING
    PREPARING  CREATED, RESTARTING       on_sources_ready                DEPLOYING
    TAKING     CREATED                   on_sources_ready                RUNNING
    DEPLOYING  CREATED, RESTARTING       TaskRunning of all tasks        RUNNING
    RUNNING    RUNNING                   TaskFinished of all tasks       ENDED
    STOPPING   RESTARTING, FAILING,      on_all_stopped                  WAITING
               CANCELLING
    WAITING    the same                  answer to StoreCheckpoint,      LOADING or ENDED,
                                         the restart delay               or KEEPING
    KEEPING    RESTARTING                on_graph_kept                   LOADING
    ENDED      FAILED, CANCELED,         nothing
               FINISHED

FINDING and TAKING are for a job whose coordinator has died and that runs (`takeover`), KEEPING is
for one that is rescaled while it runs, or returns from that (`rescales`). A failure
goes from any step before STOPPING to STOPPING (to WAITING where nothing is deployed).
A checkpoint may be being stored while the job fails: its outcome must be known before the next
attempt chooses what to restore, hence the wait. A job that is to end waits for it, too, but not for
ever.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

from ...core.errors import IllegalTransitionError
from ...core.job_status import TRANSITIONS, JobStatus


class Step(Enum):
    """What the job master waits for."""

    NEW = "new"
    LOADING = "loading"
    FINDING = "finding"
    PREPARING = "preparing"
    TAKING = "taking over"
    DEPLOYING = "deploying"
    RUNNING = "running"
    STOPPING = "stopping"
    WAITING = "waiting"
    KEEPING = "keeping"
    ENDED = "ended"


STEPS: Final[dict[Step, frozenset[Step]]] = {
    Step.NEW: frozenset({Step.LOADING, Step.WAITING}),
    Step.LOADING: frozenset({Step.FINDING, Step.PREPARING, Step.WAITING}),
    Step.FINDING: frozenset({Step.PREPARING, Step.TAKING, Step.STOPPING, Step.WAITING}),
    Step.TAKING: frozenset({Step.RUNNING, Step.STOPPING}),
    Step.PREPARING: frozenset({Step.DEPLOYING, Step.WAITING}),
    Step.DEPLOYING: frozenset({Step.RUNNING, Step.STOPPING}),
    Step.RUNNING: frozenset({Step.STOPPING, Step.ENDED}),
    Step.STOPPING: frozenset({Step.WAITING}),
    Step.WAITING: frozenset({Step.LOADING, Step.KEEPING, Step.ENDED}),
    Step.KEEPING: frozenset({Step.LOADING, Step.WAITING}),
    Step.ENDED: frozenset(),
}
"""From each step, the steps that may follow."""

STATUSES: Final[dict[Step, frozenset[JobStatus]]] = {
    Step.NEW: frozenset({JobStatus.CREATED}),
    Step.LOADING: frozenset({JobStatus.CREATED, JobStatus.RESTARTING}),
    Step.FINDING: frozenset({JobStatus.CREATED}),
    Step.PREPARING: frozenset({JobStatus.CREATED, JobStatus.RESTARTING}),
    Step.TAKING: frozenset({JobStatus.CREATED}),
    Step.DEPLOYING: frozenset({JobStatus.CREATED, JobStatus.RESTARTING}),
    Step.RUNNING: frozenset({JobStatus.RUNNING}),
    Step.STOPPING: frozenset({JobStatus.RESTARTING, JobStatus.FAILING, JobStatus.CANCELLING}),
    Step.WAITING: frozenset({JobStatus.RESTARTING, JobStatus.FAILING, JobStatus.CANCELLING}),
    Step.KEEPING: frozenset({JobStatus.RESTARTING}),
    Step.ENDED: frozenset({JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED}),
}
"""In each step, the statuses a job may have."""

_HISTORY: Final = 40


class Lifecycle:
    """Step and status of one job; refuses what the tables do not allow, with what led there."""

    def __init__(self, job_name: str) -> None:
        self._job_name = job_name
        self._history: deque[tuple[object, ...]] = deque(maxlen=_HISTORY)
        self.step = Step.NEW
        """Changed by `go` only."""
        self.status = JobStatus.CREATED
        """Changed by `move` only."""

    @property
    def deployed(self) -> bool:
        """Whether the tasks of the current attempt are meant to run."""
        return self.step in (Step.FINDING, Step.TAKING, Step.DEPLOYING, Step.RUNNING)

    def move(self, status: JobStatus) -> None:
        """Change the status; nothing happens if the job has it already."""
        if status is self.status:
            return
        if status not in TRANSITIONS[self.status]:
            raise self.illegal(f"cannot become {status}")
        self.record(f"{self.status} -> {status}")
        self.status = status

    def go(self, step: Step) -> None:
        """Change the step."""
        if step not in STEPS[self.step]:
            raise self.illegal(f"cannot step to {step.value}")
        self.step = step

    def record(self, *event: object) -> None:
        """Remember an event for the message of an illegal transition: words, which are put together
        only for that."""
        self._history.append(event)

    def illegal(self, why: str) -> IllegalTransitionError:
        events = [" ".join(map(str, event)) for event in self._history]
        return IllegalTransitionError(
            f"job '{self._job_name}': {why}; status {self.status}, step {self.step.value}; "
            f"events: {events}"
        )

    def validate(self) -> None:
        """Assert that step and status fit together. For use between events."""
        assert self.status in STATUSES[self.step], (self.status, self.step)

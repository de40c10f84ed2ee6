"""The end of an attempt and of the job: what becomes of checkpoints that nobody acknowledges any
more, and what those are told who asked for savepoints.

Pure, and a part of the checkpoint coordinator.
"""

from __future__ import annotations

from ..core.job_status import JobStatus
from ..core.retention import ExternalizedCheckpointRetention
from .coordinator_types import Action, Actions, Forget
from .courses import Courses
from .kept_checkpoints import KeptCheckpoints
from .pending import PendingCheckpoints
from .savepoints import Answer, SavepointRequests
from .turns import Turns


class Endings:
    """Of one job. It has no state of its own."""

    def __init__(
        self,
        pending: PendingCheckpoints,
        kept: KeptCheckpoints,
        savepoints: SavepointRequests,
        turns: Turns,
        courses: Courses,
        retention: ExternalizedCheckpointRetention,
    ) -> None:
        self._pending = pending
        self._kept = kept
        self._savepoints = savepoints
        self._turns = turns
        self._courses = courses
        self._retention = retention

    @property
    def near(self) -> bool:
        """Whether a stop is asked for, or the terminal checkpoint is being stored or complete."""
        if self._turns.mode == "closed" or self._savepoints.stops:
            return True
        return any(
            (one.savepoint is not None and one.savepoint.stop is not None)
            or one.stopped
            or (one.terminal and one.storing)
            for one in self._pending
        )

    def of_attempt(self, why: str) -> Actions:
        """No task will acknowledge any more. What is being stored may become complete; the job then
        ends all the same if that is the terminal one behind the savepoint of a stop."""
        actions: list[Action] = []
        closing = self._turns.mode in ("closed", "stopped")
        for pending in self._pending:
            closing |= pending.stopped and pending.storing
            if not pending.storing:
                saving = pending.savepoint is not None
                reason = why if saving else "the job is being restarted or stopped"
                actions += self._courses.give_up(pending, reason)
        self._turns.stop()
        actions += self._courses.retire()
        actions += self._savepoints.fail(why)
        if not closing:
            actions += self._savepoints.not_stopped(why)
        return tuple(actions)

    def of_job(self, status: JobStatus) -> Actions:
        """It is over, and none of its tasks runs. What was complete is kept, whether it could be
        restored from or not, unless checkpoints do not outlive such an end."""
        finished = status is JobStatus.FINISHED
        answers = self._savepoints.stopped() if finished else ()
        actions = (*answers, *self.of_attempt(f"the job is {status.value}"))
        actions = (*actions, *self._savepoints.not_stopped(f"it is {status.value}"))
        for pending in self._pending:
            if pending.savepoint is not None:
                why = f"the job is {status.value}, and whether the savepoint is complete is unknown"
                actions = (*actions, Answer(pending.savepoint.request, error=why))
        actions = (*actions, *self._savepoints.sweep())
        if self._retention.removes(status):
            # One that is being stored is removed behind that. Of a checkpoint that is not this
            # job's, as the one it started from may be, its storage has nothing.
            storing = [one.checkpoint_id for one in self._pending if one.savepoint is None]
            discards = [d for d in self._kept.remove_all(storing) if d not in actions]
            return (*actions, *discards, Forget())
        return (*actions, *(d for d in self._kept.sweep_aborted() if d not in actions))

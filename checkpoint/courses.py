"""What becomes of each checkpoint, and of others by it: it begins, and is given up or complete.

One that completes makes those before it needless: they are given up, what is not retained any more
goes, and once more what was given up before.

Pure, and a part of the checkpoint coordinator, which says when: the ids, the figures, and what goes
with each step.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..core.ids import NO_CHECKPOINT, CheckpointId
from .coordinator_types import (
    Abort,
    Action,
    Actions,
    CheckpointStatistics,
    Complete,
    Discard,
    PendingCheckpoint,
    Saved,
    Store,
    Trigger,
)
from .kept_checkpoints import KeptCheckpoints
from .pending import PendingCheckpoints
from .savepoints import Savepoint, SavepointRequests


class Courses:
    """Of one job's checkpoints.

    Invariants: no id is above `last_id`; what is on its way is what the figures have in progress.
    """

    def __init__(
        self,
        pending: PendingCheckpoints,
        kept: KeptCheckpoints,
        savepoints: SavepointRequests,
        last_id: int,
    ) -> None:
        self._pending = pending
        self._kept = kept
        self._savepoints = savepoints
        self.last_id = last_id
        """Only grows; the next checkpoint takes the id after it. Changed here only."""
        self.figures = CheckpointStatistics()
        """Changed here only."""

    @property
    def newest_complete(self) -> CheckpointId:
        """0 if none is known. Only grows."""
        completed, restored = self.figures.latest_completed, self.figures.restored_from
        return CheckpointId(max(completed or 0, restored or 0))

    def restored(
        self,
        checkpoint_id: CheckpointId | None,
        stored: Iterable[CheckpointId],
        highest_id: int,
        torn: Iterable[CheckpointId],
    ) -> None:
        """The job starts (again) from that, None: from the beginning. None is on its way."""
        floor = NO_CHECKPOINT if checkpoint_id is None else checkpoint_id
        self._kept.restored(floor, set(stored), set(torn))
        self.last_id = max(self.last_id, highest_id, floor)
        self.figures = self.figures.restored(checkpoint_id)

    def left(self, ids: Iterable[CheckpointId]) -> None:
        """Another coordinator had begun these, which will not complete."""
        found = set(ids)
        self._kept.left(found)
        self.last_id = max(self.last_id, *found, NO_CHECKPOINT)

    def begin(self, now_ms: int, terminal: bool, savepoint: Savepoint | None) -> Trigger:
        """There is room for it."""
        self.last_id += 1
        stopping = self._savepoints.stopping if terminal else None
        base, depth = self._kept.base()
        pending = PendingCheckpoint(
            CheckpointId(self.last_id),
            now_ms,
            terminal,
            savepoint=savepoint,
            stopped_with=None if stopping is None else stopping.location,
            base=base,
            depth=depth,
        )
        self._pending.add(pending)
        self.figures = self.figures.triggered_one(pending)
        return Trigger(
            pending.checkpoint_id, now_ms, terminal, base, savepoint, stopped=pending.stopped
        )

    def store(self) -> list[Store]:
        """Those whose turn it is: all tasks have acknowledged them."""
        return [Store(one) for one in self._pending.to_store()]

    def complete(self, pending: PendingCheckpoint, now_ms: int) -> list[Action]:
        """The manifest is published of one of the job's own."""
        n = pending.checkpoint_id
        self._pending.remove(n)
        self._kept.complete(pending)
        self.figures = self.figures.completed_one(pending, now_ms)
        actions: list[Action] = [Complete(n, pending.terminal)]
        left: list[Action] = [*self._kept.sweep(), *self._savepoints.sweep()]
        for older in self._pending.before(n):
            actions += self.give_up(older, f"checkpoint {n}, a newer one, is complete")
        return [*actions, *self.retire(), *left]

    def saved(self, pending: PendingCheckpoint, now_ms: int) -> Saved:
        """That of a savepoint is."""
        self._pending.remove(pending.checkpoint_id)
        self.figures = self.figures.completed_one(pending, now_ms)
        return Saved(pending.checkpoint_id)

    def give_up(self, pending: PendingCheckpoint, reason: str) -> list[Action]:
        """It will never complete, whatever comes of it."""
        n, savepoint = pending.checkpoint_id, pending.savepoint
        self._pending.remove(n)
        if savepoint is not None:
            self.figures = self.figures.savepoint_failed(n)
            return [Abort(n, reason), *self._savepoints.dropped(savepoint, reason)]
        self.figures = self.figures.failed_one(n, f"checkpoint {n}: {reason}")
        return [Abort(n, reason), self._kept.give_up(n)]

    def retire(self) -> list[Discard]:
        """Those that are not retained any more, and on which none on its way builds."""
        return self._kept.retire(self._pending.builds_on)

    def sweep(self) -> Actions:
        """Nothing completes any more: what goes with the next completion."""
        return (*self.retire(), *self._kept.sweep_early())

    def validate(self) -> None:
        """Assert the invariants."""
        assert all(n <= self.last_id for n in self._pending.ids)
        assert set(self._pending.ids) == set(self.figures.in_progress)

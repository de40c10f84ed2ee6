"""Which checkpoints of a job are kept, which go, and what the next one builds on.

Of those that completed the newest `retained` are kept, and beside them one that a checkpoint on its
way may build on: its files are needed until that has completed or failed. Those that never
completed go at once, and again behind the next one that completes: a task that had not heard of it
may have written more.

A checkpoint builds on the newest complete one, which may build on one before: a chain, over whose
files a restore reads, and of which the oldest may be as old as the job. With `full_every` N it has
at most N: the N-th builds on nothing, and all that it needs is written anew.

Pure, and a part of the checkpoint coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..core.ids import NO_CHECKPOINT, CheckpointId
from .coordinator_types import Discard, PendingCheckpoint


class KeptCheckpoints:
    """Of one job.

    Invariants: `_completed` ascends; it and `_leftovers` have nothing in common."""

    def __init__(self, retained: int, full_every: int | None = None) -> None:
        self._retained = retained
        self._full_every = full_every
        self._completed: list[CheckpointId] = []
        """Not discarded, ascending."""
        self._leftovers: list[CheckpointId] = []
        """Aborted or rejected ones, to be discarded (again) when the next one completes."""
        self._aborted: set[CheckpointId] = set()
        """Those of `_leftovers` that nobody can ever restore from: without a manifest, or with one
        that does not count."""
        self._base = NO_CHECKPOINT
        """The newest that completed, of this job and since this coordinator began."""
        self._depth = 0
        """How many checkpoints the chain of `_base` has, of those that tasks know of."""

    @property
    def completed(self) -> tuple[CheckpointId, ...]:
        return tuple(self._completed)

    def base(self) -> tuple[CheckpointId, int]:
        """What a checkpoint that begins now builds on, and how many its chain will have."""
        if self._full_every is not None and self._depth >= self._full_every:
            return NO_CHECKPOINT, 1
        return self._base, self._depth + 1

    def restored(
        self, floor: CheckpointId, found: set[CheckpointId], torn: set[CheckpointId]
    ) -> None:
        """The job starts from `floor`, 0 for nothing; of `found` the newer ones are unusable, and
        those that are `torn`, newer or not, for everybody and for ever. Tasks know of nothing that
        came before."""
        self._depth = 0
        torn = (found & torn) - {floor}  # that may be another job's, with the number of one here
        self._aborted |= torn
        self._leftovers = sorted(
            {c for c in found if c > floor or c in torn} | set(self._leftovers)
        )
        self._completed = sorted({c for c in found if c <= floor} - set(self._leftovers))

    def begin_anew(self) -> None:
        """The next one builds on none."""
        self._base, self._depth = NO_CHECKPOINT, 0

    def complete(self, checkpoint: PendingCheckpoint) -> None:
        """It has, and is newer than all others."""
        self._base, self._depth = checkpoint.checkpoint_id, checkpoint.depth
        self._completed.append(checkpoint.checkpoint_id)

    def give_up(self, n: CheckpointId) -> Discard:
        """Checkpoint `n` will never complete."""
        self._leftovers.append(n)
        self._aborted.add(n)
        return Discard(n)

    def left(self, ids: Iterable[CheckpointId]) -> None:
        """Of these, which never completed under another coordinator and are above all that the
        storage shows, tasks may still be writing files."""
        found = set(ids)
        self._leftovers = sorted({*self._leftovers, *found})
        self._aborted |= found

    def retire(self, needed: Callable[[CheckpointId], bool]) -> list[Discard]:
        """Those that are not retained any more. `needed`: whether one on its way builds on it."""
        found: list[Discard] = []
        while len(self._completed) > self._retained and not needed(self._completed[0]):
            found.append(Discard(self._completed.pop(0)))
        return found

    def sweep(self) -> list[Discard]:
        """Once more all that never completed."""
        found = [Discard(left) for left in self._leftovers]
        self._leftovers.clear()
        self._aborted.clear()
        return found

    def sweep_early(self) -> list[Discard]:
        """All that never completed, behind which nothing completes any more: tasks may still be
        writing files of what has just been given up, so that this goes once more at the end."""
        found = [Discard(left) for left in self._leftovers]
        self._leftovers = [c for c in self._leftovers if c in self._aborted]
        return found

    def sweep_aborted(self) -> list[Discard]:
        """Only those that nobody can ever restore from: the job has ended, and somebody may want to
        look at the others."""
        found = [Discard(c) for c in sorted(self._aborted)]
        self._leftovers = [c for c in self._leftovers if c not in self._aborted]
        self._aborted.clear()
        return found

    def remove_all(self, also: Iterable[CheckpointId]) -> list[Discard]:
        """The oldest first: if this is interrupted, the newest is what is left."""
        mine = sorted({*self._completed, *self._leftovers, *also})
        for known in (self._completed, self._leftovers, self._aborted):
            known.clear()
        return [Discard(c) for c in mine]

    def validate(self, last_id: int) -> None:
        """Assert the invariants. `last_id`: no checkpoint has a greater one."""
        assert self._completed == sorted(set(self._completed)), self._completed
        assert all(c <= last_id for c in [*self._completed, *self._leftovers])
        assert not set(self._completed) & set(self._leftovers)
        assert self._aborted <= set(self._leftovers)
        assert self._full_every is None or self._depth <= self._full_every

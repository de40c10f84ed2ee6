"""The checkpoints of a job that are on their way, in the order of their ids.

    collecting -> acknowledged by all -> storing -> stored
                       (waits while a newer one of the job's own is being stored)

The ids of those that complete only grow: the job's own are stored in their order, one that all
tasks have acknowledged behind the publication of a newer one waits for what becomes of that.
Savepoints are nobody's but the one's who asked, and neither wait nor are waited for.

One is a *sole* one if nothing may come behind it but what it brings about itself: the terminal
checkpoint, and the savepoint of a stop. The rest is a question of room (`has_room`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..core.ids import CheckpointId
from .coordinator_types import PendingCheckpoint


class PendingCheckpoints:
    """Of one job.

    Invariants: ids grow; of the job's own none is being stored behind one that is newer; where one
    is to be the sole one there is no other."""

    def __init__(self, most: int, tasks: int) -> None:
        """`most`: so many of the job's own at once. Where that is 1, savepoints take turns with
        them; else one savepoint at a time is taken beside. `tasks`: how many acknowledge each."""
        self._most = most
        self._tasks = tasks
        self._found: dict[CheckpointId, PendingCheckpoint] = {}

    def adopt(self, tasks: int) -> None:
        """So many acknowledge each from now on; none is on its way."""
        self._tasks = tasks

    def __bool__(self) -> bool:
        return bool(self._found)

    def __iter__(self) -> Iterator[PendingCheckpoint]:
        """The oldest first; what is added or removed meanwhile changes nothing."""
        return iter(tuple(self._found.values()))

    @property
    def ids(self) -> tuple[CheckpointId, ...]:
        return tuple(self._found)

    @property
    def storing(self) -> bool:
        """Whether the host owes an answer to a Store."""
        return any(one.storing for one in self)

    def add(self, checkpoint: PendingCheckpoint) -> None:
        """Newer than all others."""
        self._found[checkpoint.checkpoint_id] = checkpoint

    def get(self, n: CheckpointId) -> PendingCheckpoint | None:
        return self._found.get(n)

    def remove(self, n: CheckpointId) -> PendingCheckpoint:
        return self._found.pop(n)

    def collecting(self, n: CheckpointId) -> PendingCheckpoint | None:
        """The one of this id, if tasks may still acknowledge it."""
        found = self._found.get(n)
        return None if found is None or found.storing else found

    def is_acknowledged(self, checkpoint: PendingCheckpoint) -> bool:
        """Whether all tasks have."""
        return len(checkpoint.acknowledged) == self._tasks

    def has_room(self, sole: bool = False, saving: bool = False) -> bool:
        """Whether another may begin."""
        if sole or self._most == 1 or any(_is_sole(one) for one in self):
            return not self
        if saving:
            return not any(one.savepoint is not None for one in self)
        return sum(one.savepoint is None for one in self) < self._most

    def to_store(self) -> list[PendingCheckpoint]:
        """Those whose turn it is to be stored: all tasks have acknowledged them. They are being
        stored from now on."""
        found: list[PendingCheckpoint] = []
        newest = max((one.checkpoint_id for one in self._own if one.storing), default=0)
        for one in self:
            if one.storing or len(one.acknowledged) < self._tasks:
                continue
            if one.savepoint is not None or one.checkpoint_id > newest:
                one.storing = True
                found.append(one)
        return found

    def before(self, n: CheckpointId) -> list[PendingCheckpoint]:
        """The job's own that are older: they are not needed any more once `n` is complete."""
        return [one for one in self._own if one.checkpoint_id < n]

    def builds_on(self, n: CheckpointId) -> bool:
        """Whether one may hold files of the complete checkpoint `n`."""
        return any(one.base == n for one in self._own)

    def validate(self) -> None:
        """Assert the invariants."""
        assert list(self._found) == sorted(self._found), self._found
        assert sum(1 for _ in self._own) <= self._most
        assert len(self._found) <= self._most + (self._most > 1)
        assert len(self._found) <= 1 or not any(_is_sole(one) for one in self)
        storing = [one.checkpoint_id for one in self._own if one.storing]
        for one in self:
            assert not one.storing or len(one.acknowledged) == self._tasks
            if one.savepoint is None and len(one.acknowledged) == self._tasks and not one.storing:
                assert any(n > one.checkpoint_id for n in storing), one.checkpoint_id

    @property
    def _own(self) -> Iterator[PendingCheckpoint]:
        return (one for one in self if one.savepoint is None)


def _is_sole(checkpoint: PendingCheckpoint) -> bool:
    savepoint = checkpoint.savepoint
    return checkpoint.terminal or (savepoint is not None and savepoint.stop is not None)

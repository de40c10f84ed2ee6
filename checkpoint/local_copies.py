"""Which copies of a checkpoint's files a task keeps on its machine, and when they go.

A task that restarts where it was reads what it wrote last from a local disk. Of all checkpoints
that can only be the newest complete one; until the next one is complete its files are kept, and
beside them those of the ones that are being written. So a task holds

    what it began with      copies that others made of the checkpoint that its attempt restored,
                            until the first checkpoint of the attempt is complete: no checkpoint
                            builds on files of a former attempt
    of the complete one     all files that its own part of it names
    of open ones            what was made for them so far, and what they name, once written

Tasks of a failed attempt hear no events. What they leave, those of the next one find, each of them
all of it, and keep what the restored checkpoint names; a file that is removed twice is gone.

Pure: names in, names that may go out. A copy is only ever a copy: one that is missing is read from
the storage.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..core.ids import NO_CHECKPOINT, CheckpointId
from .handles import FileHandle
from .names import SHARED, folder_name


def copy_name(n: CheckpointId, handle: FileHandle) -> str:
    """What the copy of a file of checkpoint `n` is called, below the job's folder."""
    return f"{SHARED if handle.shared else folder_name(n)}/{handle.path}"


class LocalCopies:
    """The copies of one task in one attempt.

    Invariants: a copy that was made is held until an event gives it back as one that may go; after
    each event the copies that the newest complete checkpoint needs are held, if they were made; of
    checkpoints that cannot complete any more nothing is."""

    def __init__(self) -> None:
        self._found: frozenset[str] = frozenset()
        """Of the checkpoint that the attempt restored; empty once one of its own is complete."""
        self._made: dict[CheckpointId, set[str]] = {}
        """By the checkpoint that they were made for."""
        self._needs: dict[CheckpointId, frozenset[str]] = {}
        """What this task's part of each checkpoint names, of those that were written: the newest
        complete one, and open ones."""
        self._complete = NO_CHECKPOINT
        """The newest complete one of this attempt."""
        self._over = NO_CHECKPOINT
        """No checkpoint up to this one is open any more."""
        self._aborted: set[CheckpointId] = set()
        """Nor is one of these, which are newer."""
        self._closed = False

    @property
    def held(self) -> frozenset[str]:
        """All copies that are there, as far as this task knows."""
        return self._found.union(*self._made.values())

    def began(self, needs: Iterable[str], present: Iterable[str]) -> list[str]:
        """The attempt begins with a checkpoint that names these files, none if with nothing, and
        these copies are on the machine. Before any other event. What may go."""
        present = set(present)
        self._found = frozenset(present.intersection(needs))
        return sorted(present - self._found)

    def made(self, n: CheckpointId, name: str) -> bool:
        """A copy was made for checkpoint `n`, which this task is writing; False: nobody wants it
        any more, and it may go."""
        if self._closed or not self._is_open(n):
            return False
        self._made.setdefault(n, set()).add(name)
        return True

    def written(self, n: CheckpointId, needs: Iterable[str]) -> None:
        """The task has written its part of `n`, which names these; `n` may complete from now on."""
        if self._is_open(n):
            self._needs[n] = frozenset(needs)

    def removed(self, n: CheckpointId, names: Iterable[str]) -> None:
        """Copies that were made for `n` are gone."""
        self._made.get(n, set()).difference_update(names)

    def completed(self, n: CheckpointId) -> list[str]:
        """Checkpoint `n` is complete. What may go."""
        if n <= self._complete:
            return []
        self._complete = n
        self._over = max(self._over, n)
        self._aborted = {m for m in self._aborted if m > self._over}
        found, self._found = self._found, frozenset()
        return sorted(found.union(self._forget()) - self.held)

    def aborted(self, n: CheckpointId) -> list[str]:
        """Checkpoint `n` will never complete. What may go."""
        if n > self._over:
            self._aborted.add(n)
        return self._forget()

    def close(self) -> None:
        """The attempt is over for this task. What it holds is the next one's to look at; what comes
        late is wanted by nobody."""
        self._closed = True

    def validate(self) -> None:
        """Assert the invariants."""
        assert self._complete <= self._over
        known = {n for n in self._needs if not self._is_open(n)}
        assert known <= {self._complete}, (known, self._complete)
        needed = self._needed()
        for n, names in self._made.items():
            assert self._is_open(n) or names <= needed, (n, names - needed)
        assert not (self._complete and self._found)

    def _forget(self) -> list[str]:
        """Let go of all but what the complete checkpoint needs, and open ones have."""
        self._needs = {
            m: v for m, v in self._needs.items() if m == self._complete or self._is_open(m)
        }
        needed = self._needed()
        due: list[str] = []
        for m in [m for m in self._made if not self._is_open(m)]:
            going = self._made[m] - needed
            due += going
            self._made[m] -= going
            if not self._made[m]:
                del self._made[m]
        return sorted(due)

    def _is_open(self, n: CheckpointId) -> bool:
        return n > self._over and n not in self._aborted

    def _needed(self) -> frozenset[str]:
        return frozenset().union(*self._needs.values())

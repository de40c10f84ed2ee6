"""Which files several checkpoints of a job share, and when the last that needs one is gone.

A file of a checkpoint that later ones may need, too, lies in the job's `shared/` folder. Its name
begins with the id of the checkpoint that wrote it (`names.shared_name`). Who needs what stands in
the manifests and nowhere else: nothing is counted, so nothing can be counted wrongly, and a
coordinator that starts anew reads the manifests and knows all.

A file may go when no complete checkpoint needs it, and

* the checkpoint that wrote it has failed: then nobody ever heard of it; or
* the last complete one that needed it is discarded. A checkpoint on its way may build on one that
  is complete, which is kept until that has completed or failed (`kept_checkpoints`: `retire`), so
  none needs it either.

Where a manifest cannot be read, nobody knows what it needs: files as old as it, or older, stay
until it is discarded.

Pure: the worker that publishes and deletes checkpoints tells it, and removes what it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..core.errors import CheckpointError
from ..core.ids import NO_CHECKPOINT, CheckpointId
from .names import shared_by


class SharedFiles:
    """The shared files of one job.

    Invariants: no name in `_due` is needed by a checkpoint in `_users`; no id is both in `_users`
    and in `_unreadable`."""

    def __init__(self) -> None:
        self._users: dict[CheckpointId, frozenset[str]] = {}
        """The complete checkpoints, and the shared files that each needs."""
        self._unreadable: set[CheckpointId] = set()
        """Those whose manifests could not be read."""
        self._due: set[str] = set()
        """To be removed, and not known to be gone."""

    def found(
        self,
        users: Mapping[CheckpointId, Iterable[str]],
        unreadable: Iterable[CheckpointId],
        present: Iterable[str],
    ) -> list[str]:
        """What the storage holds, while no task runs: complete checkpoints with the files that they
        need, those whose manifests cannot be read, and all files. What may go."""
        self._users = {n: frozenset(names) for n, names in users.items()}
        self._unreadable = set(unreadable)
        self._due = set(present) - self._needed()
        return self._removable()

    def completed(self, n: CheckpointId, names: Iterable[str]) -> None:
        """Checkpoint `n` is about to be published, with these. CheckpointError if one of them need
        not be there any more; then it must not be."""
        names = frozenset(names)
        lost = sorted(name for name in names - self._needed() if shared_by(name) != n)
        if lost:
            raise CheckpointError(
                f"checkpoint {n} builds on '{lost[0]}' and {len(lost) - 1} other shared files that "
                "no complete checkpoint holds"
            )
        self._users[n] = names
        self._due -= names

    @property
    def oldest(self) -> CheckpointId:
        """The oldest checkpoint that is there, whether it can be read or not; 0: there is none."""
        return min([*self._users, *self._unreadable], default=NO_CHECKPOINT)

    def knows(self, n: CheckpointId) -> bool:
        """Whether `n` is a complete checkpoint whose files are known."""
        return n in self._users

    def discarded(self, n: CheckpointId, present: Iterable[str] = ()) -> list[str]:
        """Checkpoint `n` is gone, or has failed: what may go now. `present`: all shared files,
        which matter unless `knows(n)`."""
        if n in self._users:
            self._due |= self._users.pop(n)
        elif n in self._unreadable:
            self._unreadable.discard(n)
            self._due |= {name for name in present if shared_by(name) <= n}
        else:
            self._due |= {name for name in present if shared_by(name) == n}
        self._due -= self._needed()
        return self._removable()

    def removed(self, names: Iterable[str]) -> None:
        """These are gone."""
        self._due.difference_update(names)

    def validate(self) -> None:
        """Assert the invariants."""
        assert not self._due & self._needed()
        assert not self._unreadable & self._users.keys()

    def _needed(self) -> set[str]:
        return set().union(*self._users.values())

    def _removable(self) -> list[str]:
        oldest = max(self._unreadable, default=NO_CHECKPOINT)
        if not oldest:
            return sorted(self._due)
        return sorted(name for name in self._due if shared_by(name) > oldest)

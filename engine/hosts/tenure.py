"""A coordinator's hold on its job's checkpoints: the epoch that it began, in `checkpoint.epochs`.

Used by the storage's worker only.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from ...checkpoint.epochs import Tenant, fenced, fences
from ...checkpoint.settling import settle_before
from ...checkpoint.storage import CheckpointStorage, open_storage
from ...core.errors import CheckpointError, ConfigurationError, FencedError
from ...core.ids import CheckpointId
from ...core.place import Place

log = logging.getLogger("strom")


class Tenure:
    """From `begin` on until there is a later epoch, which is then found by `check`. Those of older
    coordinators of the job are passed over."""

    def __init__(
        self,
        storage: CheckpointStorage,
        job_name: str,
        token: str,
        since_ms: int,
        number: int | None = None,
    ) -> None:
        """`token`: no other coordinator's, of any job. `number`: as of `Tenant`."""
        self._storage = storage
        self._mine = Tenant(
            storage.job_id, job_name, token, storage.home, 0, since_ms, str(Place.here()), number
        )
        self._epoch = 0
        """0: not begun."""
        self._passed = 0
        """Up to this epoch all behind it are of older coordinators."""
        self._settled = False
        """Whether it is said which checkpoints of the epochs before count."""
        self._origin_epoch = 0
        """Of the job that was fenced last, from which this one starts; 0: none was."""
        self._over: FencedError | None = None
        """Once it is found to be over; never taken back."""
        self._fenced: set[tuple[str | None, str]] = set()
        """Jobs that were fenced, by where their folders are."""

    def begin(self) -> None:
        """Once; later calls only `check`. Behind it is settled what counts of all epochs before.
        FencedError if another job has started from this one, or a later coordinator of this one has
        begun."""
        if self._epoch:
            self.check()
        else:
            self._begin()
        if not self._settled:
            settle_before(self._storage, self._epoch)
            self._settled = True

    def _begin(self) -> None:
        (last,) = self._storage.tenants(last=True).values() or (None,)
        if last is not None and self._yields(last):
            self._over = fenced(self._mine, last)
            raise self._over
        self._epoch = self._passed = self._storage.begin_epoch(self._mine)
        # Another may have begun its own between the look and this: who is before is seen now, who
        # comes behind by `check`.
        there = self._storage.tenants() if self._epoch > 1 else {}
        before = [t for n, t in sorted(there.items()) if n < self._epoch]
        others = [t for t in before if t is not None and self._yields(t)]
        if others:
            self._over = fenced(self._mine, others[-1])
            raise self._over
        if not self._storage.exclusive:
            log.warning(
                "job %s: the filesystem of its checkpoints cannot make a file exclusively: of two "
                "coordinators that start in the same instant both may go on",
                self._mine.job_id,
            )

    def _yields(self, before: Tenant) -> bool:
        """Whether who has begun before is to go on, and not this one."""
        return before.job_id != self._mine.job_id or self._mine.is_older(before)

    @property
    def epochs(self) -> tuple[int, int]:
        """That of this coordinator in its job's folder, and in that of its origin; 0: none."""
        return self._epoch, self._origin_epoch

    def check(self) -> None:
        """FencedError once another has taken over; costs two looks at files."""
        if self._over is not None:
            raise self._over
        if self._epoch and self._is_over():
            others = self._storage.tenants()
            by = [t for n, t in sorted(others.items()) if n > self._passed]
            self._over = fenced(self._mine, by[-1] if by else None)
            raise self._over

    def _is_over(self) -> bool:
        while self._storage.has_epoch(self._passed + 1):
            behind = self._storage.tenants().get(self._passed + 1)
            if behind is None or not behind.is_older(self._mine):
                return True
            self._passed += 1
        return not self._storage.keeps_epoch(self._epoch, self._mine)

    def counts(self, n: CheckpointId) -> bool:
        """Whether checkpoint `n`, which this coordinator has published and then found that it is
        fenced, counts all the same: who has taken over starts from it, or has not looked yet, and
        will. Else nobody ever starts from it. CheckpointError if that cannot be told."""
        storage, mine = self._storage, self._epoch
        last = storage.settled(mine)
        if last is None:
            if not storage.keeps_epoch(mine, self._mine):
                return False  # it was removed, and nothing of it counts that comes now
            last = storage.settle(mine, n)
            if not storage.keeps_epoch(mine, self._mine):
                return False
        return last >= n

    def sweep(self, counting: Collection[int]) -> None:
        """Remove what is known of epochs that are long over. Once it is settled which of their
        checkpoints count. `counting`: epochs of all checkpoints that are there. Raises
        CheckpointError."""
        before = self._epoch - self._storage.kept_epochs
        if self._settled and before > 1:
            self._storage.remove_epochs(before, counting)

    def holds(self) -> bool:
        """Whether `check` finds nothing. CheckpointError if that cannot be told."""
        try:
            self.check()
        except FencedError:
            return False
        return True

    def fence(self, origin: CheckpointStorage, n: CheckpointId) -> bool:
        """Fence the job of which this storage holds checkpoint `n`, and all that started from it;
        whether that is new. What cannot be written to is warned of."""
        key = (origin.home, origin.job_id)
        if key in self._fenced:
            return False
        seen = {self._mine.job_id}
        try:
            self._origin_epoch = self._fence(origin, int(n), seen)
            settle_before(origin, self._origin_epoch)
            self._fenced.add(key)
        except (CheckpointError, ConfigurationError) as error:
            log.warning(
                "job %s: job %s, from checkpoint %s of which it starts, or another that did so, "
                "cannot be fenced, so see to it that none of them runs any more: %s",
                self._mine.job_id,
                origin.job_id,
                n,
                error,
            )
        return True

    def _fence(self, storage: CheckpointStorage, restored: int, seen: set[str]) -> int:
        seen.add(storage.job_id)
        mine = Tenant(**{**vars(self._mine), "restored": restored})
        epoch = storage.begin_epoch(mine)
        before = {e: t for e, t in storage.tenants().items() if e < epoch}
        for other in fences(mine, before):
            if other.job_id not in seen:
                home = open_storage(other.home, other.job_id)
                if home.tenants(last=True):
                    self._fence(home, 0, seen)
        return epoch

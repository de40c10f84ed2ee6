"""Storages of checkpoints in this process that fail as they are told to.

`FilesInMemory` is the quickest storage that shares files. `Failing` stands in front of any: some
calls fail before they are done, some behind it (the answer is lost). What goes wrong comes from a
seed. It stops after so many calls, so that a job comes to its end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from copy import copy
from typing import Final, TypeVar

import pyarrow as pa

from ...checkpoint.epochs import Tenant
from ...checkpoint.handles import FileHandle
from ...checkpoint.manifest import Manifest
from ...checkpoint.names import shared_name
from ...checkpoint.storage import (
    CheckpointStorage,
    Data,
    MemoryStorage,
    check_manifest,
    checked,
    checksum,
)
from ...core.errors import CheckpointError, CorruptCheckpointError
from ...core.ids import CheckpointId

T = TypeVar("T")

AWAY: Final = "the storage is away, as the simulation wants it"
"""In each error that is not the engine's."""

TOLD: Final = ("no answer", "SlowDown", "the server is busy", "Connection reset")
"""What errors of `FaultyFileSystem` say."""

CALLS: Final = 400
"""So many may fail; all goes well from then on."""


class FilesInMemory(CheckpointStorage):
    """Files by path, with manifests as objects. A copy has the same ones, as another process has
    it: what differs is the epoch that it began."""

    shares = True

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.files: dict[tuple[CheckpointId, str], bytes] = {}
        """Own files of checkpoints."""
        self.shared: dict[str, bytes] = {}
        self._manifests: dict[CheckpointId, Manifest] = {}
        self._tenants: dict[int, Tenant] = {}
        """Who began the epochs there are."""
        self._settled: dict[int, CheckpointId] = {}
        self._epoch = 0
        """The one that was begun by this copy; 0: none."""

    def write_file(
        self, checkpoint_id: CheckpointId, name: str, data: Data, shared: bool = False
    ) -> FileHandle:
        content = data if isinstance(data, bytes) else data.to_pybytes()
        name = self.own_name(name)
        if shared:
            name = shared_name(checkpoint_id, name)
            self.shared[name] = content
        else:
            self.files[checkpoint_id, name] = content
        return FileHandle(name, len(content), checksum(content), shared=shared)

    def remove_files(self, checkpoint_id: CheckpointId, handles: Iterable[FileHandle]) -> None:
        for handle in handles:
            if handle.shared:
                self.shared.pop(handle.path, None)
            else:
                self.files.pop((checkpoint_id, handle.path), None)

    def read_file(self, checkpoint_id: CheckpointId, handle: FileHandle) -> pa.Buffer:
        where = f"files:{self.job_id}/{checkpoint_id}/{handle.path}"
        if handle.inline is not None:
            return checked(handle.inline, handle, where)
        content = (
            self.shared.get(handle.path)
            if handle.shared
            else self.files.get((checkpoint_id, handle.path))
        )
        if content is None:
            raise CorruptCheckpointError(f"{where}: the file is missing")
        return checked(content[handle.offset or 0 : handle.end], handle, where)

    def publish(self, manifest: Manifest) -> None:
        n = manifest.checkpoint_id
        check_manifest(manifest, n, f"files:{self.job_id}")
        if n in self._manifests:
            raise CheckpointError(f"checkpoint {n} is published already")
        self._manifests[n] = manifest

    def withdraw(self, manifest: Manifest) -> None:
        self._manifests.pop(manifest.checkpoint_id, None)

    @property
    def published(self) -> tuple[CheckpointId, ...]:
        """Complete checkpoints."""
        return tuple(self._manifests)

    def list(self) -> tuple[CheckpointId, ...]:
        return tuple(sorted({*self._manifests, *(n for n, _ in self.files)}))

    def load(self, checkpoint_id: CheckpointId) -> Manifest:
        if checkpoint_id not in self._manifests:
            return MemoryStorage(self.job_id).load(checkpoint_id)  # raises
        return self._manifests[checkpoint_id]

    def delete(self, checkpoint_id: CheckpointId) -> None:
        self._manifests.pop(checkpoint_id, None)
        for key in [key for key in self.files if key[0] == checkpoint_id]:
            del self.files[key]

    def list_shared(self) -> tuple[str, ...]:
        return tuple(sorted(self.shared))

    def delete_shared(self, names: Iterable[str]) -> None:
        for name in names:
            self.shared.pop(name, None)

    kept_epochs = 1

    def begin_epoch(self, tenant: Tenant) -> int:
        self._epoch = max(self._tenants, default=0) + 1
        self._tenants[self._epoch] = tenant
        return self._epoch

    def tenants(self, last: bool = False) -> dict[int, Tenant | None]:
        return dict(sorted(self._tenants.items())[-1 if last else 0 :])

    def has_epoch(self, epoch: int) -> bool:
        return epoch in self._tenants

    def keeps_epoch(self, epoch: int, tenant: Tenant) -> bool:
        return self._tenants.get(epoch) == tenant

    def knows_epoch(self, epoch: int) -> bool:
        return epoch in self._tenants

    def known_epochs(self, before: int) -> tuple[int, ...]:
        return tuple(sorted(epoch for epoch in self._tenants if epoch < before))

    def remove_epochs(self, before: int, counting: Collection[int]) -> None:
        for epoch in self.known_epochs(before):
            del self._tenants[epoch]
        for epoch in [e for e in self._settled if e < before and e not in counting]:
            del self._settled[epoch]

    def settle(self, epoch: int, last: CheckpointId) -> CheckpointId:
        return self._settled.setdefault(epoch, last)

    def settled(self, epoch: int) -> CheckpointId | None:
        return self._settled.get(epoch)

    def own_name(self, name: str) -> str:
        return name if self._epoch < 2 else f"e{self._epoch}-{name}"


class Failing(CheckpointStorage):
    """In front of another one. `left_over`: whether a call failed that would have removed files."""

    def __init__(self, inner: CheckpointStorage, seed: int, per_thousand: int) -> None:
        super().__init__(inner.job_id)
        self.inner = inner
        self.shares = inner.shares
        self.packs = inner.packs
        self.kept_epochs = inner.kept_epochs
        self.failed = 0
        self.left_over = False
        self._rng = random.Random(seed)
        self._per_thousand = per_thousand
        self._calls = 0

    def __copy__(self) -> Failing:
        """As another process has it."""
        other = Failing(copy(self.inner), 0, self._per_thousand)
        other._rng = self._rng
        return other

    def stop(self) -> None:
        """From now on all goes well."""
        self._per_thousand = 0

    def _call(self, do: Callable[[], T], removes: bool = False) -> T:
        if not self._per_thousand:
            return do()
        self._calls += 1
        if self._calls > CALLS or self._rng.randrange(1000) >= self._per_thousand:
            return do()
        self.failed += 1
        self.left_over |= removes
        if self._rng.random() < 0.3:
            do()  # it is done, and nobody hears of it
        raise CheckpointError(AWAY)

    def write_file(
        self, checkpoint_id: CheckpointId, name: str, data: Data, shared: bool = False
    ) -> FileHandle:
        made: list[FileHandle] = []

        def write() -> FileHandle:
            made.append(self.inner.write_file(checkpoint_id, name, data, shared))
            return made[0]

        try:
            return self._call(write)
        except CheckpointError:
            self.inner.remove_files(checkpoint_id, made)  # as storages promise
            raise

    def remove_files(self, checkpoint_id: CheckpointId, handles: Iterable[FileHandle]) -> None:
        self.inner.remove_files(checkpoint_id, handles)

    def read_file(self, checkpoint_id: CheckpointId, handle: FileHandle) -> pa.Buffer:
        return self._call(lambda: self.inner.read_file(checkpoint_id, handle))

    def publish(self, manifest: Manifest) -> None:
        """When it fails, the checkpoint is not visible."""
        self._call(lambda: None)
        self.inner.publish(manifest)

    def withdraw(self, manifest: Manifest) -> None:
        self._call(lambda: self.inner.withdraw(manifest), removes=True)

    def list(self) -> tuple[CheckpointId, ...]:
        return self._call(self.inner.list)

    def load(self, checkpoint_id: CheckpointId) -> Manifest:
        return self._call(lambda: self.inner.load(checkpoint_id))

    def delete(self, checkpoint_id: CheckpointId) -> None:
        self._call(lambda: self.inner.delete(checkpoint_id), removes=True)

    def list_shared(self) -> tuple[str, ...]:
        return self._call(self.inner.list_shared, removes=True)

    def delete_shared(self, names: Iterable[str]) -> None:
        found = list(names)
        self._call(lambda: self.inner.delete_shared(found), removes=True)

    def forget(self, epochs: bool = True) -> None:
        self.inner.forget(epochs)

    def begin_epoch(self, tenant: Tenant) -> int:
        return self._call(lambda: self.inner.begin_epoch(tenant))

    def tenants(self, last: bool = False) -> dict[int, Tenant | None]:
        """As `keeps_epoch`."""
        return self._call(lambda: self.inner.tenants(last), removes=True)

    def has_epoch(self, epoch: int) -> bool:
        """As `keeps_epoch`."""
        return self._call(lambda: self.inner.has_epoch(epoch), removes=True)

    def keeps_epoch(self, epoch: int, tenant: Tenant) -> bool:
        """Before files are removed, too, which stay if nobody can tell."""
        return self._call(lambda: self.inner.keeps_epoch(epoch, tenant), removes=True)

    def knows_epoch(self, epoch: int) -> bool:
        return self._call(lambda: self.inner.knows_epoch(epoch))

    def known_epochs(self, before: int) -> Collection[int]:
        return self._call(lambda: self.inner.known_epochs(before))

    def remove_epochs(self, before: int, counting: Collection[int]) -> None:
        self._call(lambda: self.inner.remove_epochs(before, counting))

    def settle(self, epoch: int, last: CheckpointId) -> CheckpointId:
        return self._call(lambda: self.inner.settle(epoch, last))

    def settled(self, epoch: int) -> CheckpointId | None:
        return self._call(lambda: self.inner.settled(epoch))

    def own_name(self, name: str) -> str:
        return self.inner.own_name(name)

"""Storages of checkpoints for tests: files on no disk, writes that fail, and what is left over."""

from __future__ import annotations

from strom.checkpoint.manifest import Manifest
from strom.checkpoint.storage import CheckpointStorage, open_storage
from strom.core.errors import CheckpointError
from strom.engine.hosts.driver import new_job_id

NEVER = 1 << 30


class Shaky(CheckpointStorage):
    """A storage that fails some of its writes: every `period`-th of shared files, and manifests.
    It notes how many attempts started from deltas."""

    shares = True

    def __init__(self, inner: CheckpointStorage, period: int = NEVER) -> None:
        super().__init__(inner.job_id)
        self._inner = inner
        self._period = period
        self.writes = 0
        self.from_deltas = 0

    def verify(self, manifest, *transfers):  # type: ignore[no-untyped-def]
        """Called for the checkpoint that an attempt starts from."""
        super().verify(manifest, *transfers)
        self.from_deltas += "delta" in layers_of(manifest)

    def write_file(self, checkpoint_id, name, data, shared=False):  # type: ignore[no-untyped-def]
        self.writes += shared
        if shared and self.writes % self._period == 0:
            raise CheckpointError("the disk is away")
        return self._inner.write_file(checkpoint_id, name, data, shared)

    def publish(self, manifest):  # type: ignore[no-untyped-def]
        if manifest.checkpoint_id % self._period == 0 and not manifest.terminal:
            raise CheckpointError("the disk is away")
        self._inner.publish(manifest)

    def read_file(self, checkpoint_id, handle):  # type: ignore[no-untyped-def]
        return self._inner.read_file(checkpoint_id, handle)

    def list(self):  # type: ignore[no-untyped-def]
        return self._inner.list()

    def list_shared(self):  # type: ignore[no-untyped-def]
        return self._inner.list_shared()

    def delete_shared(self, names):  # type: ignore[no-untyped-def]
        self._inner.delete_shared(names)

    def load(self, checkpoint_id):  # type: ignore[no-untyped-def]
        return self._inner.load(checkpoint_id)

    def delete(self, checkpoint_id):  # type: ignore[no-untyped-def]
        self._inner.delete(checkpoint_id)

    def begin_epoch(self, tenant):  # type: ignore[no-untyped-def]
        return self._inner.begin_epoch(tenant)

    def tenants(self, last=False):  # type: ignore[no-untyped-def]
        return self._inner.tenants(last)

    def has_epoch(self, epoch):  # type: ignore[no-untyped-def]
        return self._inner.has_epoch(epoch)

    def settle(self, epoch, last):  # type: ignore[no-untyped-def]
        return self._inner.settle(epoch, last)

    def settled(self, epoch):  # type: ignore[no-untyped-def]
        return self._inner.settled(epoch)

    def own_name(self, name):  # type: ignore[no-untyped-def]
        return self._inner.own_name(name)


def in_memory() -> CheckpointStorage:
    """Files, on no disk."""
    return open_storage(f"memory://{new_job_id()}", "job")


def layers_of(manifest: Manifest) -> list[str]:
    return [k.layer for s in manifest.subtasks for o in s.operators for k in o.keyed]


def needed(storage: CheckpointStorage) -> set[str]:
    return {name for n in storage.list() for name in storage.load(n).shared}


def check_files(storage: CheckpointStorage) -> None:
    """Every file that a manifest names is there as it says, and no other is."""
    assert set(storage.list_shared()) == needed(storage)
    for n in storage.list():
        CheckpointStorage.verify(storage, storage.load(n))

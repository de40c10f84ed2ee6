"""Checkpoints as files on any fsspec filesystem (`whole_files`).

On a local one folders are synced before and after the manifest: a published checkpoint survives a
power cut. A listing may be late: what this process has published or removed itself it knows.

Data files need no atomic step, since only a manifest makes them count; they get it all the same,
so that a failed write leaves nothing behind. Even where a filesystem breaks its promise, the
manifest's checksum tells a torn one.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Final

import pyarrow as pa

from ..core.errors import CheckpointError, MissingCheckpointError
from ..core.exclusive_files import create, makes_exclusively
from ..core.ids import CheckpointId
from .attempts import AttemptPolicy
from .cancellation import Cancellation
from .epochs import (
    Tenant,
    age_of,
    decode_end,
    encode_end,
    end_name,
    epoch_name,
    epoch_of,
    is_needed,
    is_of_epochs,
)
from .epochs import decode as decode_tenant
from .epochs import encode as encode_tenant
from .handles import FileHandle
from .manifest import Manifest, decode, encode
from .names import (
    MANIFEST,
    SHARED,
    check_file_name,
    check_handle_path,
    folder_id,
    folder_name,
    shared_by,
    shared_name,
    was_written_by,
)
from .storage import CheckpointStorage, Data, check_manifest, checked, checksum
from .transfers import INLINE, Transfers
from .whole_files import SLEEP, WholeFiles

_SHARED_HINT: Final = (
    "; the checkpoint shares it with others of its job: a checkpoint that is moved or copied needs "
    "the folder 'shared' of its job beside its own; a savepoint is complete in itself"
)

PAUSES_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
"""Between attempts to delete a folder that is being written into. Less in all than a job that was
cancelled waits for its workers."""


class FileStorage(WholeFiles, CheckpointStorage):
    """The checkpoints of one job below `root` (a path of `filesystem`)."""

    shares = True
    packs = True
    copies = True

    def __init__(
        self,
        filesystem: Any,
        root: str,
        job_id: str,
        pause: Callable[[float], None] = SLEEP,
        policy: AttemptPolicy | None = None,
    ) -> None:
        """`pause` and `policy`: as `WholeFiles` has them."""
        WholeFiles.__init__(self, filesystem, pause, policy)
        CheckpointStorage.__init__(self, job_id)
        self._published: dict[CheckpointId, tuple[str, ...]] = {}
        """Checkpoints that this process published and has not deleted, and the names of their own
        files: whatever a listing says."""
        self._home = posixpath.join(root.rstrip("/") or "/", self.job_id)
        self._epoch = 0
        """The one that this process began here; 0: none."""
        self.exclusive = makes_exclusively(filesystem)
        self.home = str(filesystem.unstrip_protocol(root))
        self._shared = posixpath.join(self._home, SHARED)

    def __getstate__(self) -> dict[str, Any]:
        """Tasks publish nothing."""
        return {**self.__dict__, "_published": {}}

    def write_file(
        self, checkpoint_id: CheckpointId, name: str, data: Data, shared: bool = False
    ) -> FileHandle:
        name = self.own_name(name)
        path = self._path(checkpoint_id, check_file_name(name))
        if shared:
            name = shared_name(checkpoint_id, name)
            path = posixpath.join(self._shared, name)
        with self._failing("write", path):
            self._whole(path, lambda: self._write(path, data), Cancellation())
        return FileHandle(name, len(data), checksum(data), shared=shared)

    def write_stream(
        self,
        checkpoint_id: CheckpointId,
        name: str,
        write: Callable[[Any], None],
        shared: bool = False,
        cancellation: Cancellation | None = None,
    ) -> FileHandle:
        name = self.own_name(name)
        path = self._path(checkpoint_id, check_file_name(name))
        if shared:
            name = shared_name(checkpoint_id, name)
            path = posixpath.join(self._shared, name)
        wanted = cancellation or Cancellation()
        with self._failing("write", path):
            written = self._whole(path, lambda: self._write_pieces(path, write, wanted), wanted)
        return FileHandle(name, written.size, written.checksum, shared=shared)

    def remove_files(self, checkpoint_id: CheckpointId, handles: Iterable[FileHandle]) -> None:
        for path, shared in dict.fromkeys((handle.path, handle.shared) for handle in handles):
            folder = self._shared if shared else self._path(checkpoint_id)
            self._remove_quietly(posixpath.join(folder, path))

    def read_file(self, checkpoint_id: CheckpointId, handle: FileHandle) -> pa.Buffer:
        folder = self._shared if handle.shared else self._path(checkpoint_id)
        path = posixpath.join(folder, check_handle_path(handle.path, folder, handle.shared))
        hint = _SHARED_HINT if handle.shared else ""
        if handle.inline is not None:
            data = handle.inline
        elif handle.offset is None:
            data = self._read(path, hint=hint)
        else:
            data = self._read(path, hint=hint, start=handle.offset, end=handle.end)
            path = f"{path} from {handle.offset} to {handle.end}"
        return checked(data, handle, path)

    def check_present(self, manifest: Manifest, transfers: Transfers = INLINE) -> None:
        n, unwanted = manifest.checkpoint_id, Cancellation()
        ends: dict[tuple[str, bool], int] = {}
        for handle in manifest.files():
            if handle.inline is None:
                file = handle.path, handle.shared
                ends[file] = max(ends.get(file, 0), handle.end)
        asked = []
        for (name, shared), end in ends.items():
            path = posixpath.join(self._shared if shared else self._path(n), name)
            check = partial(self._check_there, path, end, _SHARED_HINT if shared else "")
            asked.append(transfers.submit(0, check, unwanted))
        for one in asked:
            one.result()

    def publish(self, manifest: Manifest) -> None:
        folder = self._path(manifest.checkpoint_id)
        check_manifest(manifest, manifest.checkpoint_id, folder)
        path = posixpath.join(folder, MANIFEST)
        data = encode(manifest)
        files = dict.fromkeys([(h.path, h.shared) for h in manifest.files() if h.inline is None])
        own = tuple(name for name, shared in files if not shared)
        beside = [self._shared, self._home] if len(own) < len(files) else []
        with self._failing("publish", path):
            if self._retried(lambda: self._exists(path)):
                raise CheckpointError(f"{path} exists: checkpoint ids are never reused")
            self._retried(lambda: self._make_folder(folder))
            self._sync_folder(folder, *beside)
            self._make_new(path, data)
        self._published[manifest.checkpoint_id] = own

    def _make_new(self, path: str, data: bytes) -> None:
        """A file that no other process is just making; none of ours is there if it fails."""
        made = False
        try:
            if self.exclusive:
                made = self._retried(lambda: create(self._fs, path, data))
                if not made and self._retried(lambda: self._fs.cat_file(path)) != data:
                    raise CheckpointError(f"{path} exists: another coordinator has just made it")
            else:
                self._retried(lambda: self._write(path, data))
            made = True
            self._sync_folder(posixpath.dirname(path), self._home)
        except CheckpointError:
            raise
        except BaseException:
            if made or not self.exclusive or self._holds(path, data):
                self._remove_quietly(path)
            raise

    def _holds(self, path: str, data: bytes) -> bool:
        """Whether these bytes are there, as far as can be told: another's stay."""
        try:
            return bool(self._fs.cat_file(path) == data)
        except Exception:
            return False

    def withdraw(self, manifest: Manifest) -> None:
        with self._failing("withdraw", self._home):
            path = self._path(manifest.checkpoint_id, MANIFEST)
            self._retried(lambda: self._remove(path))
        self._published.pop(manifest.checkpoint_id, None)

    def begin_epoch(self, tenant: Tenant) -> int:
        data = encode_tenant(tenant)
        epoch = max(self._epochs(), default=0)
        with self._failing("begin an epoch in", self._home):
            self._retried(lambda: self._make_folder(self._home))
            while True:
                epoch += 1
                path = posixpath.join(self._home, epoch_name(epoch))
                made = self._retried(lambda path=path: create(self._fs, path, data))  # type: ignore[misc]
                if made or self._tenant(epoch) == tenant:  # the answer may have been lost
                    later = max(self._epochs(), default=0)
                    if later <= epoch:
                        break
                    epoch = later  # the listing before was old, and the number given before
            self._sync_folder(self._home)
        self._epoch = epoch
        return epoch

    def tenants(self, last: bool = False) -> dict[int, Tenant | None]:
        end = max([self._epoch, *self._epochs()])
        before = () if last else self.known_epochs(end)
        return {epoch: self._tenant(epoch) for epoch in (*before, end) if epoch}

    def has_epoch(self, epoch: int) -> bool:
        path = posixpath.join(self._home, epoch_name(epoch))
        with self._failing("read", path):
            if not self._local:
                self._fs.invalidate_cache(self._home)
            return self._retried(lambda: self._exists(path))

    def keeps_epoch(self, epoch: int, tenant: Tenant) -> bool:
        path = posixpath.join(self._home, epoch_name(epoch))
        with self._failing("read", path):
            try:
                found = decode_tenant(self._retried(lambda: self._fs.cat_file(path)))
            except FileNotFoundError:
                return not self._has_later(epoch)
        return found is None or found.token == tenant.token

    def knows_epoch(self, epoch: int) -> bool:
        return self.has_epoch(epoch) or not self._has_later(epoch)

    def known_epochs(self, before: int) -> tuple[int, ...]:
        listed = {epoch for epoch in self._epochs() if epoch < before}
        last = set(range(max(1, before - self.kept_epochs), before))
        return tuple(sorted({*listed, *(e for e in last - listed if self.has_epoch(e))}))

    def remove_epochs(self, before: int, counting: Collection[int]) -> None:
        kept = {end_name(epoch) for epoch in counting}
        names = [name for name in self._names_in(self._home) if is_of_epochs(name)]
        for name in sorted(names, key=age_of):
            if age_of(name)[0] < before and name not in kept:
                self._delete(posixpath.join(self._home, name))

    def settle(self, epoch: int, last: CheckpointId) -> CheckpointId:
        found = self.settled(epoch)
        if found is not None:
            return found
        path = posixpath.join(self._home, end_name(epoch))
        with self._failing("settle an epoch in", self._home):
            if self._retried(lambda: create(self._fs, path, encode_end(last))):
                self._sync_folder(self._home)
                return last
        found = self.settled(epoch)
        return last if found is None else found

    def settled(self, epoch: int) -> CheckpointId | None:
        path = posixpath.join(self._home, end_name(epoch))
        with self._failing("read", path):
            if not self._local:
                self._fs.invalidate_cache(self._home)
            try:
                return decode_end(self._retried(lambda: self._fs.cat_file(path)))
            except FileNotFoundError:
                return None

    def check_counts(self, manifest: Manifest) -> None:
        if manifest.epoch != self._epoch:  # nobody goes on from before what is this process's own
            super().check_counts(manifest)

    def own_name(self, name: str) -> str:
        return name if self._epoch < 2 else f"e{self._epoch}-{name}"

    def _epochs(self) -> list[int]:
        """As a listing has them, ascending."""
        return sorted(e for name in self._names_in(self._home) if (e := epoch_of(name)) is not None)

    def _has_later(self, epoch: int) -> bool:
        """As a listing has them."""
        return any(other > epoch for other in self._epochs())

    def _tenant(self, epoch: int) -> Tenant | None:
        path = posixpath.join(self._home, epoch_name(epoch))
        try:
            return decode_tenant(self._retried(lambda: self._fs.cat_file(path)))
        except FileNotFoundError:
            return None

    def list_shared(self) -> tuple[str, ...]:
        names = self._names_in(self._shared)
        return tuple(sorted(name for name in names if was_written_by(name) is not None))

    def delete_shared(self, names: Iterable[str]) -> None:
        for name in names:
            shared_by(name)
            self._delete(f"{self._shared}/{name}")

    def list(self) -> tuple[CheckpointId, ...]:
        listed = {folder_id(name) for name in self._names_in(self._home)}
        return tuple(sorted(c for c in listed | self._published.keys() if c is not None))

    def load(self, checkpoint_id: CheckpointId) -> Manifest:
        path = self._path(checkpoint_id, MANIFEST)
        manifest = decode(self._read(path, MissingCheckpointError), path)
        check_manifest(manifest, checkpoint_id, path)
        return manifest

    def delete(self, checkpoint_id: CheckpointId) -> None:
        """Of one that was given up, tasks may still write files, or rename them, until they hear of
        it: what comes into the folder meanwhile is removed, too, for less than a second."""
        folder = self._path(checkpoint_id)
        with self._failing("delete", folder):
            self._fs.invalidate_cache(folder)
            self._retried(lambda: self._remove(posixpath.join(folder, MANIFEST)))
            self._remove_named(checkpoint_id, folder)
            for pause_s in PAUSES_S:
                if self._removed(folder):
                    return
                self._pause(pause_s)
            if not self._removed(folder):
                raise OSError(errno.ENOTEMPTY, "files of it are still being written")

    def forget(self, epochs: bool = True) -> None:
        with self._failing("delete", self._home):
            self._retried(lambda: self._forget(epochs))

    def _forget(self, epochs: bool) -> None:
        self._fs.invalidate_cache(self._home)
        try:
            left = [str(path).rstrip("/") for path in self._fs.ls(self._home, detail=False)]
            names = [posixpath.basename(path) for path in left]
            if all(name == SHARED or (epochs and is_of_epochs(name)) for name in names):
                needed = [name for name in names if is_needed(name, names)]
                for name in sorted(set(names).difference(needed), key=age_of):
                    self._fs.rm(posixpath.join(self._home, name), recursive=True)
                left = needed
            if not left and not self._atomic_put:
                self._fs.rmdir(self._home)
        except FileNotFoundError:
            return  # nothing was ever written; or object stores, which have no empty folders

    def _remove_named(self, checkpoint_id: CheckpointId, folder: str) -> None:
        """What is known to be in the folder, whether a listing shows it or not."""
        for name in self._published.get(checkpoint_id, ()) if not self._local else ():
            path = posixpath.join(folder, name)
            self._retried(lambda path=path: self._remove(path))  # type: ignore[misc]
        self._published.pop(checkpoint_id, None)

    def _path(self, checkpoint_id: CheckpointId, name: str = "") -> str:
        folder = posixpath.join(self._home, folder_name(checkpoint_id))
        return posixpath.join(folder, name) if name else folder

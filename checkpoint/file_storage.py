"""Checkpoints as files on any fsspec filesystem.

How a file comes to be there whole or not at all depends on the filesystem:

    local            temporary file, fsync, rename, and fsync of the folders before and after the
                     manifest: a published checkpoint survives a power cut
    object stores    one put, or the end of one multipart upload; either is atomic
    others           temporary file, then move

Large files are written in pieces, as they are encoded. A call that fails for a reason that may pass
(`transient`) is made again after a pause (`attempts`); a file then from its beginning.

A listing may be late: what this process has published or removed itself it knows.

Data files need no atomic step, since only a manifest makes them count; they get it all the same,
so that a failed write leaves nothing behind. Even where a filesystem breaks its promise, the
manifest's checksum tells a torn one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import random
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeVar
from uuid import uuid4

import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from ..core.errors import (
    CheckpointError,
    CorruptCheckpointError,
    MissingCheckpointError,
    StromError,
)
from ..core.ids import CheckpointId
from .attempts import AttemptPolicy, Attempts
from .cancellation import Cancellation
from .handles import FileHandle
from .manifest import Manifest, decode, encode
from .names import (
    MANIFEST,
    SHARED,
    UNFINISHED,
    check_file_name,
    check_handle_path,
    folder_id,
    folder_name,
    shared_by,
    shared_name,
    was_written_by,
)
from .secrets import without_secrets
from .storage import CheckpointStorage, Data, check_manifest, checked, checksum
from .streaming import PIECE, PieceWriter
from .transfers import INLINE, Transfers
from .transient import is_transient

T = TypeVar("T")

_SLEEP: Final = time.sleep

_FEW: Final = AttemptPolicy(most=3)
"""For what is only cleaning up after a failure."""

_SHARED_HINT: Final = (
    "; the checkpoint shares it with others of its job: a checkpoint that is moved or copied needs "
    "the folder 'shared' of its job beside its own; a savepoint is complete in itself"
)

ATOMIC_PUT: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss"})
"""Protocols of object stores: a put is visible whole or not at all."""


PAUSES_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
"""Between attempts to delete a folder that is being written into. Less in all than a job that was
cancelled waits for its workers."""


class FileStorage(CheckpointStorage):
    """The checkpoints of one job below `root` (a path of `filesystem`)."""

    shares = True
    packs = True
    copies = True

    def __init__(
        self,
        filesystem: Any,
        root: str,
        job_id: str,
        pause: Callable[[float], None] = _SLEEP,
        policy: AttemptPolicy | None = None,
    ) -> None:
        """`pause` waits so many seconds, between attempts. `policy`: how often what fails for a
        reason that may pass is tried."""
        super().__init__(job_id)
        self._pause = pause
        self._policy = policy or AttemptPolicy()
        self._published: dict[CheckpointId, tuple[str, ...]] = {}
        """Checkpoints that this process published and has not deleted, and the names of their own
        files: whatever a listing says."""
        self._fs = filesystem
        self._home = posixpath.join(root.rstrip("/") or "/", self.job_id)
        self._shared = posixpath.join(self._home, SHARED)
        protocols = filesystem.protocol
        names = {protocols} if isinstance(protocols, str) else set(protocols)
        self._atomic_put = bool(names & ATOMIC_PUT)
        self._local = isinstance(filesystem, LocalFileSystem)

    def __getstate__(self) -> dict[str, Any]:
        """Tasks publish nothing."""
        return {**self.__dict__, "_published": {}}

    def write_file(
        self, checkpoint_id: CheckpointId, name: str, data: Data, shared: bool = False
    ) -> FileHandle:
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
        with self._failing("publish", path):
            if self._retried(lambda: self._exists(path)):
                raise CheckpointError(f"{path} exists: checkpoint ids are never reused")
            try:
                self._retried(lambda: self._make_folder(folder))
                self._sync_folder(folder, *([self._shared, self._home] if manifest.shared else []))
                self._retried(lambda: self._write(path, data))
                self._sync_folder(folder, self._home)
            except BaseException:
                self._remove_quietly(path)
                raise
        own = (h.path for h in manifest.files() if not h.shared and h.inline is None)
        self._published[manifest.checkpoint_id] = tuple(dict.fromkeys(own))

    def list_shared(self) -> tuple[str, ...]:
        names = self._names_in(self._shared)
        return tuple(sorted(name for name in names if was_written_by(name) is not None))

    def delete_shared(self, names: Iterable[str]) -> None:
        for name in names:
            shared_by(name)
            path = posixpath.join(self._shared, name)
            with self._failing("delete", path):
                self._retried(lambda path=path: self._remove(path))  # type: ignore[misc]

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

    def forget(self) -> None:
        with self._failing("delete", self._home):
            self._retried(self._forget)

    def _forget(self) -> None:
        self._fs.invalidate_cache(self._home)
        try:
            left = [str(path).rstrip("/") for path in self._fs.ls(self._home, detail=False)]
            if [posixpath.basename(path) for path in left] == [SHARED]:
                self._fs.rm(self._shared, recursive=True)  # no checkpoint is left to need it
                left = []
            if not left and not self._atomic_put:
                self._fs.rmdir(self._home)
        except FileNotFoundError:
            return  # nothing was ever written; or object stores, which have no empty folders

    def _names_in(self, folder: str) -> tuple[str, ...]:
        with self._failing("list", folder):
            return self._retried(lambda: self._listed(folder))

    def _listed(self, folder: str) -> tuple[str, ...]:
        self._fs.invalidate_cache(folder)
        try:
            paths = self._fs.ls(folder, detail=False)
        except FileNotFoundError:
            return ()
        return tuple(posixpath.basename(str(path).rstrip("/")) for path in paths)

    def _remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(path)

    def _remove_named(self, checkpoint_id: CheckpointId, folder: str) -> None:
        """What is known to be in the folder, whether a listing shows it or not."""
        for name in self._published.get(checkpoint_id, ()) if not self._local else ():
            path = posixpath.join(folder, name)
            self._retried(lambda path=path: self._remove(path))  # type: ignore[misc]
        self._published.pop(checkpoint_id, None)

    def _removed(self, folder: str) -> bool:
        """Remove the folder; False if something came into it, or left it, at the same time."""
        try:
            self._remove_all(folder)
        except FileNotFoundError:
            self._fs.invalidate_cache(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        else:
            if self._local:
                return True
        return not self._retried(lambda: self._remains(folder))

    def _remove_all(self, folder: str) -> None:
        """At once; if that fails for a reason that may pass, file by file, each tried again by
        itself: of many files one fails each time."""
        try:
            self._fs.rm(folder, recursive=True)
        except Exception as error:
            if not is_transient(error):
                raise
            for name in self._retried(lambda: self._listed(folder)):
                path = posixpath.join(folder, name)
                self._retried(lambda path=path: self._remove(path))  # type: ignore[misc]
            self._retried(lambda: self._fs.rm(folder, recursive=True))

    def _remains(self, folder: str) -> bool:
        """Whether a folder is still there, whatever `rm` says: that of many filesystems takes a
        listing that fails for an empty one. A listing may also show what is gone."""
        if not self._exists(folder):
            return False
        names = self._listed(folder)
        found = (self._retried(lambda n=n: self._exists(f"{folder}/{n}")) for n in names)  # type: ignore[misc]
        return any(found) or not self._atomic_put

    def _exists(self, path: str) -> bool:
        """fsspec's own `exists` says no where it cannot tell."""
        try:
            self._fs.info(path)
        except FileNotFoundError:
            return False
        return True

    def _path(self, checkpoint_id: CheckpointId, name: str = "") -> str:
        folder = posixpath.join(self._home, folder_name(checkpoint_id))
        return posixpath.join(folder, name) if name else folder

    def _read(
        self,
        path: str,
        missing: type[CorruptCheckpointError] = CorruptCheckpointError,
        hint: str = "",
        **part: int,
    ) -> bytes:
        """`part`: its `start` and `end`, by name, since filesystems differ in their order."""
        with self._failing("read", path):
            try:
                data: bytes = self._retried(lambda: self._fs.cat_file(path, **part))
            except FileNotFoundError:
                raise missing(f"{path}: the file is missing{hint}") from None
            except Exception:
                self._check_reaches(path, part.get("end"))
                raise
        return data

    def _check_there(self, path: str, end: int, hint: str) -> None:
        with self._failing("read", path):
            try:
                self._check_reaches(path, end)
            except FileNotFoundError:
                raise CorruptCheckpointError(f"{path}: the file is missing{hint}") from None

    def _check_reaches(self, path: str, end: int | None) -> None:
        """CorruptCheckpointError for a file that ends before `end`: object stores refuse to read
        what is behind a file's end."""
        found = self._retried(lambda: self._fs.info(path))["size"]
        if None not in (end, found) and found < end:
            raise CorruptCheckpointError(f"{path}: expected {end} bytes, found {found}")

    def _write(self, path: str, data: Data) -> None:
        """At once. `_retried` may call it again."""
        self._make_folder(posixpath.dirname(path))
        if self._atomic_put:
            self._fs.pipe_file(path, data if isinstance(data, bytes) else data.to_pybytes())
            return
        temporary = _temporary(path)
        try:
            with self._fs.open(temporary, "wb") as file:
                file.write(memoryview(data))
                self._sync_file(file)
            self._move(temporary, path)
        except BaseException:
            self._remove_quietly(temporary)
            raise

    def _write_pieces(
        self, path: str, write: Callable[[Any], None], wanted: Cancellation
    ) -> PieceWriter:
        """What is larger than one piece; nothing is there, nor begun, if it fails."""
        place = path if self._atomic_put else _temporary(path)

        def target() -> Any:
            self._make_folder(posixpath.dirname(path))
            if self._atomic_put:
                return self._fs.open(place, "wb", block_size=PIECE)
            return self._fs.open(place, "wb")

        writer = PieceWriter(target, wanted.check)
        try:
            write(writer)
            wanted.check()
            if writer.target is None:
                self._write(path, writer.rest)
                return writer
            writer.target.write(writer.rest)
            self._sync_file(writer.target)
            writer.target.close()
            if not self._atomic_put:
                self._move(place, path)
        except BaseException:
            if writer.target is not None:
                _discard(writer.target)
                if not self._atomic_put:
                    self._remove_quietly(place)
            raise
        return writer

    def _make_folder(self, folder: str) -> None:
        """Object stores have none; asked for one, some make a bucket."""
        if not self._atomic_put:
            self._fs.makedirs(folder, exist_ok=True)

    def _sync_file(self, file: Any) -> None:
        if self._local:
            file.flush()
            os.fsync(file.fileno())

    def _move(self, temporary: str, path: str) -> None:
        if self._local:
            os.replace(temporary, path)
        else:
            self._fs.mv(temporary, path)

    def _whole(self, path: str, call: Callable[[], T], wanted: Cancellation) -> T:
        """`_retried`, of a call that makes a file; it is not there when that fails, though it may
        have been made by an attempt whose answer was lost."""
        try:
            return self._retried(call, wanted)
        except BaseException:
            self._remove_quietly(path)
            raise

    def _retried(
        self,
        call: Callable[[], T],
        wanted: Cancellation | None = None,
        policy: AttemptPolicy | None = None,
    ) -> T:
        """Make the call until it succeeds, or fails for good, or nobody wants it any more."""
        attempts = Attempts(policy or self._policy, random.random)
        while True:
            if wanted is not None:
                wanted.check()
            try:
                return call()
            except Exception as error:
                pause_ms = attempts.after(error)
                if pause_ms is None:
                    raise
            if wanted is None or self._pause is not _SLEEP:
                self._pause(pause_ms / 1000)
            else:
                wanted.wait(pause_ms / 1000)

    def _failing(self, what: str, path: str) -> contextlib.AbstractContextManager[None]:
        return failing(what, path, self._fs)

    def _sync_folder(self, *paths: str) -> None:
        """Make the entries of local folders durable."""
        for path in paths if self._local else ():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _remove_quietly(self, path: str) -> None:
        """Clean up after a failure that is being raised; a second failure adds nothing to it."""
        with contextlib.suppress(Exception):
            self._retried(lambda: self._remove(path), policy=_FEW)


def _temporary(path: str) -> str:
    return f"{path}.{uuid4().hex}{UNFINISHED}"


def _discard(file: Any) -> None:
    """Give up a file that is being written. Of an object store's its end would publish it, also the
    one that comes with the garbage collection."""
    with contextlib.suppress(Exception):
        if hasattr(file, "discard"):
            try:
                file.discard()
            finally:
                file.closed = True
        else:
            file.close()


@contextlib.contextmanager
def failing(what: str, path: str, filesystem: Any = None) -> Iterator[None]:
    """Whatever the filesystem raises becomes a CheckpointError naming the path and the cause,
    without what the filesystem is opened with.

    Filesystems of cloud vendors raise their own exception classes, hence the breadth.
    """
    try:
        yield
    except StromError:
        raise
    except Exception as error:
        said = str(error)
        told = without_secrets(said, filesystem)
        raise CheckpointError(
            f"cannot {what} {path}: {type(error).__name__}: {told}; check space, permissions and "
            "the storage's reachability"
        ) from (error if told == said else None)

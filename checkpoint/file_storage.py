"""Checkpoints as files on any fsspec filesystem.

How a file comes to be there whole or not at all depends on the filesystem:

    local            temporary file, fsync, rename, and fsync of the folders before and after the
                     manifest: a published checkpoint survives a power cut
    object stores    one put, which is atomic
    others           temporary file, then move

Data files need no atomic step, since only a manifest makes them count; they get it all the same,
so that a failed write leaves nothing behind. Even where a filesystem breaks its promise, the
manifest's checksum tells a torn one.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Iterator
from typing import Any, Final
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
from .handles import FileHandle
from .manifest import Manifest, decode, encode
from .names import MANIFEST, check_file_name, check_handle_path, folder_id, folder_name
from .storage import CheckpointStorage, Data, check_manifest, checked, checksum

ATOMIC_PUT: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss"})
"""Protocols of object stores: a put is visible whole or not at all."""


class FileStorage(CheckpointStorage):
    """The checkpoints of one job below `root` (a path of `filesystem`)."""

    def __init__(self, filesystem: Any, root: str, job_id: str) -> None:
        super().__init__(job_id)
        self._fs = filesystem
        self._home = posixpath.join(root.rstrip("/") or "/", self.job_id)
        protocols = filesystem.protocol
        names = {protocols} if isinstance(protocols, str) else set(protocols)
        self._atomic_put = bool(names & ATOMIC_PUT)
        self._local = isinstance(filesystem, LocalFileSystem)

    def write_file(self, checkpoint_id: CheckpointId, name: str, data: Data) -> FileHandle:
        path = self._path(checkpoint_id, check_file_name(name))
        with _failing("write", path):
            self._write(path, data)
        return FileHandle(name, len(data), checksum(data))

    def read_file(self, checkpoint_id: CheckpointId, handle: FileHandle) -> pa.Buffer:
        folder = self._path(checkpoint_id)
        path = posixpath.join(folder, check_handle_path(handle.path, folder))
        data = self._read(path) if handle.inline is None else handle.inline
        return checked(data, handle, path)

    def publish(self, manifest: Manifest) -> None:
        folder = self._path(manifest.checkpoint_id)
        check_manifest(manifest, manifest.checkpoint_id, folder)
        path = posixpath.join(folder, MANIFEST)
        with _failing("publish", path):
            if self._fs.exists(path):
                raise CheckpointError(f"{path} exists: checkpoint ids are never reused")
            try:
                self._fs.makedirs(folder, exist_ok=True)
                self._sync_folder(folder)
                self._write(path, encode(manifest))
                self._sync_folder(folder, self._home)
            except BaseException:
                self._remove_quietly(path)
                raise

    def list(self) -> tuple[CheckpointId, ...]:
        with _failing("list", self._home):
            self._fs.invalidate_cache(self._home)
            try:
                paths = self._fs.ls(self._home, detail=False)
            except FileNotFoundError:
                return ()
        ids = [folder_id(posixpath.basename(str(path).rstrip("/"))) for path in paths]
        return tuple(sorted(c for c in ids if c is not None))

    def load(self, checkpoint_id: CheckpointId) -> Manifest:
        path = self._path(checkpoint_id, MANIFEST)
        manifest = decode(self._read(path, MissingCheckpointError), path)
        check_manifest(manifest, checkpoint_id, path)
        return manifest

    def delete(self, checkpoint_id: CheckpointId) -> None:
        folder = self._path(checkpoint_id)
        with _failing("delete", folder):
            self._fs.invalidate_cache(folder)
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(posixpath.join(folder, MANIFEST))
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm(folder, recursive=True)

    def _path(self, checkpoint_id: CheckpointId, name: str = "") -> str:
        folder = posixpath.join(self._home, folder_name(checkpoint_id))
        return posixpath.join(folder, name) if name else folder

    def _read(
        self, path: str, missing: type[CorruptCheckpointError] = CorruptCheckpointError
    ) -> bytes:
        with _failing("read", path):
            try:
                data: bytes = self._fs.cat_file(path)
            except FileNotFoundError:
                raise missing(f"{path}: the file is missing") from None
        return data

    def _write(self, path: str, data: Data) -> None:
        self._fs.makedirs(posixpath.dirname(path), exist_ok=True)
        if self._atomic_put:
            self._fs.pipe_file(path, data if isinstance(data, bytes) else data.to_pybytes())
            return
        temporary = f"{path}.{uuid4().hex}.tmp"
        try:
            with self._fs.open(temporary, "wb") as file:
                file.write(memoryview(data))
                if self._local:
                    file.flush()
                    os.fsync(file.fileno())
            if self._local:
                os.replace(temporary, path)
            else:
                self._fs.mv(temporary, path)
        except BaseException:
            self._remove_quietly(temporary)
            raise

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
            self._fs.rm_file(path)


@contextlib.contextmanager
def _failing(what: str, path: str) -> Iterator[None]:
    """Whatever the filesystem raises becomes a CheckpointError naming the path and the cause.

    Filesystems of cloud vendors raise their own exception classes, hence the breadth.
    """
    try:
        yield
    except StromError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"cannot {what} {path}: {type(error).__name__}: {error}; check space, permissions and "
            "the storage's reachability"
        ) from error

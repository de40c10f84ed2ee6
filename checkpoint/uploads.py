"""The files that one task writes for one checkpoint: all of them, or none.

They are written beside each other (`transfers`), small ones as one (`packing`). When one cannot be
written, or the checkpoint is given up, the others are cancelled, and what is there already is
removed: the coordinator removes the checkpoint's folder too, but may do so before a task has heard
of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Final, Protocol

import pyarrow as pa

from ..core.ids import CheckpointId
from ..state.increments import REMOVED
from .cancellation import Cancellation, UnwantedError
from .handles import FileHandle
from .packing import SMALL, SMALL_SHARED, Packing
from .transfers import Pending, Transfers

PIECE: Final = 1 << 20
"""Bytes are written so many at a time."""

Content = Callable[[Any], None]
"""Writes it to the file that it is given; may be called again."""


class FilesTo(Protocol):
    """What a task writes its files to: a storage, or what stands before one. Each as of a
    storage."""

    packs: bool

    def offer(self, checkpoint_id: CheckpointId, name: str, shared: bool, source: Path) -> None: ...

    def write_stream(
        self,
        checkpoint_id: CheckpointId,
        name: str,
        write: Callable[[Any], None],
        shared: bool = False,
        cancellation: Cancellation | None = None,
    ) -> FileHandle: ...

    def remove_files(self, checkpoint_id: CheckpointId, handles: Iterable[FileHandle]) -> None: ...


class Uploads:
    """A context: what was written stays if its block ends without an error. Used from one
    thread."""

    def __init__(
        self,
        storage: FilesTo,
        checkpoint_id: CheckpointId,
        transfers: Transfers,
        cancellation: Cancellation,
        packs: str | None = None,
    ) -> None:
        """`cancellation`: of the checkpoint; it is cancelled when a file cannot be written.
        `packs`: what names of files that hold several small ones begin with, None for none."""
        self._storage = storage
        self._checkpoint_id = checkpoint_id
        self._transfers = transfers
        self._cancellation = cancellation
        self._lock = Lock()
        self._written: list[FileHandle] = []
        """Files that are there. Guarded by the lock."""
        self._failure: BaseException | None = None
        """Why the first file could not be written."""
        self._packings: dict[bool, Packing] = {}
        """Of files that are shared, and of those that are not."""
        if packs is not None and storage.packs:
            self._packings = {
                shared: Packing(packs, partial(self._whole, shared)) for shared in (False, True)
            }

    def table(self, name: str, data: pa.Table, shared: bool = False) -> Pending[FileHandle]:
        """Begin to write a table as an Arrow IPC file; waits until there is room for it. Its
        memory is let go when it is written."""
        if self._is_small(data.nbytes, shared):
            self._cancellation.check()
            sink = pa.BufferOutputStream()
            _Table(data)(sink)
            return self._packings[shared].add(name, sink.getvalue())
        return self._submit(data.nbytes, name, _Table(data), shared)

    def file(self, name: str, path: Path, shared: bool = False) -> Pending[FileHandle]:
        """The same of a file of this machine, which may be removed as soon as this returns; one
        that is shared never changes. OSError if it cannot be read."""
        size = path.stat().st_size
        if self._is_small(size, shared):
            return self._packings[shared].add(name, pa.py_buffer(path.read_bytes()))
        if shared:
            self._storage.offer(self._checkpoint_id, name, shared, path)
        return self._submit(size, name, _File(path), shared)

    def _is_small(self, size: int, shared: bool) -> bool:
        return shared in self._packings and size < (SMALL_SHARED if shared else SMALL)

    def _whole(self, shared: bool, name: str, data: pa.Buffer) -> Pending[FileHandle]:
        return self._submit(data.size, name, _Bytes(data), shared)

    def _submit(self, size: int, name: str, content: Content, shared: bool) -> Pending[FileHandle]:
        write = _Write(self, name, content, shared)
        return self._transfers.submit(size, write, self._cancellation)

    def __enter__(self) -> Uploads:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        self._cancellation.cancel()
        self._transfers.try_submit(self._remove)
        if self._failure is not None and isinstance(error, UnwantedError):
            raise self._failure from self._failure.__cause__

    def write(self, name: str, content: Content, shared: bool) -> FileHandle:
        """On a thread of the transfers."""
        try:
            handle = self._storage.write_stream(
                self._checkpoint_id, name, content, shared, self._cancellation
            )
        except BaseException as error:
            if not self._cancellation.cancelled:
                self._failure = error
                self._cancellation.cancel()
            raise
        with self._lock:
            self._written.append(handle)
        if self._cancellation.cancelled:
            self._remove()
            self._cancellation.check()
        return handle

    def _remove(self) -> None:
        with self._lock:
            written, self._written = self._written, []
        self._storage.remove_files(self._checkpoint_id, written)


class _Table:
    """An Arrow IPC file. Of deltas the columns are compressed: much of them is alike (key groups,
    namespaces, the values of removed rows)."""

    def __init__(self, data: pa.Table) -> None:
        self._data = data

    def __call__(self, sink: Any) -> None:
        codec = "lz4" if REMOVED in self._data.column_names else None
        options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
        with pa.ipc.new_file(sink, self._data.schema, options=options) as writer:
            writer.write_table(self._data)


class _Bytes:
    def __init__(self, data: pa.Buffer) -> None:
        self._data = data

    def __call__(self, sink: Any) -> None:
        content = memoryview(self._data)
        for start in range(0, len(content), PIECE):
            sink.write(content[start : start + PIECE])


class _File:
    """What a file holds, read piece by piece: mapped into memory it would count as the process's,
    all of what is being written at once."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __call__(self, sink: Any) -> None:
        at = 0
        while piece := os.pread(self._descriptor, PIECE, at):
            sink.write(piece)
            at += len(piece)

    def __del__(self) -> None:
        if (descriptor := getattr(self, "_descriptor", None)) is not None:
            os.close(descriptor)


class _Write:
    """Not a closure of `Uploads`: nobody but the transfer holds the content."""

    def __init__(self, uploads: Uploads, name: str, content: Content, shared: bool) -> None:
        self._uploads = uploads
        self._what = name, content, shared

    def __call__(self) -> FileHandle:
        return self._uploads.write(*self._what)

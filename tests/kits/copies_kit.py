"""A storage of files whose reads can be refused, and a task that keeps copies of what it writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from fsspec.implementations.memory import MemoryFileSystem
from strom.checkpoint.cancellation import Cancellation
from strom.checkpoint.file_storage import FileStorage
from strom.checkpoint.handles import FileHandle
from strom.checkpoint.local_files import CopyFolders
from strom.checkpoint.local_reads import CopiesFirst
from strom.checkpoint.local_storage import CopyingStorage
from strom.checkpoint.streaming import PIECE
from strom.core.ids import CheckpointId
from strom.testing.faulty_filesystem import Faults, FaultyFileSystem

N = CheckpointId(3)
LARGE = os.urandom(2 * PIECE + 5)


class Place:
    """A storage whose reads can be refused, and a task that keeps copies of it below `folder`."""

    def __init__(self, folder: Path, *, object_store: bool = False) -> None:
        self.faults = Faults()
        self.filesystem = FaultyFileSystem(MemoryFileSystem(), self.faults, object_store)
        root = f"/local-{uuid4().hex}"
        self.remote = FileStorage(self.filesystem, root, "job", pause=lambda seconds: None)
        self.folder = folder / "copies"
        self.folder.mkdir()
        self.folders = CopyFolders([self.folder], 0)
        self.copying = CopyingStorage(self.remote, self.folders, "task t")

    def write(self, name: str, data: bytes, shared: bool = False) -> FileHandle:
        def pieces(sink: Any) -> None:
            for start in range(0, len(data), 1 << 20):
                sink.write(data[start : start + (1 << 20)])

        return self.copying.write_stream(N, name, pieces, shared, Cancellation())

    def reader(self) -> CopiesFirst:
        return CopiesFirst(self.remote, self.folders, "task t")

    def refuse_reads(self) -> None:
        def refuse(call: str, path: str) -> None:
            if call == "read":
                raise PermissionError(f"{path} is read from the storage")

        self.faults.delay = refuse


def content(read: pa.Buffer) -> bytes:
    return bytes(read)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

"""Copies of checkpoint files on the disks of one machine.

    <folder of the job>/chk-<n>/<data files>            as in the storage (`names`), whole files
    <folder of the job>/shared/<n>-<data files>

A copy gets its name when it is whole. Nothing here fails what it is a copy of.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from .names import SHARED, UNFINISHED

_BUFFER: Final = 1 << 20
"""Bytes; Arrow's own headers come in pieces of a few."""


class CopyFolders:
    """The copies of one job on this machine: in any of `folders`, those of one task in one."""

    def __init__(self, folders: Sequence[str | Path], subtask: int) -> None:
        self._folders = [Path(folder) for folder in folders]
        self._mine = self._folders[subtask % len(self._folders)]

    def new(self, name: str) -> Path:
        """Where this task puts a copy; its folder is made. OSError."""
        path = self._mine / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        return path

    def read(self, name: str, start: int, size: int) -> tuple[bytes, Path] | None:
        """So many bytes of a copy, or less if it ends, and where it is; None: there is none.
        OSError for one that cannot be read."""
        for folder in self._folders:
            with suppress(FileNotFoundError), open(folder / name, "rb") as file:
                file.seek(start)
                return file.read(size), folder / name
        return None

    def place(self, name: str) -> Path | None:
        """Where a copy is; None: there is none."""
        return next((f / name for f in self._folders if (f / name).is_file()), None)

    def names(self) -> set[str]:
        """All copies, finished or not, of all tasks."""
        return {
            f"{part.name}/{entry.name}"
            for folder in self._folders
            for part in _entries(folder)
            for entry in _entries(Path(part.path))
        }

    def remove(self, names: Iterable[str]) -> None:
        """Those of them that are there. What cannot be removed goes with the job's folder."""
        for folder in self._folders:
            parts = set()
            for name in names:
                with suppress(OSError):
                    (folder / name).unlink()
                    parts.add((folder / name).parent)
            for part in parts:
                if part.name != SHARED:
                    with suppress(OSError):  # something is left in it
                        part.rmdir()


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


class Copy:
    """A file that is being written. Whatever goes wrong with it is told, and there is none."""

    def __init__(self, place: Callable[[], Path], failed: Callable[[OSError], None]) -> None:
        self._place = place
        self._failed = failed
        self._path: Path | None = None
        """What it will be called."""
        self._unfinished: Path | None = None
        self._file: Any = None
        """None: it has not begun, or was given up."""
        self._size = 0

    def begun(self) -> Copy:
        """From its beginning; it may have been begun before."""
        self.discard()
        self._size = 0
        try:
            self._path = self._place()
            self._unfinished = self._path.with_name(f"{uuid4().hex}{UNFINISHED}")
            self._file = open(self._unfinished, "xb", _BUFFER)  # noqa: SIM115
        except OSError as error:
            self._give_up(error)
        return self

    def write(self, data: Any) -> None:
        if self._file is None:
            return
        try:
            self._file.write(data)
            self._size += memoryview(data).nbytes
        except OSError as error:
            self._give_up(error)

    def finish(self, size: int) -> bool:
        """It is whole, and so long; whether it is there."""
        if self._file is None or self._path is None or self._unfinished is None:
            return False
        if self._size != size:
            self.discard()
            return False
        try:
            self._file.close()
            os.replace(self._unfinished, self._path)
        except OSError as error:
            self._give_up(error)
            return False
        self._file = None
        return True

    def discard(self) -> None:
        """Nobody wants it."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()
        if self._unfinished is not None:
            with suppress(OSError):
                self._unfinished.unlink()

    def _give_up(self, error: OSError) -> None:
        self.discard()
        self._failed(error)


class Both:
    """What `pyarrow` writes to: a sink of the storage, and the copy."""

    closed = False
    mode = "wb"

    def __init__(self, sink: Any, copy: Copy) -> None:
        self._sink = sink
        self._copy = copy
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._sink.write(data)
        self._copy.write(data)
        size = memoryview(data).nbytes
        self._size += size
        return size

    def flush(self) -> None:
        """Nothing: the storage ends the file."""

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        """Nothing, likewise."""

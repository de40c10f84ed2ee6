"""Where lines are written: a folder per job and machine, files of bounded size per process.

    <temporary folder>/strom-logs-<user>/<job id>/   or a link to <directory>/<job id>
        id                                        a word of its own: the folder to readers
        <role>-<pid>-<began>.<number>.jsonl       a line per record

Each file has its number for good, so that whoever has read up to a place of it finds that place
again. Files outlive their processes, and the job: who begins another job removes old ones.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from ..core.private_folders import private_folder

SUFFIX: Final = ".jsonl"
ID: Final = "id"

MOST_FILES: Final = 400
"""Of one job on one machine: a job that is restarted for ever keeps the last ones."""


def logs_root() -> Path:
    """The folder of all jobs of this user on this machine."""
    return Path(tempfile.gettempdir()) / f"strom-logs-{os.getuid()}"


def log_folder(job_id: str) -> Path:
    """Where this machine has what the job said, if it said anything here."""
    return logs_root() / job_id


def make_log_folder(job_id: str, directory: str | None, retention: timedelta) -> Path:
    """Have it there; what jobs said longer ago than `retention` is removed. OSError and
    ConfigurationError if it cannot be had."""
    root = private_folder(logs_root(), "logs")
    folder = root / job_id
    if not folder.exists():
        if directory is None:
            folder.mkdir(mode=0o700, exist_ok=True)
        else:
            real = Path(directory) / job_id
            real.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                folder.symlink_to(real)
        _sweep(root, folder, retention)
    _name(folder)
    _thin(folder)
    return folder


def files_of(folder: Path) -> list[Path]:
    """In the order of their names: of one process the oldest first."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def _name(folder: Path) -> None:
    """Whoever comes first gives it; it is there whole or not at all."""
    if (folder / ID).exists():
        return
    word = secrets.token_hex(8)
    draft = folder / f".{word}"
    draft.write_text(word)
    with suppress(FileExistsError):
        os.link(draft, folder / ID)
    draft.unlink()


def _sweep(root: Path, mine: Path, retention: timedelta) -> None:
    oldest = time.time() - retention.total_seconds()
    for folder in root.iterdir():
        with suppress(OSError):  # another process removes it as well
            if folder != mine and _last_change(folder) < oldest:
                shutil.rmtree(folder.resolve(), ignore_errors=True)
                if folder.is_symlink():
                    folder.unlink()


def _last_change(folder: Path) -> float:
    times = [file.stat().st_mtime for file in folder.iterdir()] if folder.exists() else []
    return max([folder.lstat().st_mtime, *times])


def _thin(folder: Path) -> None:
    files = sorted(files_of(folder), key=lambda file: file.stat().st_mtime)
    for file in files[:-MOST_FILES]:
        file.unlink(missing_ok=True)


class LogFiles:
    """The files of one process. Used under a lock; children that a process forks write into the
    same, and begin no new ones."""

    def __init__(self, folder: Path, role: str, max_bytes: int, max_files: int) -> None:
        self._folder = folder
        self._pid = os.getpid()
        self._stem = f"{role}-{self._pid}-{time.time_ns() // 1_000_000}"
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._number = 0
        self._size = 0
        self._descriptor: int | None = None
        self._torn = False
        """Whether only a piece of the last line could be written."""

    def write(self, line: bytes) -> None:
        """One record, with its line break. OSError if it cannot be written."""
        if os.getpid() != self._pid:
            if self._descriptor is not None and self._size < 2 * self._max_bytes:
                self._size += os.write(self._descriptor, line)
            return
        if self._descriptor is None or self._size + len(line) > self._max_bytes:
            self._begin()
        assert self._descriptor is not None
        line = b"\n" + line if self._torn else line
        written = os.write(self._descriptor, line)
        self._size += written
        self._torn = written < len(line)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _begin(self) -> None:
        self.close()
        self._number += 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self._path(self._number), flags, 0o600)
        self._size = 0
        self._path(self._number - self._max_files).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._stem}.{number:06}{SUFFIX}"

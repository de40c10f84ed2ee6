"""Where lines are written: a folder per job and machine, files of bounded size per process.

    <temporary folder>/strom-logs-<user>/<job id>/   or a link to <directory>/<job id>
        id      a word of its own: the folder to readers
        lock    shared by the processes that write here, as the folder itself is
        <role>-<pid>-<began>.<number>.jsonl       a line per record, locked while it is written

Each file has its number for good, so that whoever has read up to a place of it finds that place
again. Files outlive their processes, and the job: who begins another job removes those of jobs that
are over. A folder that some process of its job has locked stays, however long nothing was said
there (systemd cleans no temporary folder that is locked, either); what was cleaned away all the
same, a process that goes on writing makes anew.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from ..core.private_folders import private_folder

SUFFIX: Final = ".jsonl"
ID: Final = "id"
LOCK: Final = "lock"

MOST_FILES: Final = 400
"""Of one job on one machine: a job that is restarted for ever keeps the last ones."""

_OURS: Final = re.compile(rf"{ID}|{LOCK}|\.[0-9a-f]{{16}}|[a-z]+-\d+-\d+\.\d+\{SUFFIX}")
"""Names of all files that such a folder has."""

KEEP_S: Final = 60.0
"""How often a process that writes looks whether its folder is still there."""

_TRIES: Final = 3


def logs_root() -> Path:
    """The folder of all jobs of this user on this machine."""
    return Path(tempfile.gettempdir()) / f"strom-logs-{os.getuid()}"


def log_folder(job_id: str) -> Path:
    """Where this machine has what the job said, if it said anything here."""
    return logs_root() / job_id


def name_of(folder: Path) -> str | None:
    """Its name for readers; None if it is not there."""
    try:
        return (folder / ID).read_text()
    except OSError:
        return None


def files_of(folder: Path) -> list[Path]:
    """In the order of their names: of one process the oldest first."""
    return sorted(folder.glob(f"*{SUFFIX}"))


class LogFolder:
    """One job's, of a process that writes there: it has it until `close`."""

    def __init__(self, job_id: str, directory: str | None) -> None:
        """OSError and ConfigurationError if it cannot be had."""
        self.path = log_folder(job_id)
        self._real = self.path if directory is None else Path(directory).absolute() / job_id
        if self.path.exists():  # from an earlier run, perhaps with another directory
            self._real = self.path.resolve()
        self._locks: list[int] = []
        self._name = secrets.token_hex(8)
        """Whoever comes first gives it."""
        for left in reversed(range(_TRIES)):  # somebody may just remove it
            try:
                self.keep()
                self._locks = _locked(self._real, fcntl.LOCK_SH, create=True)
            except FileNotFoundError:
                if not left:
                    raise
                continue
            if self._is_locked():
                break
            self.close()
        _thin(self.path)

    def keep(self) -> None:
        """Have all of it there, under the same name as before. OSError, ConfigurationError."""
        private_folder(logs_root(), "logs")
        self._real.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._real != self.path:
            _link(self.path, self._real)
        identity = self._real / ID
        if not identity.exists():
            draft = self._real / f".{secrets.token_hex(8)}"
            draft.write_text(self._name)
            with suppress(FileExistsError):
                os.link(draft, identity)
            draft.unlink()
        os.utime(identity)
        self._name = identity.read_text()

    def close(self) -> None:
        """It may be removed once its time has come."""
        while self._locks:
            os.close(self._locks.pop())

    def _is_locked(self) -> bool:
        with suppress(OSError):
            return os.path.samestat(os.fstat(self._locks[0]), self._real.stat())
        return False


def sweep(directory: str | None, retention: timedelta) -> None:
    """Remove what jobs that are over said longer ago than `retention`, and have what is left in
    `directory` found again."""
    oldest = time.time() - retention.total_seconds()
    root = logs_root()
    for folder in _folders(root):
        _remove_old(folder, oldest)
        if folder.is_symlink() and not folder.exists():
            folder.unlink(missing_ok=True)
    for folder in _folders(Path(directory).absolute()) if directory is not None else ():
        if not _remove_old(folder, oldest) and name_of(folder) is not None and _only_ours(folder):
            with suppress(OSError):
                _link(root / folder.name, folder)


def _folders(root: Path) -> list[Path]:
    with suppress(OSError):
        return list(root.iterdir())
    return []


def _link(link: Path, real: Path) -> None:
    if link.is_symlink() and not link.exists():
        link.unlink(missing_ok=True)
    with suppress(FileExistsError):
        link.symlink_to(real)


def _only_ours(folder: Path) -> bool:
    """Whether there is something, and nothing of anybody else's."""
    names = [one.name for one in folder.iterdir()] if folder.is_dir() else []
    return bool(names) and all(_OURS.fullmatch(name) for name in names)


def _remove_old(folder: Path, oldest: float) -> bool:
    """Whether it was old, and is gone."""
    with suppress(OSError):  # another process removes it as well
        if _only_ours(folder) and _last_change(folder) < oldest:
            with _alone(folder) as alone:
                if alone and _last_change(folder) < oldest:
                    for file in folder.iterdir():
                        file.unlink(missing_ok=True)
                    folder.resolve().rmdir()
                    return True
    return False


def _last_change(folder: Path) -> float:
    return max(_changed(one) for one in (folder, *folder.iterdir()))


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process has just removed it
        return 0.0


def _thin(folder: Path) -> None:
    """Of files that nobody writes."""
    files = sorted(files_of(folder), key=_changed)
    for file in files[:-MOST_FILES]:
        with suppress(OSError):
            if not _is_written(file):
                file.unlink(missing_ok=True)


class LogFiles:
    """The files of one process. Used under a lock; children that a process forks write into the
    same, and begin no new ones."""

    def __init__(
        self,
        folder: Path,
        role: str,
        max_bytes: int,
        max_files: int,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        """`keep`: called now and then, and before a file is begun; it has the folder there."""
        self._folder = folder
        self._keep = keep
        self._kept = time.monotonic()
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
        elif time.monotonic() - self._kept >= KEEP_S:
            self._kept = time.monotonic()
            self._keep()
            if not self._path(self._number).exists():  # somebody has removed it
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
        self._kept = time.monotonic()
        self._keep()
        self._number += 1
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self._path(self._number), flags, 0o600)
        with suppress(OSError):  # without locks it may be taken for a dead process's
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self._size = 0
        self._path(self._number - self._max_files).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._stem}.{number:06}{SUFFIX}"


# --- locks ---------------------------------------------------------------------------------------


def _locked(folder: Path, how: int, create: bool = False) -> list[int]:
    """The folder itself and the file in it, which other machines see, too: as descriptors, which
    hold what could be locked. BlockingIOError if somebody else's locks forbid it."""
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    held = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        with suppress(FileNotFoundError):
            held.append(os.open(folder / LOCK, flags, 0o600))
        for descriptor in held:
            try:
                fcntl.flock(descriptor, how)
            except BlockingIOError:
                raise
            except OSError:  # there are no locks here: what is old goes by its time alone
                continue
    except BaseException:
        for descriptor in held:
            os.close(descriptor)
        raise
    return held


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether no process has it, and none gets it meanwhile."""
    try:
        held = _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        for descriptor in held:
            os.close(descriptor)


def _is_written(file: Path) -> bool:
    """Whether the process that began it still has it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False

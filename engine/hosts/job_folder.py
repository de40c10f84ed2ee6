"""The folder of one job on one machine: made by the first process of the job there, used by all of
them, removed by the last.

Processes die in any way, so nobody counts them: each holds a shared lock, which the kernel lets go
of with the process. Who gets the exclusive one removes the folder: the last that leaves, or, where
none had the time for that, whoever makes the folder of another job next.

    <root>/<job>.use     shared: a process of the job uses the folder
    <root>/<job>.fill    exclusive: a process makes it
    <root>/<job>.part-*  being made
    <root>/<job>/        whole
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ...core.job_files import CACHE, WORK, files_root, job_folder
from ...core.private_folders import private_folder

log = logging.getLogger("strom")

_NAMES: Final = "names.json"
"""In the folder: what was put into the working directory, as far as it is the job's to remove."""


class JobFolder:
    """One process's hold on it. `leave` may be called from any thread, once or more often."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self.path = job_folder(job_id)
        self._used: int | None = None
        """The descriptor that holds the shared lock; None before `enter` and after `leave`."""

    @property
    def work(self) -> Path:
        """The working directory of functions."""
        return self.path / WORK

    def enter(self, fill: Callable[[Path], list[str]]) -> None:
        """Have the folder there until `leave`. `fill` puts everything into an empty folder and
        returns what it put into the working directory; it is called in one process at a time, and
        not where the folder is there. What it raises is raised, and nothing is left then."""
        root = private_folder(files_root(), "files of jobs")
        self._used = lock(root / f"{self._job_id}.use", fcntl.LOCK_SH)
        try:
            with _filling(root / f"{self._job_id}.fill"):
                if not self.path.exists():
                    sweep(root, self._job_id, _remove)
                    self._make(root, fill)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """The process needs the folder no more. If no other does, it is removed, but for what
        functions have written into their working directory."""
        used, self._used = self._used, None
        if used is not None:
            os.close(used)
            remove_unless_used(self.path.parent, self._job_id, _remove)

    def _make(self, root: Path, fill: Callable[[Path], list[str]]) -> None:
        made = Path(tempfile.mkdtemp(dir=root, prefix=f"{self._job_id}.part-"))
        try:
            names = fill(made)
            (made / _NAMES).write_text(json.dumps(names))
            made.rename(self.path)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise


def lock(path: Path, how: int) -> int:
    """A descriptor that holds the lock on the file that has this name now. BlockingIOError if
    `how` says not to wait, and somebody else has it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, how)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was removed while we waited


@contextmanager
def _filling(path: Path) -> Iterator[None]:
    descriptor = lock(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def sweep(root: Path, job_id: str, remove: Callable[[Path], None]) -> None:
    """Remove what jobs left whose processes are all gone, but for this one."""
    for use in root.glob("*.use"):
        if use.stem != job_id:
            with suppress(OSError):  # not this job's business
                remove_unless_used(root, use.stem, remove)


def remove_unless_used(root: Path, job_id: str, remove: Callable[[Path], None]) -> None:
    """Have the job's folder removed, by `remove`, unless a process holds its lock. Folders that
    are being made, or removed, go, too."""
    use = root / f"{job_id}.use"
    try:
        descriptor = lock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    try:
        remove(root / job_id)
        for part in root.glob(f"{job_id}.part-*"):
            shutil.rmtree(part, ignore_errors=True)
        for file in (root / f"{job_id}.fill", use):
            file.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    if not folder.exists():
        return
    names: list[str] = json.loads((folder / _NAMES).read_text())
    written = sorted({entry.name for entry in (folder / WORK).iterdir()} - set(names))
    if not written:
        # Whole or not there at all, also if this is interrupted.
        gone = folder.rename(folder.with_name(f"{folder.name}.part-gone"))
        shutil.rmtree(gone, ignore_errors=True)
        return
    log.warning(
        "functions of job %s wrote into their working directory, which is the job's, not the "
        "program's: %s stays in %s; write to an absolute path instead",
        folder.name,
        ", ".join(written),
        folder / WORK,
    )
    for name in names:
        shutil.rmtree(folder / WORK / name, ignore_errors=True)
    shutil.rmtree(folder / CACHE, ignore_errors=True)
    (folder / _NAMES).unlink()

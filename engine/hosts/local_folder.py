"""Where a machine keeps copies of what tasks of one job write for checkpoints there.

    <dir>/strom-copies-<user>/<job>.use     shared lock: a process of the job uses the folder
    <dir>/strom-copies-<user>/<job>/        `checkpoint.local_files`

One below each of the configured folders. It belongs to the job and the machine, not to a process:
whoever runs the next attempt there finds what the one before has left. As with `job_folder` the
last process that leaves removes it, or, where processes were killed, the next job that keeps copies
there. A folder that cannot be had is done without.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...core.config import CheckpointConfig
from ...core.errors import ConfigurationError
from ...core.private_folders import private_folder
from .job_folder import lock, remove_unless_used, sweep

log = logging.getLogger("strom")


def copies_roots(dirs: Sequence[str]) -> list[Path]:
    """The folders of all jobs of this user on this machine; `dirs`: as configured."""
    return [Path(one) / f"strom-copies-{os.getuid()}" for one in dirs or [tempfile.gettempdir()]]


class LocalFolders:
    """One process's hold on them. Used from one thread."""

    def __init__(self, job_id: str, dirs: Sequence[str] = ()) -> None:
        self._job_id = job_id
        self._roots = copies_roots(dirs)
        self._used: dict[Path, int] = {}
        """By root, the descriptors that hold the shared locks."""

    def enter(self) -> tuple[str, ...]:
        """Have the folders there until `leave`; those that can be had."""
        for root in self._roots:
            if root not in self._used:
                self._enter(root)
        return tuple(str(root / self._job_id) for root in self._used)

    def leave(self) -> None:
        """The process needs them no more. Those that no other does are removed."""
        used, self._used = self._used, {}
        for root, descriptor in used.items():
            os.close(descriptor)
            try:
                remove_unless_used(root, self._job_id, _remove)
            except OSError as error:
                log.warning("job %s: copies in %s stay: %s", self._job_id, root, error)

    def _enter(self, root: Path) -> None:
        try:
            root.parent.mkdir(parents=True, exist_ok=True)
            private_folder(root, "copies of checkpoints")
            descriptor = lock(root / f"{self._job_id}.use", fcntl.LOCK_SH)
            try:
                (root / self._job_id).mkdir(mode=0o700, exist_ok=True)
            except BaseException:
                os.close(descriptor)
                raise
        except (OSError, ConfigurationError) as error:
            log.warning("job %s: no copies of its checkpoints in %s: %s", self._job_id, root, error)
            return
        self._used[root] = descriptor
        sweep(root, self._job_id, _remove)


def folders_of(job_id: str, config: CheckpointConfig) -> LocalFolders | None:
    """Where this process's tasks of the job keep copies, to be entered; None: they keep none."""
    if not config.keeps_copies or config.storage is None:
        return None
    return LocalFolders(job_id, config.local_dirs)


@contextmanager
def entered(folders: LocalFolders | None) -> Iterator[tuple[str, ...]]:
    """A context with the folders; none if there are none."""
    if folders is None:
        yield ()
        return
    found = folders.enter()
    try:
        yield found
    finally:
        folders.leave()


def _remove(folder: Path) -> None:
    gone = folder.with_name(f"{folder.name}.part-gone")
    shutil.rmtree(gone, ignore_errors=True)
    if folder.exists():
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

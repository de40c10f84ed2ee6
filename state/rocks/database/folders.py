"""Where local databases lie: a folder for each, with a lock that says that somebody uses it.

Folders of processes that were killed are removed by the next one that makes a folder beside them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from ....core.errors import StateError

PREFIX = "strom-rocksdb-"
_LOCK = "lock"


def parent_of(dirs: tuple[str, ...]) -> Path:
    """Where to make the database: tasks take turns among the folders."""
    if not dirs:
        return Path(tempfile.gettempdir())
    _turns[0] += 1
    folder = Path(dirs[_turns[0] % len(dirs)])
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(
            f"the folder {folder} for local state cannot be made ({error}): set "
            "state.backend.rocksdb.localdir to one that can be written"
        ) from error
    return folder


_turns = [0]


def new_folder(parent: Path) -> tuple[Path, int]:
    """A folder of our own, and the lock that says that somebody uses it."""
    try:
        made = Path(tempfile.mkdtemp(prefix=".strom-new-", dir=parent))
        lock = os.open(made / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = made.rename(parent / f"{PREFIX}{made.name.removeprefix('.strom-new-')}")
    except OSError as error:
        raise StateError(
            f"no local database can be made in {parent} ({error}): set "
            "state.backend.rocksdb.localdir to a folder that can be written"
        ) from error
    return folder, lock


def remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def remove_left_over(parent: Path) -> None:
    """Remove what killed processes left: a folder gets its name when its lock is held."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:  # removed but for what RocksDB wrote meanwhile
            shutil.rmtree(folder, ignore_errors=True)
            continue
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)

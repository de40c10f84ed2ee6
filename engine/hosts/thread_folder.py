"""A working directory for one thread, so that functions on the local host find archives by relative
paths, as they do in a process of their own, while the rest of the program stays where it is.

Threads have it from the one that starts them, and share it. So a pool that a library starts for the
whole process has the directory of whoever used the library first: what a pool opens is opened
there. When the thread goes home, all that it started do.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

_CLONE_FS: Final = 0x200


def work_in(folder: Path) -> None:
    """Make `folder` the working directory of the calling thread and of threads it starts from now
    on. OSError where the system has no such thing (Linux has; some containers forbid it): then
    nothing has changed. Not for the main thread: what it starts later would follow."""
    try:
        unshare = ctypes.CDLL(None, use_errno=True).unshare
    except AttributeError:
        raise OSError("threads have no working directories of their own on this system") from None
    if unshare(_CLONE_FS) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.chdir(folder)


def go_home() -> None:
    """After `work_in`, on the same thread: be where the main thread is now, with all threads that
    were started from here. They do not follow it from there."""
    os.chdir("/proc/self/cwd")

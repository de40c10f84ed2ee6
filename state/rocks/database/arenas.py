"""How the C library shares out memory among threads that work on RocksDB.

glibc gives each thread an arena of its own, up to eight for each core, and what one of them frees
stays in its arena. RocksDB allocates in one thread and frees in another, all the time: a process
keeps twice the memory that is in use. Two arenas are enough where one thread does most of the work.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from functools import cache
from typing import Final

ARENAS: Final = 2
_M_ARENA_MAX: Final = -8
"""Of glibc's `malloc.h`."""


def give_back_freed() -> None:
    """Let the system have what lies free between what is in use, where the C library is glibc,
    which keeps it. Milliseconds: for who has had much more in hand than before. Any thread."""
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.gnu_get_libc_version  # noqa: B018  others have it not
            library.malloc_trim(0)


@cache
def share_arenas() -> bool:
    """Let all threads that begin from here on share ARENAS; once per process, which counts from
    then on. False where the environment says how many (`MALLOC_ARENA_MAX`), or where the C library
    is not glibc."""
    if "MALLOC_ARENA_MAX" in os.environ or not sys.platform.startswith("linux"):
        return False
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  others have it not, and other numbers
        return bool(library.mallopt(_M_ARENA_MAX, ARENAS))
    return False

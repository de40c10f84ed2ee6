"""Where a coordinator was, as `OutputClaim` tells it, and whether it is known to be gone."""

from __future__ import annotations

import os
import re
import socket

_PROCESS = re.compile(r"process (\d+) on (.*)", re.DOTALL)


def is_dead(place: str) -> bool:
    """Whether a process of this machine is known to be gone."""
    found = _PROCESS.fullmatch(place)
    if found is None or found[2] != socket.gethostname():
        return False
    try:
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _is_zombie(int(found[1]))


def _is_zombie(pid: int) -> bool:
    """Whether it is dead, and only its parent has not asked how it ended. Told on Linux alone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as about:
            return about.read().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return False

"""How a task's process died, from what it left in its log.

Ray knows only that the connection broke. But its workers write the signal that ends them, and
Python's lines at that moment, to their standard error, and a function that leaves the process by
`os._exit` is made to say so there, too. The coordinator reads the end of that file where it can,
that is, on its own node, and names the file in any case.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import Any

from ...core.failure_text import is_users_file

TAIL_BYTES = 65_536
"""How much of a log's end is read."""

_SIGNAL = re.compile(r"^\*\*\* (SIG\w+) received", re.MULTILINE)
_FATAL = re.compile(r"^Fatal Python error: (.*)$", re.MULTILINE)
_LINE = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_EXIT = re.compile(r"^strom: (os\._exit\(.*\) was called.*)$", re.MULTILINE)

_SHORT_OF_MEMORY = ("OUT_OF_MEMORY", "running low on memory", "memory pressure")
"""In Ray's account of a process that Ray itself ended."""


@dataclass(frozen=True)
class Whereabouts:
    """Of a task's process. `log`: its standard error, None if that is no file."""

    node: str
    pid: int
    log: str | None


def own_whereabouts() -> Whereabouts:
    """Of this process."""
    try:
        log = os.readlink("/proc/self/fd/2")
    except OSError:
        log = ""
    return Whereabouts(os.uname().nodename, os.getpid(), log if os.path.isfile(log) else None)


def confess_exits() -> None:
    """From now on whoever calls `os._exit` in this process says so in its log first."""
    leave, pid = os._exit, os.getpid()

    def leaving(status: int) -> Any:
        if os.getpid() == pid:  # and not in a child that a function forked
            frame = sys._getframe(1)
            at = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
            os.write(2, f"\nstrom: os._exit({status}) was called at {at}\n".encode())
        leave(status)

    os._exit = leaving


def how_it_died(process: Whereabouts | None, rays_account: str) -> str:
    """One sentence about a process that is gone. `rays_account`: what Ray says about it."""
    known = None if process is None else _told(process)
    if known is None:
        known = (
            "Ray ended it because its node ran short of memory"
            if any(words in rays_account for words in _SHORT_OF_MEMORY)
            else "it was killed, or ended itself, without a word"
        )
    where = "" if process is None else _log_of(process)
    return f"its process died: {known}{where}"


def _log_of(process: Whereabouts) -> str:
    if process.log is None:
        return f" (process {process.pid} on {process.node}; its log and the kernel's may say more)"
    return f"; see its log {process.log} on {process.node} (process {process.pid})"


def _told(process: Whereabouts) -> str | None:
    """What the end of the log says; None if it is not here or says nothing."""
    try:
        with open(process.log or "", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    if exits := _EXIT.findall(text):
        return str(exits[-1])
    signals, fatal = _SIGNAL.findall(text), list(_FATAL.finditer(text))
    if not signals and not fatal:
        return None
    what = signals[-1] if signals else fatal[-1][1]
    place = _place(text[fatal[-1].end() :]) if fatal else None
    return what if place is None else f"{what} at {place}"


def _place(stack: str) -> str | None:
    """The innermost line of user code of a stack that faulthandler wrote."""
    lines = _LINE.findall(stack.split("\n\nExtension modules")[0])
    users = [line for line in lines if is_users_file(line[0])]
    return "{}:{} in {}".format(*users[0]) if users else None

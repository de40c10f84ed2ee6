"""Programs that commands run beside them: who ends the command ends the program, as that likes to
be ended."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from ..core.child_output import Heard, followed

_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM)

INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit code of a program that Ctrl-C has ended."""

Handler = Callable[[int, "FrameType | None"], Any]


def exit_code(
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
    stdout: int | None = None,
    heard: Heard | None = None,
) -> int:
    """Run it until it ends by itself: its exit code, or as shells have it 128 and the signal that
    ended it. `stdout`: a descriptor; `heard`: is given what it writes to stderr, line by line.

    SIGTERM, and Ctrl-C where it does not reach the program from the terminal, are the program's."""
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        if process is None:
            early.append(number)
        elif process.returncode is not None:  # only its last words are waited for
            raise SystemExit(128 + number)
        elif number != signal.SIGINT or not _in_foreground():
            process.send_signal(number)

    with _handled(pass_on):
        process = subprocess.Popen(
            words,
            env=environment,
            cwd=folder,
            stdout=stdout,
            stderr=None if heard is None else subprocess.PIPE,
        )
        for number in early:
            process.send_signal(number)
        if heard is None or process.stderr is None:
            code = process.wait()
        else:
            code = followed(process, process.stderr, heard)
    return code if code >= 0 else 128 - code


@contextmanager
def _handled(handler: Handler) -> Iterator[None]:
    """What is ignored here the program ignores, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _PASSED_ON}
    before = {number: one for number, one in before.items() if one not in (signal.SIG_IGN, None)}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, one in before.items():
            signal.signal(number, one)


def _in_foreground() -> bool:
    """Whether a terminal sends its signals to this process, and so to its children."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)

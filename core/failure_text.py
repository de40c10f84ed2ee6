"""What an error says, as text for reports: safe to make, of bounded length, the user's lines first.

An error does not travel between processes: its class may be unknown there, it may not pickle, and
its text may be unable to be had or as long as a file. What travels is what these functions make.
"""

from __future__ import annotations

import os
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType

TEXT_LIMIT = 10_000
"""The most characters of one error's text."""

SUMMARY_LIMIT = TEXT_LIMIT + 2_000
"""The most characters of what is said about an error: its text, and where and when it came."""

TRACE_LIMIT = 20_000
"""The most characters of one traceback, of which each line has `TRACE_LINE_LIMIT` at most."""

TRACE_LINE_LIMIT = 2_000

_ROOT = os.path.dirname(os.path.dirname(__file__))
_OWN = tuple(
    os.path.join(_ROOT, folder, "")
    for folder in ("api", "checkpoint", "connectors", "core", "engine", "operators", "state")
)
"""Folders of the package's own code; what else is in its root uses it as users do."""

_LIBRARIES = tuple(
    os.path.join(path, "")
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)


def cut(text: str, limit: int = TEXT_LIMIT) -> str:
    """The text, or if it is longer than `limit` its head and tail and how much is left out.

    >>> cut("0123456789", 4)
    '01 [... 6 characters left out ...] 89'
    """
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 2, limit // 2
    return f"{text[:head]} [... {len(text) - limit} characters left out ...] {text[-tail:]}"


def text_of(error: BaseException) -> str:
    """`str(error)`, cut; a user's exception may be unable to say it."""
    try:
        return cut(str(error))
    except BaseException as second:
        return f"(its text cannot be had: {type(second).__name__})"


def described(error: BaseException) -> str:
    """`Type: text`, or only the type of an error that says nothing.

    >>> described(KeyError("n")), described(KeyboardInterrupt())
    ("KeyError: 'n'", 'KeyboardInterrupt')
    """
    text = text_of(error) + next_advice(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def next_advice(error: BaseException) -> str:
    """What to say behind a StopIteration that comes out of user code, or out of a generator of it:
    alone it has no text. Empty for every other error."""
    ended = isinstance(error, StopIteration)
    if not ended and not isinstance(error.__cause__, StopIteration):
        return ""
    advice = "next() found its iterator at the end: give it a default, as in next(found, None)"
    return advice if ended and not error.args else f" ({advice})"


def traced(error: BaseException) -> str:
    """The traceback, cut, from the first line that is not the package's own on: what is above has
    been the same for every error."""
    start = error.__traceback__
    while start is not None and _is_own(start.tb_frame):
        start = start.tb_next
    trace = start or error.__traceback__
    pieces = traceback.format_exception(type(error), error, trace)
    return cut("".join(cut(piece, TRACE_LINE_LIMIT) for piece in pieces), TRACE_LIMIT)


def place_of(error: BaseException) -> str | None:
    """`file:line in function`: the innermost line of the user's own code, of a library's if there
    is none; None if the error comes from the package itself."""
    library: str | None = None
    users: str | None = None
    for frame, line in _lines(error.__traceback__):
        if _is_own(frame):
            continue
        place = f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
        if frame.f_code.co_filename.startswith(_LIBRARIES):
            library = place
        else:
            users = place
    return users or library


def with_place(error: BaseException) -> str:
    """`described`, and where the user's code raised it."""
    place = place_of(error)
    return described(error) if place is None else f"{described(error)} (at {place})"


def is_users_file(name: str) -> bool:
    """Whether a source file is neither the package's own nor a library's."""
    return not name.startswith((*_OWN, *_LIBRARIES, "<frozen"))


def is_for_the_program(error: BaseException) -> bool:
    """Whether somebody pressed Ctrl-C: Python raises that in the main thread only. A
    KeyboardInterrupt anywhere else is a function's own doing, and an error like any other."""
    on_main = threading.current_thread() is threading.main_thread()
    return on_main and isinstance(error, KeyboardInterrupt)


def _lines(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    yield from traceback.walk_tb(trace)


def _is_own(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OWN)

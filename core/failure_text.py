"""What an error says, as text for reports: safe to make, of bounded length, the user's lines first.

An error does not travel between processes: its class may be unknown there, it may not pickle, and
its text may be unable to be had or as long as a file. What travels is what these functions make.
"""

from __future__ import annotations

import os
import re
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType

from .texts import encodable

TEXT_LIMIT = 10_000
"""The most characters of one error's text."""

SUMMARY_LIMIT = TEXT_LIMIT + 2_000
"""The most characters of what is said about an error: its text, and where and when it came."""

TRACE_LIMIT = 20_000
"""The most characters of one traceback, of which each line has `TRACE_LINE_LIMIT` at most."""

TRACE_LINE_LIMIT = 2_000

ADVICE = "next() found its iterator at the end: give it a default, as in next(found, None)"
"""What is said of a StopIteration, which mostly has no text."""

_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+), in (?P<name>.*)')
"""How Python shows a frame."""

_NOTE = "\n\nThis error occurred in the following expression:\n"
"""What polars writes below the text of an error that a function of an expression raised."""

_TURNED = (("generator raised StopIteration",), ("coroutine raised StopIteration",))
"""What Python says of a StopIteration that it turns into a RuntimeError."""

_ROOT = os.path.dirname(os.path.dirname(__file__))
_OWN = tuple(
    os.path.join(_ROOT, folder, "")
    for folder in (
        *("api", "checkpoint", "cluster", "connectors", "core", "engine", "logs", "operators"),
        *("plan", "replaying", "state"),
    )
)
"""Folders of the package's own code; what else is in its root uses it as users do."""

_LIBRARIES = tuple(
    os.path.join(path, "")
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)


_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
"""In the paths of libraries that are installed elsewhere."""


def cut(text: str, limit: int = TEXT_LIMIT) -> str:
    """The text, or if it is longer than `limit` its head and tail and how much is left out.

    >>> cut("0123456789", 4)
    '01 [... 6 characters left out ...] 89'
    """
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 2, limit // 2
    return f"{text[:head]} [... {len(text) - limit} characters left out ...] {text[-tail:]}"


def shown(value: object, limit: int = 200) -> str:
    """The repr of a value for a message, cut; one that raises is a user's, and must not take the
    place of the error that the message is about.

    >>> shown("a" * 10, 6), shown(1)
    ("'aa [... 6 characters left out ...] aa'", '1')
    """
    try:
        text = repr(value)
    except Exception as error:
        return f"({type(value).__name__}, whose repr raises {described(error)})"
    return cut(text, limit)


def text_of(error: BaseException) -> str:
    """`str(error)`, cut; a user's exception may be unable to say it. What polars says of the
    expression in which a function raised stands behind it, in the same line. It can be written
    anywhere: names of files that are no UTF-8 come from users' functions, too."""
    try:
        text, where = _without_note(str(error))
    except BaseException as second:
        return f"(its text cannot be had: {type(second).__name__})"
    return encodable(cut(text) + where)


def described(error: BaseException) -> str:
    """`Type: text`, or only the type of an error that says nothing.

    >>> described(KeyError("n")), described(KeyboardInterrupt())
    ("KeyError: 'n'", 'KeyboardInterrupt')
    """
    error = raised(error)
    text = text_of(error)
    if isinstance(error, StopIteration):
        silent = not text or text.startswith(" (")
        text = ADVICE + text if silent else f"{text} ({ADVICE})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def raised(error: BaseException) -> BaseException:
    """The StopIteration that Python turned into a RuntimeError, because the code that let it out
    was called from a generator or coroutine: its place is the one that tells. Any other error is
    itself."""
    cause = error.__cause__
    turned = type(error) is RuntimeError and error.args in _TURNED
    return cause if turned and isinstance(cause, StopIteration) else error


def traced(error: BaseException) -> str:
    """The traceback, cut, from the first line of the user's code on: what is above has been the
    same for every error. Of an error without one, from the first that is not the package's own.
    Behind the user's lines, and in the errors that it was raised from, the package's calls are
    one line, which says how many there are and where they lead."""
    error = raised(error)
    frames = list(_frames(error.__traceback__))
    start = next((frame for frame in frames if _is_users(frame.tb_frame)), None)
    if start is None:
        start = next((frame for frame in frames if not _is_own(frame.tb_frame)), None)
    trace = start or error.__traceback__
    pieces = traceback.format_exception(type(error), error, trace)
    pieces = ["".join(_without_note(piece)) for piece in pieces]
    if start is not None and _is_users(start.tb_frame):
        pieces = list(_folded(pieces))
    whole = cut("".join(cut(piece, TRACE_LINE_LIMIT) for piece in pieces), TRACE_LIMIT)
    return encodable(whole)


def _folded(pieces: list[str]) -> Iterator[str]:
    """The parts of a traceback, of which each frame is one, with the package's own put together."""
    count, last = 0, ""
    for piece in pieces:
        frame = _FRAME.match(piece)
        if frame is not None and frame["file"].startswith(_OWN):
            file = os.path.relpath(frame["file"], _ROOT)
            count, last = count + 1, f"strom/{file}:{frame['line']} in {frame['name']}"
            continue
        if count:
            yield _fold(count, last)
            count = 0
        yield piece
    if count:
        yield _fold(count, last)


def _fold(count: int, last: str) -> str:
    calls = "1 call" if count == 1 else f"{count} calls"
    return f"  [inside strom: {calls}, the last {last}]\n"


def place_of(error: BaseException, libraries: bool = True) -> str | None:
    """`file:line in function`: the innermost line of the user's own code, also of the error that
    this one was raised from. If there is none, and `libraries`, a library's; None if the error
    comes from the package itself."""
    error = raised(error)
    library: str | None = None
    looked: BaseException | None = error
    seen: list[BaseException] = []
    while looked is not None and not any(looked is one for one in seen):
        users: str | None = None
        for trace in _frames(looked.__traceback__):
            code = trace.tb_frame.f_code
            place = f"{code.co_filename}:{trace.tb_lineno} in {code.co_name}"
            if _is_users(trace.tb_frame):
                users = place
            elif looked is error and not _is_own(trace.tb_frame):
                library = place
        if users is not None:
            return users
        seen.append(looked)
        looked = looked.__cause__
    return library if libraries else None


def with_place(error: BaseException) -> str:
    """`described`, and where the user's code raised it."""
    return described(error) + _at(place_of(error))


def users_place(error: BaseException) -> str:
    """` (at file:line in function)` if the user's code is in the error's trace, else nothing: for
    errors that say all else themselves."""
    return _at(place_of(error, libraries=False))


def _at(place: str | None) -> str:
    return "" if place is None else f" (at {place})"


def is_users_file(name: str) -> bool:
    """Whether a source file is neither the package's own nor a library's."""
    if name.startswith((*_OWN, *_LIBRARIES, "<frozen")):
        return False
    compiled = name.endswith((".pyx", ".pxi"))
    return not compiled and not any(folder in name for folder in _INSTALLED)


def is_for_the_program(error: BaseException) -> bool:
    """Whether somebody pressed Ctrl-C: Python raises that in the main thread only. A
    KeyboardInterrupt anywhere else is a function's own doing, and an error like any other."""
    on_main = threading.current_thread() is threading.main_thread()
    return on_main and isinstance(error, KeyboardInterrupt)


def _without_note(text: str) -> tuple[str, str]:
    """A text without what polars writes below it, in lines of its own, and that as one clause."""
    head, found, expression = text.rpartition(_NOTE)
    if not found:
        return text, ""
    return head, f" (in the expression {' '.join(cut(expression).split())})"


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_own(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OWN)


def _is_users(frame: FrameType) -> bool:
    return is_users_file(frame.f_code.co_filename)

"""Stdout and stderr of commands: they take any text, whatever their encoding, and may be full, or
closed, or read by nobody."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

_DELETE: Final = "\x7f"
"""The one control character that JSON in ASCII has as it is."""


class UnwritableError(Exception):
    """Stdout takes no more, and the command ends; `unread`: as nobody reads it (`| head`)."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"stdout takes no more: {error.strerror or error}")
        self.unread = isinstance(error, BrokenPipeError)


def take_any_text() -> None:
    """Once, before a command runs: what the encoding has no form of is written as its escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def writing(flush: bool = False) -> Iterator[None]:
    """Everything that goes to stdout does so within: UnwritableError. What is done there writes to
    nothing else."""
    try:
        yield
        if flush and sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _drop(sys.stdout)
        raise UnwritableError(error) from None


def note(text: str) -> None:
    """Lines on stderr; where that takes none, nobody is told."""
    if sys.stderr is None:
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _drop(sys.stderr)


def json_text(plain: Any, indent: int | None = None) -> str:
    """As stdout takes it, with escapes for what is not printable or has no form in its encoding.
    ValueError: NaN or infinities."""
    text = json.dumps(plain, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(plain, indent=indent, allow_nan=False)
    return "\n".join(line if line.isprintable() else _escaped(line) for line in text.split("\n"))


def _escaped(text: str) -> str:
    return "".join(
        one if one.isprintable() else "\\u007f" if one == _DELETE else json.dumps(one)[1:-1]
        for one in text
    )


def _drop(stream: TextIO | None) -> None:
    """What it still holds goes nowhere: else Python tries again when it exits, and says so."""
    with suppress(OSError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]
        finally:
            os.close(nowhere)

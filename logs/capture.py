"""What functions print: it goes where it went before, and line by line into the job's log.

The stream that stands for stdout or stderr writes everything through first; whatever happens to the
log, the program's output is what it was. What one thread prints is put together to lines of its
own: several threads' pieces do not mix. Of a line that a carriage return writes over (progress
bars) the last state counts; a line without an end is taken when it is long, and when the log ends.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final, TextIO

LONGEST_LINE: Final = 8_192
"""Characters; what comes behind begins a line of its own."""

_LOGGING: Final = logging.StreamHandler.emit.__code__.co_filename
"""Handlers of `logging` write records, which the log has as such."""

Take = Callable[[str, str, FrameType], None]
"""The stream's name, a line without its end, the frame that printed."""


class CapturedStream:
    """Stands for a text stream; all that is not writing is the stream's own."""

    def __init__(self, name: str, stream: TextIO, take: Take) -> None:
        self._name = name
        self._stream = stream
        self._take = take
        self._parts: dict[int, str] = {}
        """Lines without an end, by thread."""

    def write(self, text: str) -> int:
        written = self._stream.write(text)
        frame = sys._getframe(1)
        if frame.f_code.co_filename != _LOGGING:
            self._taken(text, frame)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        frame = sys._getframe(1)
        for line in lines:
            self._stream.write(line)
            self._taken(line, frame)

    def flush(self) -> None:
        self._stream.flush()

    def close_lines(self) -> None:
        """Take what has no end."""
        for thread in list(self._parts):
            rest = self._parts.pop(thread, "")
            if rest:
                self._line(rest, sys._getframe(1))

    @property
    def captured(self) -> TextIO:
        """What it stands for."""
        return self._stream

    def _taken(self, text: str, frame: FrameType) -> None:
        thread = threading.get_ident()
        text = self._parts.pop(thread, "") + text
        if "\n" in text:
            *lines, text = text.split("\n")
            for line in lines:
                self._line(line, frame)
        while len(text) > LONGEST_LINE:
            self._line(text[:LONGEST_LINE], frame)
            text = text[LONGEST_LINE:]
        if text:
            self._parts[thread] = text

    def _line(self, line: str, frame: FrameType) -> None:
        line = line.removesuffix("\r").rpartition("\r")[2]
        if line:
            self._take(self._name, line, frame)

    def __iter__(self) -> Any:
        return iter(self._stream)

    def __enter__(self) -> CapturedStream:
        return self

    def __exit__(self, *_: Any) -> None:
        self.flush()

    def __getattr__(self, name: str) -> Any:
        if name == "_stream":  # of an object that is still being made, as a copy is
            raise AttributeError(name)
        return getattr(self._stream, name)

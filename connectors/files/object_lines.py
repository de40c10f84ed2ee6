"""JSON Lines on their way to the parser, looked at line by line, without Python per line."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import numpy as np
import pyarrow as pa

_NEWLINE, _BRACE, _CLOSED = ord("\n"), ord("{"), ord("}")
_SPACE = np.frombuffer(b" \t\r\n", dtype=np.uint8)
_BEHIND_OBJECT = re.compile(rb"\}[ \t\r]*[^ \t\r\n,}\]]")
"""What follows no brace in JSON on one line, unless the brace is in a text."""


_BEHIND = np.zeros(256, dtype=np.bool_)
_BEHIND[list(b",}]\n")] = True
"""What mostly follows a brace."""


class ObjectLines(io.RawIOBase):
    """A file of JSON Lines; `read` raises ArrowInvalid for a line that begins no object, at which
    Arrow's parser may end the process (`null`), or pass it over, and for one that holds more than
    an object, of which it would make several rows."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._line_start = True
        """Whether nothing but space has come since the last line began."""
        self._line = b""
        """What has come of the last line."""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece: bytes = self._file.read(None if size < 0 else size)
        self._check(piece)
        self._check_ends(piece)
        return piece

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def _check(self, piece: bytes) -> None:
        if not piece:
            return
        data = np.frombuffer(piece, dtype=np.uint8)
        starts = np.flatnonzero(data == _NEWLINE) + 1
        begins = data[starts[starts < len(data)]]
        if self._line_start:
            begins = np.append(begins, data[0])
        odd = begins[begins != _BRACE]
        if not np.isin(odd, _SPACE).all():
            raise pa.ArrowInvalid("a line is not a JSON object")
        if len(odd):
            self._check_slowly(piece)
        else:
            self._line_start = bool(data[-1] == _NEWLINE)

    def _check_ends(self, piece: bytes) -> None:
        """Of the lines that this piece completes; an empty one completes the last."""
        whole, newline, rest = piece.rpartition(b"\n")
        if piece and not newline:
            self._line += piece
            return
        lines = self._line + whole
        self._line = rest
        if not _may_be_several(lines):
            return
        at = 0
        while (found := _BEHIND_OBJECT.search(lines, at)) is not None:
            first = lines.rfind(b"\n", 0, found.start()) + 1
            at = lines.find(b"\n", found.start()) % (len(lines) + 1)
            try:
                json.loads(lines[first:at])
            except json.JSONDecodeError as error:
                if error.msg == "Extra data":
                    raise pa.ArrowInvalid("a line holds more than one JSON object") from None
            except UnicodeDecodeError:
                pass  # the parser names it

    def _check_slowly(self, piece: bytes) -> None:
        """Where lines are empty or begin with space."""
        lines = piece.split(b"\n")
        for at, line in enumerate(lines):
            text = line.strip()
            at_start = self._line_start if at == 0 else True
            if at_start and text and not text.startswith(b"{"):
                raise pa.ArrowInvalid("a line is not a JSON object")
        last_start = self._line_start if len(lines) == 1 else True
        self._line_start = last_start and not lines[-1].strip()


def _may_be_several(lines: bytes) -> bool:
    """Whether to look more closely: false of most files as a whole."""
    data = np.frombuffer(lines, dtype=np.uint8)
    behind = data[np.flatnonzero(data[:-1] == _CLOSED) + 1]
    return not bool(_BEHIND[behind].all())

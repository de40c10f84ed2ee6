"""What a process prints, line by line, until it is over: whatever it has left behind may hold the
pipe for ever."""

from __future__ import annotations

import os
import selectors
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Final

LINE: Final = 2_000
"""Bytes; a longer one comes in pieces."""

PIECE: Final = 1 << 16

LAST_WORDS_S: Final = 1.0
"""How long what a process has left in the pipe is read for once it is over."""

MOST_LEFT: Final = 16
"""Pieces that are taken of what is there then."""

Heard = Callable[[Sequence[bytes]], None]


def followed(
    process: subprocess.Popen[bytes],
    output: IO[bytes],
    heard: Heard,
    over: Callable[[], None] = lambda: None,
) -> int:
    """Wait for the process: its return code. `output`: its end of a pipe, which is closed;
    `heard`: is given its lines with their ends, on another thread; `over`: called as soon as the
    process is, when more may be heard."""
    ended, end = os.pipe()
    reading = threading.Thread(
        target=_read, args=(output, ended, heard), name="strom-read", daemon=True
    )
    reading.start()
    try:
        code = process.wait()
        over()
        reading.join(LAST_WORDS_S)
    finally:
        os.close(end)
    reading.join()
    os.close(ended)
    return code


def _read(output: IO[bytes], ended: int, heard: Heard) -> None:
    """Until nobody can write any more, or the other end of `ended` is closed."""
    rest = b""
    with output, selectors.DefaultSelector() as ready:
        ready.register(output, selectors.EVENT_READ)
        ready.register(ended, selectors.EVENT_READ)
        while all(key.fd != ended for key, _ in ready.select()):
            piece = os.read(output.fileno(), PIECE)
            *lines, rest = _lines(rest + piece)
            heard(lines)
            if not piece:
                break
        else:
            *lines, rest = _lines(rest + _left(output.fileno()))
            heard(lines)
    heard([rest] if rest else [])


def _left(pipe: int) -> bytes:
    """What is in it now: whoever hears the lines may have been slow."""
    os.set_blocking(pipe, False)
    pieces: list[bytes] = []
    with suppress(BlockingIOError):
        while len(pieces) < MOST_LEFT and (piece := os.read(pipe, PIECE)):
            pieces.append(piece)
    return b"".join(pieces)


def _lines(text: bytes) -> list[bytes]:
    """With their ends, in pieces of `LINE`; the last is what has no end yet, maybe empty."""
    *whole, last = text.split(b"\n")
    return [
        line[at : at + LINE]
        for line in (*(one + b"\n" for one in whole), last)
        for at in range(0, len(line) or 1, LINE)
    ]

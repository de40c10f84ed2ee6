"""A file that is written in pieces: counted, summed up and handed on as it comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import xxhash

PIECE: Final = 8 << 20
"""Bytes that are gathered before a file is opened at all, and then written at once. Object stores
want parts of 5 MiB at least, and allow ten thousand of them."""


class PieceWriter:
    """What `pyarrow` writes a file to. It opens the target with the first whole piece; what is
    smaller than that never does, and is `rest`."""

    closed = False
    mode = "wb"

    def __init__(self, open_target: Callable[[], Any], check: Callable[[], None]) -> None:
        """`open_target`: a file to write to; `check` is called before each piece, and raises if it
        is not wanted any more."""
        self._open = open_target
        self._check = check
        self._sum = xxhash.xxh64()
        self._buffer = bytearray()
        """Less than a piece."""
        self.size = 0
        self.target: Any = None
        """The file, once there is more than a piece."""

    @property
    def checksum(self) -> str:
        """xxh64 of all that was written, 16 hex digits."""
        return str(self._sum.hexdigest())

    @property
    def rest(self) -> bytes:
        """What was written and not handed on."""
        return bytes(self._buffer)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._sum.update(view)
        self.size += len(view)
        room = PIECE - len(self._buffer)
        if len(view) < room:
            self._buffer += view
            return len(view)
        if self._buffer:
            self._buffer += view[:room]
            self._hand_on(self._buffer)
            self._buffer = bytearray()
            at = room
        else:
            at = 0
        while len(view) - at >= PIECE:
            self._hand_on(view[at : at + PIECE])
            at += PIECE
        self._buffer += view[at:]
        return len(view)

    def flush(self) -> None:
        """Nothing: only whole pieces are handed on."""

    def tell(self) -> int:
        return self.size

    def close(self) -> None:
        """Nothing: who opened the target closes it."""

    def _hand_on(self, piece: Any) -> None:
        self._check()
        if self.target is None:
            self.target = self._open()
        self.target.write(piece)

"""Small files of one task's checkpoint, written as one.

A task with many states would write as many files, most of them of some hundred bytes, and each of
them is a request, an entry in a folder and, on most storages, a block. So what is small is
gathered, in the order in which it comes, and written as a *pack*: the files one behind the other,
each beginning at a multiple of eight bytes. Handles say where (`FileHandle.offset`). A small file
that found no other one stays a file of its own.

Of files that checkpoints share a pack stays as long as anybody needs a part of it. So those parts
are smaller: what is kept for nothing is less than a hundred (`increments.MOST_DELTAS`) of them for
each state of the task that is needed no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from .handles import FileHandle
from .storage import checksum
from .transfers import Pending

SMALL: Final = 1 << 20
"""Files of fewer bytes are gathered."""

SMALL_SHARED: Final = 1 << 16
"""The same of those that checkpoints share."""

PACK: Final = 4 << 20
"""A pack of so many bytes takes no more."""

ALIGNMENT: Final = 8
"""As in Arrow's own files."""

Submit = Callable[[str, pa.Buffer], Pending[FileHandle]]
"""Begins to write a file with such a name."""


class Packing:
    """The small files of one kind. Used from one thread."""

    def __init__(self, name: str, submit: Submit) -> None:
        """`name`: what names of packs begin with."""
        self._name = name
        self._submit = submit
        self._packs = 0
        self._open: Pack | None = None
        """The one that takes more."""

    def add(self, name: str, data: pa.Buffer) -> Pending[FileHandle]:
        """Gather a file; `name` is what it is called if it stays alone. Its `result` has what was
        gathered so far written."""
        if self._open is None or self._open.begun:
            self._open = Pack(f"{self._name}-{self._packs}.pack", self._submit)
            self._packs += 1
        pack = self._open
        part = pack.add(name, data)
        if pack.size >= PACK:
            pack.begin()
        return part


class Pack:
    """A file of several, while it is gathered and written."""

    def __init__(self, name: str, submit: Submit) -> None:
        self._name = name
        self._submit = submit
        self._parts: list[tuple[str, pa.Buffer]] = []
        self._pending: Pending[FileHandle] | None = None
        self._alone = True
        self.size = 0

    @property
    def begun(self) -> bool:
        """Whether it is being written, and takes nothing more."""
        return self._pending is not None

    def add(self, name: str, data: pa.Buffer) -> Part:
        assert not self.begun
        self._alone = not self._parts
        offset = _aligned(self.size)
        self._parts.append((name, data))
        self.size = offset + data.size
        return Part(self, offset, data.size, checksum(data))

    def begin(self) -> None:
        """Begin to write it, unless that has been done."""
        if self._pending is not None:
            return
        parts, self._parts = self._parts, []
        if self._alone:
            ((name, data),) = parts
            self._pending = self._submit(name, data)
            return
        content = bytearray(self.size)
        at = 0
        for _, data in parts:
            at = _aligned(at)
            content[at : at + data.size] = memoryview(data)
            at += data.size
        self._pending = self._submit(self._name, pa.py_buffer(content))

    def handle(self, offset: int, size: int, sum_: str) -> FileHandle:
        """Of a part, when all is written; raises what failed."""
        self.begin()
        assert self._pending is not None
        whole = self._pending.result()
        if self._alone:
            return whole
        return FileHandle(whole.path, size, sum_, shared=whole.shared, offset=offset)


class Part:
    """A file in a pack: a `Pending`."""

    def __init__(self, pack: Pack, offset: int, size: int, sum_: str) -> None:
        self._pack = pack
        self._what = offset, size, sum_

    def result(self) -> FileHandle:
        return self._pack.handle(*self._what)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT

"""The files of a checkpoint that somebody is about to read, read ahead of him.

Several at a time (`transfers`), in the order in which they will be asked for, and only so far that
what is read and not taken yet is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Final

import pyarrow as pa

from ..core.ids import CheckpointId
from .cancellation import Cancellation
from .handles import FileHandle
from .transfers import Pending, Transfers

AHEAD: Final = 8
"""Files that are read and not taken."""

AHEAD_BYTES: Final = 128 << 20
"""Bytes of them; the next one may be larger."""

Read = Callable[[CheckpointId, FileHandle], pa.Buffer]


class Downloads:
    """A context in which `read_file` gives what is there already. Used from one thread. What is
    still on its way when it ends is not wanted any more."""

    def __init__(self, read: Read, checkpoint_id: CheckpointId, transfers: Transfers) -> None:
        self._read = read
        self._checkpoint_id = checkpoint_id
        self._transfers = transfers
        self._wanted: deque[FileHandle] = deque()
        """Not begun, in the order in which they are asked for."""
        self._begun: dict[FileHandle, Pending[pa.Buffer]] = {}
        self._size = 0
        """Bytes of those begun."""
        self._cancellation = Cancellation("reading the checkpoint")

    def want(self, handles: Iterable[FileHandle]) -> None:
        """These will be asked for, once each and in this order."""
        self._wanted.extend(handles)

    def read_file(self, checkpoint_id: CheckpointId, handle: FileHandle) -> pa.Buffer:
        """As of the storage."""
        self._begin()
        found = self._begun.pop(handle, None)
        if found is None:
            return self._read(checkpoint_id, handle)
        self._size -= handle.size
        return found.result()

    def __enter__(self) -> Downloads:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cancellation.cancel()
        self._begun.clear()

    def _begin(self) -> None:
        while self._wanted and len(self._begun) < AHEAD:
            handle = self._wanted[0]
            if self._begun and self._size + handle.size > AHEAD_BYTES:
                return
            self._wanted.popleft()
            if handle in self._begun:
                continue
            read = partial(self._read, self._checkpoint_id, handle)
            self._begun[handle] = self._transfers.submit(handle.size, read, self._cancellation)
            self._size += handle.size

"""Results in batches of a good size: small ones gathered, none beyond a limit."""

from __future__ import annotations

from ...core.batch import Batch, compatible, concat
from ..base import Output


class ChunkedOutput:
    """What is added goes out in order, at the latest with `flush`. Invariant: what waits is
    compatible with each other and less than `limit` rows."""

    def __init__(self, out: Output, limit: int) -> None:
        self._out = out
        self._limit = limit
        self._waiting: list[Batch] = []
        self._rows = 0

    def add(self, batch: Batch) -> None:
        """A batch of at most `limit` rows."""
        if not len(batch):
            return
        full = self._rows + len(batch) > self._limit
        if full or not all(compatible(batch, other) for other in self._waiting[:1]):
            self.flush()
        self._waiting.append(batch)
        self._rows += len(batch)

    def flush(self) -> None:
        if self._waiting:
            self._out.emit(concat(self._waiting))
        self._waiting, self._rows = [], 0

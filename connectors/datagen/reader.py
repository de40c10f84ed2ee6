"""Reads number splits in turns, and at a given pace.

Pace: a source-wide rate is shared evenly by the splits. Record j of a split (j = 0, 1, ...) is due
`j / share` seconds after the split's origin. At a restore the origin is set so that the next record
is due at once: no burst to make up for the time the job was down, no wait for time already passed.
A reader held up by backpressure makes up for it, so the average rate holds while the job runs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...api.connectors.base import Emit, NeedSplit, Polled, ReaderContext, SourceReader, Wait
from ...core.batch import Batch
from ...core.errors import ConfigurationError
from .stripes import NumberSplit

QUANTUM_MS = 10
"""A paced split gives what is due every so often: batches, not single records."""

Runs = list[tuple[int, int]]
"""(first number, how many), in order."""


def check_rate(rate: float | None) -> None:
    if rate is not None and not (rate > 0 and math.isfinite(rate)):
        raise ConfigurationError(f"the rate must be a positive number of records/s, is {rate}")


@dataclass(frozen=True)
class Pace:
    """`share` records per second from `origin_ms` on, for the split's records from 0 on."""

    share: float
    origin_ms: float

    @classmethod
    def resumed(cls, share: float, position: int, now_ms: int) -> Pace:
        return cls(share, now_ms - position * 1000.0 / share)

    def due(self, position: int, now_ms: int) -> int:
        """How many records from `position` on are due now."""
        return max(0, math.floor((now_ms - self.origin_ms) * self.share / 1000.0 + 1e-6) - position)

    def due_at(self, position: int) -> int:
        """When (ms) the first `position` records are due."""
        at = math.ceil(self.origin_ms + position * 1000.0 / self.share - 1e-6)
        return at if self.due(0, at) >= position else at + 1

    def quantum(self) -> int:
        """Records due per QUANTUM_MS, at least 1."""
        return max(1, int(self.share * QUANTUM_MS / 1000.0))


class NumberReader(SourceReader):
    """Turns numbers into batches with `generate`; one batch of `chunk` numbers per turn."""

    def __init__(
        self,
        context: ReaderContext,
        generate: Callable[[Runs], Batch],
        chunk: int,
        rate: float | None,
    ) -> None:
        self._clock = context.clock
        self._generate = generate
        self._chunk = chunk
        self._rate = rate
        self._splits: deque[NumberSplit] = deque()
        """Unfinished splits; the one whose turn it is first."""
        self._paces: dict[str, Pace] = {}
        """Of every split in `_splits`, when there is a rate."""

    def add_splits(self, splits: Sequence[NumberSplit]) -> None:
        for split in splits:
            self._splits.append(split)
            if self._rate is not None:
                now = self._clock.now_ms()
                share = self._rate / split.of
                self._paces[split.split_id] = Pace.resumed(share, split.position, now)

    def poll(self) -> Polled:
        if not self._splits:
            return NeedSplit()
        for _ in range(len(self._splits)):
            length = self._ready(self._splits[0])
            if length is not None:
                return self._take(length)
            self._splits.rotate(-1)
        return Wait(min(self._wake_at(split) for split in self._splits))

    def snapshot(self) -> Sequence[NumberSplit]:
        return sorted(self._splits, key=lambda split: split.index)

    def _wanted(self, split: NumberSplit) -> int:
        remaining = split.remaining
        return self._chunk if remaining is None else min(self._chunk, remaining)

    def _ready(self, split: NumberSplit) -> int | None:
        """How many records may leave now; None: wait. 0 only for a split that is read."""
        wanted = self._wanted(split)
        if self._rate is None:
            return wanted
        pace = self._paces[split.split_id]
        due = pace.due(split.position, self._clock.now_ms())
        return min(due, wanted) if due >= min(pace.quantum(), wanted) else None

    def _wake_at(self, split: NumberSplit) -> int:
        pace = self._paces[split.split_id]
        return pace.due_at(split.position + min(pace.quantum(), self._wanted(split)))

    def _take(self, length: int) -> Emit:
        split = self._splits.popleft()
        batch = self._generate(split.runs(length))
        after = split.advanced(length)
        finished = after.remaining == 0
        if finished:
            self._paces.pop(split.split_id, None)
        else:
            self._splits.append(after)
        return Emit(batch, split.split_id, finished)

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        ids = {split.split_id for split in self._splits}
        assert len(ids) == len(self._splits)
        assert set(self._paces) == (ids if self._rate is not None else set())
        assert all(s.remaining is None or s.remaining >= 0 for s in self._splits)

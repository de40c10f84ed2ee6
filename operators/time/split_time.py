"""Event time of a source subtask: one tracker per split, their minimum is the watermark.

Why per split: a subtask that reads several partitions sees them at different speeds. One tracker
over the mixed records would take the fastest partition's time and make the others' records late.

A split holds the watermark back from the moment the reader is given it until it is finished, also
while it has not produced a record yet. With an idleness timeout, a split from which nothing came
for that long stops holding it back until its next record; when no split is active, the whole output
is idle. Idleness is counted on a clock of its own, which runs while the source says that there is
nothing to read; after a poll that gave records it advances by at most `BUSY_GAP_MS` until the next
poll. So a source held up by backpressure does not look idle.

Pure: times come in as arguments, watermarks and status changes go out as return values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from ...core.batch import Batch
from ...core.elements import MIN_TIMESTAMP

BUSY_GAP_MS = 100


class Tracker(Protocol):
    """Timestamps and watermarks of one split; made from a watermark strategy."""

    def stamp(self, batch: Batch) -> Batch:
        """The batch with event times."""
        ...

    def on_batch(self, batch: Batch) -> int | None:
        """A punctuated watermark, None if this batch carries none."""
        ...

    def periodic(self) -> int:
        """The watermark as of the records seen; MIN_TIMESTAMP before the first."""
        ...


@dataclass
class _Split:
    tracker: Tracker
    arrived: int
    """Idle clock at its last record, or when it was added."""
    watermark: int = MIN_TIMESTAMP
    """Never decreases."""
    idle: bool = False


class SplitEventTime:
    """The trackers of the splits a source subtask holds."""

    def __init__(self, make_tracker: Callable[[], Tracker], idleness_ms: int | None) -> None:
        self._make = make_tracker
        self._idleness_ms = idleness_ms
        self._splits: dict[str, _Split] = {}
        """Those given to the reader and not finished."""
        self.watermark = MIN_TIMESTAMP
        """The last watermark given out; never decreases, whatever splits come and go."""
        self.active = True
        """False while the output is idle."""
        self._idle_clock = 0
        """Milliseconds in which records could have arrived."""
        self._last_seen: int | None = None
        self._wait_until: float | None = None
        """Until when (ms) the source has nothing to read; None: it gave records when last seen."""
        self._emptied = 0
        """Idle clock when the last split went away."""

    def add(self, split_ids: Iterable[str]) -> None:
        """The reader has these splits now."""
        for split_id in split_ids:
            if split_id not in self._splits:
                self._splits[split_id] = _Split(self._make(), self._idle_clock)
                self._wait_until = None

    def stamp(self, split_id: str, batch: Batch) -> tuple[Batch, int | None]:
        """The batch with timestamps, and a watermark to send behind it, if any is due at once.

        Turns the split active; compare `active` before and after.
        """
        self.add((split_id,))
        split = self._splits[split_id]
        split.arrived = self._idle_clock
        split.idle = False
        self.active = True
        batch = split.tracker.stamp(batch)
        punctuated = split.tracker.on_batch(batch)
        if punctuated is None:
            return batch, None
        split.watermark = max(split.watermark, punctuated)
        return batch, self._advance()

    def remove(self, split_id: str) -> None:
        """The split is finished and no longer holds the watermark back."""
        self._splits.pop(split_id, None)
        self._emptied = self._idle_clock

    @property
    def empty(self) -> bool:
        """Whether there is no split."""
        return not self._splits

    def periodic(self) -> int | None:
        """The watermark if it advanced since the last one given out."""
        for split in self._splits.values():
            split.watermark = max(split.watermark, split.tracker.periodic())
        return self._advance()

    def watermarks(self) -> dict[str, int]:
        """Of each split held, as of its last record."""
        return {name: max(s.watermark, s.tracker.periodic()) for name, s in self._splits.items()}

    def holding(self) -> int | None:
        """The least watermark of the splits that are not idle; None: this subtask holds nobody
        back."""
        known = [
            max(split.watermark, split.tracker.periodic())
            for split in self._splits.values()
            if not split.idle
        ]
        return min(known, default=None)

    def front(self) -> int | None:
        """The greatest watermark of the splits that are not idle: how far one who reads them one
        after the other has come; None: this subtask holds nobody back."""
        marks = self.watermarks()
        return max((w for name, w in marks.items() if not self._splits[name].idle), default=None)

    def polled(self, now_ms: int, wait_until: float | None) -> None:
        """The source was polled at `now_ms`: it gave records (None) or waits until a time (ms)."""
        if self._last_seen is not None and self._wait_until is None:
            self._idle_clock += min(max(0, now_ms - self._last_seen), BUSY_GAP_MS)
            self._last_seen = now_ms
        self.tick(now_ms)
        self._last_seen = now_ms
        self._wait_until = wait_until

    def tick(self, now_ms: int) -> None:
        """Processing time is `now_ms`, without a poll."""
        if self._last_seen is not None and self._wait_until is not None:
            until = int(min(now_ms, max(self._wait_until, self._last_seen)))
            self._idle_clock += max(0, until - self._last_seen)
            self._last_seen = max(self._last_seen, until)

    def check_idle(self, waiting: Collection[str] = ()) -> bool:
        """Mark splits that have been silent for too long; whether the output just turned idle.
        `waiting`: splits that must not be read now, whose silence says nothing."""
        limit = self._idleness_ms
        if limit is None:
            return False
        for name, split in self._splits.items():
            if name in waiting and not split.idle:
                split.arrived = self._idle_clock
            split.idle = self._idle_clock - split.arrived >= limit
        if self._splits:
            silent = all(split.idle for split in self._splits.values())
        else:
            silent = self._idle_clock - self._emptied >= limit
        turned = self.active and silent
        if turned:
            self.active = False
        return turned

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        assert self._idleness_ms is not None or self.active
        assert all(s.arrived <= self._idle_clock for s in self._splits.values())
        assert self._emptied <= self._idle_clock

    def _advance(self) -> int | None:
        marks = [split.watermark for split in self._splits.values() if not split.idle]
        if not marks or min(marks) <= self.watermark:
            return None
        self.watermark = min(marks)
        return self.watermark

"""Keys that are forgotten a while after they were last written, on columns.

Each slot has a stamp, the time of its last write: the clock's, or by event time the timestamp of
the record, or the watermark if that is later. A stamp never goes back. A record that finds its key
expired at its own time begins it anew, wherever in a batch it is, so that results do not depend on
how records are cut into batches; nor, while none is late, on when the watermark comes, for what has
expired by the watermark has expired for every record that is still to come.

Before each batch and at each watermark the stamps of a few slots are looked at, one portion behind
the other and from the start again: so many for each record that all slots are seen before they are
many more, and never all at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..core.arrays import Bools, Int64s
from ..core.elements import MIN_TIMESTAMP
from ..core.errors import TypeMismatchError
from ..state.expiry import StateTime
from ..state.ttl import Lifetime

NEVER = -(1 << 62)
"""The stamp of a slot that holds nothing."""

PER_RECORD = 4
LEAST = 4096
"""So many slots are looked at for each record, and with each batch."""

NO_TIMES = np.empty(0, dtype=np.int64)
"""As kernels take times and stamps where nothing expires."""


class RecordTimes:
    """The time of each record, by which what an operator keeps expires."""

    def __init__(self, event: bool, time: StateTime, operator: str) -> None:
        self.event = event
        self._time = time
        self._operator = operator

    def now(self) -> int:
        """The clock's, or the watermark."""
        return self._time.watermark if self.event else self._time.clock.now_ms()

    def of(self, stamps: Int64s | None, count: int) -> Int64s:
        """Of `count` records with these timestamps. TypeMismatchError by event time if there are
        none."""
        if not self.event:
            return np.full(count, self.now(), dtype=np.int64)
        if stamps is None or (len(stamps) and int(stamps.min()) == MIN_TIMESTAMP):
            raise TypeMismatchError(
                f"operator '{self._operator}': it forgets by event time, and a record has none: "
                "assign timestamps at the source or with assign_timestamps_and_watermarks, or use "
                "a time to live of processing time"
            )
        times: Int64s = np.maximum(stamps, self.now())
        return times


class KeyExpiry:
    """Keys are forgotten `ttl` (ms) after their stamps. `times`: of records.

    The task has `sweep` called, which has the operator forget some."""

    def __init__(
        self, life: Lifetime, time: StateTime, operator: str, forget: Callable[[int], None]
    ) -> None:
        """`forget`: called before each batch and at each watermark, while the operator does nothing
        else, with a number of records; it forgets `some` keys."""
        self.ttl = life.ms
        self.times = RecordTimes(life.event, time, operator)
        self._forget = forget
        self._next = 0
        """The first slot that was not looked at in this round; may be beyond the last."""
        time.states.append(self)

    def sweep(self, records: int) -> None:
        """See `Sweeping`."""
        self._forget(records)

    def begin_event_time(self, watermark: int) -> None:
        """Every stamp is known: records without event times are refused."""

    def gone(self, stamps: Int64s) -> Bools:
        """Which of these stamps are of keys that are to be forgotten, whoever comes."""
        cutoff = max(self.times.now() - self.ttl, MIN_TIMESTAMP)
        gone: Bools = (stamps <= cutoff) & (stamps != NEVER)
        return gone

    def some(self, stamps: Int64s, records: int) -> Int64s:
        """Slots that are to be forgotten, of those whose turn it is. `stamps`: of all slots."""
        count = len(stamps)
        budget = min(max(LEAST, PER_RECORD * records), count)
        start = self._next if self._next < count else 0
        stop = min(start + budget, count)
        again = start + budget - stop
        self._next = again or stop
        parts = [(start, stop), (0, again)]
        found = [at + np.flatnonzero(self.gone(stamps[at:end])) for at, end in parts]
        return np.concatenate(found)

    def begin_again(self) -> None:
        """Slots have new numbers."""
        self._next = 0

"""What time it is for state that expires, and when it does.

    event time of an access   the timestamp of the record or timer at hand, or the watermark if that
                              is later; the watermark alone where nobody tells a timestamp
    processing time           the clock

Something stamped with t has expired at t + ttl. Its stamp never goes back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from ..core.clock import Clock, SystemClock, unheard
from ..core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from .ttl import StateTtlConfig

UNKNOWN = MIN_TIMESTAMP
"""The stamp of what was written before event time was known: it counts from the first watermark."""

AT_A_WATERMARK = 1024
"""So many expired keys of a state are removed at a watermark, when no records come."""


class Sweeping(Protocol):
    """One state from which what has expired is removed in the background."""

    def sweep(self, records: int) -> None:
        """Remove some of what has expired: work in proportion to this number of records."""
        ...

    def begin_event_time(self, watermark: int) -> None:
        """The first watermark has come: what is stamped UNKNOWN counts from here."""
        ...


class StateTime:
    """The times by which the states of one operator expire, and these states.

    The task calls `begin` before each batch and `passed` behind each watermark, once all that it
    fired is done: a timer sees event time as it was before it. It tells of every watermark, whether
    or not there are states yet: what a function asks for later goes by the same time."""

    __slots__ = ("by_event", "clock", "restored", "stamp_of", "states", "unknown", "watermark")

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.watermark = UNKNOWN
        self.restored = False
        """Whether there was a watermark already when what was restored was stored."""
        self.stamp_of: Callable[[], int | None] | None = None
        """Set by an operator that can tell the timestamp of the record or timer at hand."""
        self.states: list[Sweeping] = []
        self.unknown = False
        """Whether something in a state may be stamped UNKNOWN."""
        self.by_event = False
        """Whether a state goes by event time, so that snapshots keep the watermark."""

    def event(self) -> int:
        stamp = None if self.stamp_of is None else self.stamp_of()
        if stamp is not None and stamp > self.watermark:
            return stamp
        if self.watermark == UNKNOWN:
            self.unknown = True
        return self.watermark

    def passed(self, watermark: int) -> None:
        """Event time is this from here on. The end of all time is none by which a state expires: a
        job that goes on behind it, from the savepoint of one that was drained, has what was there,
        and its event time."""
        if watermark == MAX_TIMESTAMP:
            return
        self.watermark = watermark
        if self.unknown:
            for state in self.states:
                state.begin_event_time(watermark)
            self.unknown = False
        for state in self.states:
            state.sweep(AT_A_WATERMARK)

    def begin(self, records: int) -> None:
        """So many records are about to be worked on."""
        for state in self.states:
            state.sweep(records)


@dataclass(frozen=True)
class Expiry:
    """How one state expires. `now`: the time of an access; `background`: of removal in between.
    `per_record`: how many expired keys are removed in the background for each record."""

    ttl: int
    on_read: bool
    returned: bool
    event: bool
    per_record: int
    now: Callable[[], int]
    background: Callable[[], int]
    time: StateTime

    @staticmethod
    def of(config: StateTtlConfig, time: StateTime) -> Expiry:
        event = config.get_ttl_time_characteristic() is config.TtlTimeCharacteristic.EventTime
        cleanup = config.get_cleanup_strategies().get_incremental_cleanup_strategy()
        visibility = config.get_state_visibility()
        time.by_event = time.by_event or event
        return Expiry(
            ttl=config.get_ttl() // timedelta(milliseconds=1),
            on_read=config.get_update_type() is config.UpdateType.OnReadAndWrite,
            returned=visibility is config.StateVisibility.ReturnExpiredIfNotCleanedUp,
            event=event,
            per_record=0 if cleanup is None else cleanup.get_cleanup_size(),
            now=time.event if event else time.clock.now_ms,
            background=(lambda: time.watermark) if event else unheard(time.clock),
            time=time,
        )

    @property
    def column(self) -> str:
        """The column of a snapshot that holds the stamps."""
        return EVENT_STAMP if self.event else PROCESSING_STAMP

    def gone(self, stamp: int, cutoff: int) -> bool:
        """Whether something has expired. `cutoff`: the time less `ttl`."""
        return stamp <= cutoff and stamp != UNKNOWN


PROCESSING_STAMP, EVENT_STAMP = "processing_stamp", "event_stamp"

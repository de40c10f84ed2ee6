"""Windows that fire before they end, at multiples of an interval: the continuous triggers.

As on the row path each key of each window has its own next firing, the *tick*: its first record in
the window sets it to the first multiple of the interval after that record's time, and each tick
sets the next; ticks beyond the window's last millisecond come then. When time passes several ticks
of a key at once, it fires as many times, with equal results. What fires is exactly what fires row
by row; only late records of an event-time trigger fire once per batch and key, not once each (see
`columnar_windows`).

Three combinations: event-time windows by event time, processing-time windows by the clock, and
event-time windows by the clock, which do not fire at their end (Flink's rule) but go on firing by
the clock until the watermark clears them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.windows import WindowSpec
from ...core.arrays import Int64s
from ...core.batch import take_rows
from ...core.elements import MAX_TIMESTAMP
from ...plan.slicing import Slicing
from ...plan.window_forms import Firing
from ...state.backend import AccColumn
from ..base import Steps, Work
from .columnar_windows import Arrivals, ColumnarWindowOperator
from .window_output import Fired

TICK = "tick"
NEVER = MAX_TIMESTAMP
"""The tick of a key that has had no record in the window."""


class TickingWindowOperator(ColumnarWindowOperator):
    """Table "ticks": per window (named by its end) each key's next tick. A window's table is there
    from its first record until it can tick no more."""

    def __init__(self, spec: WindowSpec, slicing: Slicing, firing: Firing) -> None:
        super().__init__(spec, slicing)
        assert firing.interval is not None
        self._interval = firing.interval
        self._by_clock = firing.by_clock
        self._own = self._event_time != firing.by_clock
        """Whether ticks and windows follow the same time."""
        self._next: dict[int, int] = {}
        """Window end -> its least tick, for each namespace of the table."""

    def _bind(self, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        super()._bind(keys, fields)
        schema = pa.schema(list(keys))
        self._ticks = self.ctx.keyed_state.table("ticks", schema, [AccColumn(TICK, "int64", NEVER)])
        for window in self._ticks.namespaces():
            self._next[window] = int(self._ticks_of(window).min())

    def _next_due(self) -> int | None:
        due = [] if self._due is None else [self._due]
        if self._own:
            due += self._next.values()
        elif self._next:
            due.append(min(self._next) - 1 + self._lateness)
        return min(due, default=None)

    def _next_alarm(self) -> int | None:
        if not self._by_clock:
            return None
        return self._next_due() if self._own else min(self._next.values(), default=None)

    def on_processing_time(self, now_ms: int) -> Steps:
        if not self._own and self._by_clock:
            yield from self._tick(now_ms - 1, self._contents.slices() if self._next else [])
        yield from super().on_processing_time(now_ms) or ()

    def finish(self) -> Steps:
        """The next tick of each (key, window) that the clock has not closed, and the one at the
        window's end if that is the next after it."""
        if self._event_time or self._keys is None:
            return
        slices = self._contents.slices()
        for window in sorted(self._next):
            output, ticks = self._results(window, slices)
            at_end = (ticks < window - 1) & (
                ticks - ticks % self._interval >= window - 1 - self._interval
            )
            yield from self._output.emit([output.filter(ticks < NEVER), output.filter(at_end)])
            self._forget(window)
        for end in slices:
            self._contents.drop(end)
        self._due = None

    def _added(self, arrivals: Arrivals, watermark: int) -> Work:
        for window in arrivals.pieces:
            if not self._own or window - 1 > watermark:
                self._schedule(window, arrivals)
        return super()._added(arrivals, watermark) if self._own else None

    def _schedule(self, window: int, arrivals: Arrivals) -> None:
        """Set the first tick of keys that are new in the window."""
        keys, times = _in_order(arrivals, window)
        if not self._own:
            times = np.full(len(times), self.ctx.clock.now_ms(), dtype=np.int64)
        table = self._ticks.table(window)
        slots = table.slots(keys)
        ticks = table.column(TICK)
        new = np.flatnonzero(ticks[slots] == NEVER)
        if len(new):
            first = self._following(times[new])
            last = window - 1
            within = last >= times[new]
            first[within] = np.minimum(first[within], last)
            ticks[slots[new][::-1]] = first[::-1]  # the last assignment stays: the first record's
            self._next[window] = min(self._next.get(window, NEVER), int(first.min()))

    def _fire_due(self, watermark: int, slices: list[int]) -> Steps:
        if self._own:
            yield from self._tick(watermark, slices)
            return
        for window in list(self._next):
            if window - 1 + self._lateness <= watermark:
                self._forget(window)

    def _tick(self, until: int, slices: list[int]) -> Steps:
        """Fire all ticks up to `until`, in order."""
        due = sorted(window for window, tick in self._next.items() if tick <= until)
        fired = heapq.merge(*(self._firings(w, until, slices) for w in due), key=lambda f: f[:2])
        yield from self._output.emit(output for _, _, output in fired)
        for window in due:
            if self._own and window - 1 <= until:
                self._forget(window)
            else:
                self._advance_ticks(window, until)

    def _firings(
        self, window: int, until: int, slices: list[int]
    ) -> Iterator[tuple[int, int, Fired]]:
        """(tick, window end, results) of one window, in order of time."""
        output, ticks = self._results(window, slices)
        tick = self._next[window]
        while tick <= until:
            fires = ticks <= tick
            yield tick, window, output if fires.all() else output.filter(fires)
            if self._own and tick == window - 1:
                return
            tick = self._after(tick, window)

    def _results(self, window: int, slices: list[int]) -> tuple[Fired, Int64s]:
        """What the window would emit now, and the next tick of each row's key."""
        keys, results = self._contents.fire(self._held(window, slices), None)
        table = self._ticks.table(window)
        slots = table.slots(keys)
        return Fired(window, keys, results), table.column(TICK)[slots]

    def _advance_ticks(self, window: int, until: int) -> None:
        """Ticks up to `until` have fired."""
        ticks = self._ticks_of(window)
        due = np.flatnonzero(ticks <= until)
        self._ticks.table(window).touch(due)
        ticks[due] = self._after(until, window)
        self._next[window] = int(ticks.min())

    def _after(self, tick: int, window: int) -> int:
        """The tick that follows. A window has one at its last millisecond, if that is not over."""
        following = int(self._following(tick))
        last = window - 1
        return min(following, last) if last > tick else following

    def _following(self, time: Any) -> Any:
        """The first multiple of the interval after a time, or each of several."""
        return time - time % self._interval + self._interval

    def _ticks_of(self, window: int) -> npt.NDArray[np.int64]:
        table = self._ticks.table(window)
        return table.column(TICK)[: len(table)]

    def _forget(self, window: int) -> None:
        self._ticks.drop(window)
        del self._next[window]


def _in_order(arrivals: Arrivals, window: int) -> tuple[pa.RecordBatch, Int64s]:
    """Keys and times of a window's records, in order of arrival."""
    pieces = arrivals.pieces[window]
    if len(pieces) == 1:
        start, stop = pieces[0]
        return arrivals.keys.slice(start, stop - start), arrivals.times[start:stop]
    rows = np.concatenate([np.arange(start, stop) for start, stop in pieces])
    rows = rows[np.argsort(arrivals.numbers[rows])]
    return take_rows(arrivals.keys, pa.array(rows)), arrivals.times[rows]

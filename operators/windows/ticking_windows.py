"""Windows that fire before they end, at multiples of an interval: the continuous triggers.

As on the row path each key of each window has its own next firing, the *tick*: its first record in
the window sets it to the first multiple of the interval after that record's time, and each tick
sets the next; ticks beyond the window's last millisecond come then. When time passes several ticks
of a key at once, it fires as many times, with equal results. What fires is what fires row
by row; only late records of an event-time trigger fire once per batch and key, not once each (see
`columnar_windows`).

Three combinations: event-time windows by event time, processing-time windows by the clock, and
event-time windows by the clock, which do not fire at their end (Flink's rule) but go on firing by
the clock until the watermark clears them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.arrays import Int64s
from ...core.elements import MAX_TIMESTAMP
from ...plan.slicing import Slicing
from ...plan.window_forms import Firing
from ...state.backend import AccColumn
from ...state.key_groups import key_groups_of
from ..base import IN_STATE, Pause, Steps, Work
from .fired_slices import Fired, emit_fired
from .slice_store import Arrivals, SliceStore
from .slices import check_time
from .windower import LateRows, Records, Site, Time, Windower

TICK = "tick"
NEVER = MAX_TIMESTAMP
"""The tick of a key that has had no record in the window."""


class TickingWindower(Windower):
    """Table "ticks": per window (named by its end) each key's next tick. A window's table is there
    from its first record until it can tick no more."""

    def __init__(self, slicing: Slicing, firing: Firing) -> None:
        assert firing.interval is not None
        self._slicing = slicing
        self._interval = firing.interval
        self._by_clock = firing.by_clock
        self._next: dict[int, int] = {}
        """Window end -> its least tick, for each namespace of the table."""
        self._unmarked: list[Fired] = []
        """What a firing under way has emitted and state does not say."""

    def open(self, site: Site) -> None:
        self._site, spec = site, site.spec
        event_time = spec.assigner.is_event_time()
        self.time = Time.EVENTS if event_time else Time.CLOCK
        self._own = event_time != self._by_clock
        """Whether ticks and windows follow the same time."""
        lateness = spec.allowed_lateness_ms if event_time else 0
        self._store = SliceStore(self._slicing, lateness, spec.function)
        self.arguments = self._store.contents

    def bind(self, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        state = self._site.ctx.keyed_state
        self._store.bind(state, keys, fields)
        self._site.output.bind(keys, self._store.contents.names)
        self._ticks = state.table("ticks", keys, [AccColumn(TICK, "int64", NEVER)], cold=True)
        for window in self._ticks.namespaces():
            self._next[window] = self._least(window)
        self._store.resume(self._site.progress.watermark)

    def check(self, first: int, last: int) -> None:
        for extreme in (first, last):
            check_time(self._slicing, self._site.ctx.name, extreme)

    def add(self, records: Records, watermark: int) -> tuple[LateRows, Work]:
        late, arrivals = self._store.add(records, watermark)
        for window in arrivals.pieces:
            if not self._own or window - 1 > watermark:
                self._schedule(window, arrivals)
        again = sorted(window for window in arrivals.pieces if window - 1 <= watermark)
        if not (self._own and again):
            return late, None
        slices = self._store.slices()
        return late, self._emit(self._store.result(w, slices, arrivals.keys_of(w)) for w in again)

    def advance(self, watermark: int) -> Work:
        due = self._next_due()
        return None if due is None or due > watermark else self._fire_until(watermark)

    def resume(self) -> Steps:
        site, slices = self._site, self._store.slices()
        until = site.firing.until
        for window in (yield from self._fire_ticks(int(until.max()), slices, until)):
            keys = self._ticks.table(window).keys()
            self._advance_ticks(window, self._limits(keys, until))
        site.firing.end()

    def on_clock(self, now_ms: int) -> Work:
        if self._own:
            return None
        return self._tick(now_ms - 1, self._store.slices() if self._next else [])

    def next_alarm(self) -> int | None:
        if not self._by_clock:
            return None
        return self._next_due() if self._own else min(self._next.values(), default=None)

    def finish(self) -> Steps:
        """The next tick of each (key, window) that the clock has not closed, and the one at the
        window's end if that is the next after it."""
        slices = self._store.slices()
        for window in sorted(self._next):
            output, ticks = self._results(window, slices)
            at_end = (ticks < window - 1) & (
                ticks - ticks % self._interval >= window - 1 - self._interval
            )
            yield from self._emit([output.filter(ticks < NEVER), output.filter(at_end)])
            self._forget(window)
        self._store.forget(slices, MAX_TIMESTAMP)

    def validate(self) -> None:
        for window, tick in self._next.items():
            assert tick == self._least(window)

    def _next_due(self) -> int | None:
        due = [] if self._store.due is None else [self._store.due]
        if self._own:
            due += self._next.values()
        elif self._next:
            due.append(min(self._next) - 1 + self._store.lateness)
        return min(due, default=None)

    def _schedule(self, window: int, arrivals: Arrivals) -> None:
        """Set the first tick of keys that are new in the window."""
        keys, times = arrivals.in_order(window)
        if not self._own:
            times = np.full(len(times), self._site.ctx.clock.now_ms(), dtype=np.int64)
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
            least = int(ticks[slots[new]].min())
            self._next[window] = min(self._next.get(window, NEVER), least)

    def _fire_until(self, watermark: int) -> Steps:
        """Fire what `watermark` passes, and forget what it is over with."""
        site, slices = self._site, self._store.slices()
        if self._own:
            site.firing.begin()
            site.progress.advance(watermark)
            yield from self._tick(watermark, slices)
            site.firing.end()
        else:
            for window in list(self._next):
                if window - 1 + self._store.lateness <= watermark:
                    self._forget(window)
        self._store.forget(slices, watermark)

    def _tick(self, until: int, slices: list[int]) -> Steps:
        """Fire all ticks up to `until`, in order."""
        due = yield from self._fire_ticks(until, slices, None)
        for window in due:
            if self._own and window - 1 <= until:
                self._forget(window)
            else:
                self._advance_ticks(window, np.array(until))

    def _fire_ticks(
        self, until: int, slices: list[int], groups: Int64s | None
    ) -> Generator[Pause | None, None, list[int]]:
        """Fire ticks up to `until`, by key group not beyond `groups` if these are given. Returns
        the windows that had any. State says which have fired, but for event-time windows by the
        clock: what the clock has passed is in no state."""
        due = sorted(window for window, tick in self._next.items() if tick <= until)
        outputs = self._in_turn(due, until, slices, groups)
        yield from self._emit(outputs, self._emitted if self._own else None)
        self._unmarked.clear()
        return due

    def _emitted(self, fired: list[Fired]) -> Pause | None:
        """Put into state that these keys have fired, when all of their results are emitted."""
        self._unmarked += fired
        if fired[-1].through is None:
            return None
        for one in self._unmarked:
            assert one.tick is not None
            table = self._ticks.table(one.window_end)
            slots = table.slots(one.keys)
            table.column(TICK)[slots] = self._after(one.tick, one.window_end)
        self._unmarked.clear()
        return IN_STATE

    def _limits(self, keys: pa.RecordBatch, groups: Int64s) -> Int64s:
        """What `groups` has by key group, of each key."""
        return groups[key_groups_of(keys, self._site.ctx.max_parallelism)]

    def _in_turn(
        self, due: list[int], until: int, slices: list[int], groups: Int64s | None
    ) -> Iterator[Fired]:
        """The results of these windows by tick and then by window. Those of one window are held at
        a time: where the ticks of several alternate they are made again."""
        turns = heapq.merge(*(self._turns(window, until) for window in due))
        for window, some in groupby(turns, key=itemgetter(1)):
            yield from self._firings(window, (tick for tick, _ in some), slices, groups)

    def _turns(self, window: int, until: int) -> Iterator[tuple[int, int]]:
        """(tick, window end) of one window, in order of time."""
        tick = self._next[window]
        while tick <= until and not (self._own and tick > window - 1):
            yield tick, window
            tick = self._after(tick, window)

    def _firings(
        self, window: int, turns: Iterable[int], slices: list[int], groups: Int64s | None
    ) -> Iterator[Fired]:
        """The results of one window at these ticks."""
        output, ticks = self._results(window, slices)
        limits = None if groups is None else self._limits(output.keys, groups)
        for tick in turns:
            fires = ticks <= tick
            if limits is not None:
                fires &= tick <= limits
            fired = output if fires.all() else output.filter(fires)
            yield replace(fired, tick=tick)

    def _results(self, window: int, slices: list[int]) -> tuple[Fired, Int64s]:
        """What the window would emit now, and the next tick of each row's key."""
        fired = self._store.result(window, slices, None)
        table = self._ticks.table(window)
        slots = table.slots(fired.keys)
        return fired, table.column(TICK)[slots]

    def _advance_ticks(self, window: int, until: Int64s) -> None:
        """Ticks up to `until`, one number or one for each key, have fired."""
        table = self._ticks.table(window)
        table.bring(TICK, lambda ticks: ticks <= until.max())
        ticks = table.column(TICK)[: len(table)]
        for limit in np.unique(until).tolist():
            due = np.flatnonzero((ticks <= limit) & (until == limit))
            table.touch(due)
            ticks[due] = self._after(limit, window)
        self._next[window] = self._least(window)

    def _after(self, tick: int, window: int) -> int:
        """The tick that follows. A window has one at its last millisecond, if that is not over."""
        following = min(int(self._following(tick)), NEVER - 1)
        last = window - 1
        return min(following, last) if last > tick else following

    def _following(self, time: Any) -> Any:
        """The first multiple of the interval after a time, or each of several."""
        return time - time % self._interval + self._interval

    def _least(self, window: int) -> int:
        """The least tick of a window."""
        return min(
            int(ticks.min()) for (ticks,) in self._ticks.table(window).scan(TICK) if len(ticks)
        )

    def _forget(self, window: int) -> None:
        self._ticks.drop(window)
        del self._next[window]

    def _emit(
        self,
        fired: Iterable[Fired],
        emitted: Callable[[list[Fired]], Pause | None] | None = None,
    ) -> Steps:
        return emit_fired(self._site.output, self._site.ctx.max_parallelism, fired, emitted)

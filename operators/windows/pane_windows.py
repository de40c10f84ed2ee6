"""Windows of time whose triggers count records or purge: each (key, window) is kept by itself.

Slices cannot serve such triggers: a count is of one window, and a trigger that purges takes records
out of one window that others share. So a record is folded into each of its windows, at the cost of
as many folds.

    CountTrigger(n)                      fires at every n-th record of a key and window, between two
                                         records of a batch: the batch is cut there (`count_lane`);
                                         nothing fires at the window's end
    PurgingTrigger around it             the same, and the window starts anew
    PurgingTrigger(EventTimeTrigger)     where lateness is allowed: at the window's end, then at
                                         each late record, with what came since
    PurgingTrigger(Continuous...)        at multiples of an interval, with what came since

Results are those of the row path: what records fire in the order of the records, what time fires in
the order of time. Windows are cleared at their end and the allowed lateness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s, Slots
from ...core.batch import take_column
from ...plan.slicing import CumulateSlicing, Slicing
from ...plan.window_forms import PaneRule
from ...state.key_groups import key_groups_of
from ..base import IN_STATE, Steps, Work
from ..slots.slot_kinds import runs_on_slots
from .panes import NEVER, SEEN, TICK, WINDOW, PaneStore
from .slices import check_time, runs_by_slice, slice_ends
from .windower import NO_ROWS, LateRows, Records, Site, Time, Windower


@dataclass(frozen=True)
class PaneRows:
    """Records, once for each window that they are in: key columns, the window's end, what is
    folded, sequence number, time."""

    keys: list[pa.Array]
    windows: Int64s
    inputs: list[pa.Array]
    numbers: Int64s
    times: Int64s

    def at(self, rows: npt.NDArray[np.int64], windows: Int64s) -> PaneRows:
        """These rows of it, in these windows."""
        at = pa.array(rows)
        keys, inputs = ([take_column(a, at) for a in some] for some in (self.keys, self.inputs))
        return PaneRows(keys, windows, inputs, self.numbers[rows], self.times[rows])


class PaneWindower(Windower):
    """`_next`: no later than the least tick, of each window that ticks. State: see `panes`."""

    def __init__(self, slicing: Slicing, rule: PaneRule) -> None:
        self._slicing = slicing
        self._rule = rule
        self._overlapping = not slicing.tumbling
        self._next: dict[int, int] = {}

    def open(self, site: Site) -> None:
        from .count_lane import Lane

        self._site, spec = site, site.spec
        assert runs_on_slots(spec.function)
        event_time = spec.assigner.is_event_time()
        self.time = Time.EVENTS if event_time else Time.CLOCK
        self._lateness = spec.allowed_lateness_ms if event_time else 0
        self._own = event_time != self._rule.by_clock
        """Whether ticks and windows follow the same time."""
        self._lane = Lane(spec.function, self._rule.counting, 0)
        self.arguments = self._lane.aggregates

    def bind(self, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        self._keys = keys
        self._lane.aggregates.bind(fields)
        self._site.output.bind(keys, self._lane.aggregates.names)
        self._store = PaneStore(self._site.ctx.keyed_state, keys, self._lane.aggregates)
        ticks = self._store.ticks()
        self._next = {window: tick for window, tick in ticks.items() if tick < NEVER}

    def check(self, first: int, last: int) -> None:
        for extreme in (first, last):
            check_time(self._slicing, self._site.ctx.name, extreme)

    def add(self, records: Records, watermark: int) -> tuple[LateRows, Work]:
        rows, windows, late = self._assign(records.times, watermark)
        if not len(windows):
            return late, None
        held = PaneRows(
            records.keys.columns, windows, records.inputs, records.numbers, records.times
        )
        fired = self._fold(held if rows is None else held.at(rows, windows), watermark)
        self._store.tidy()
        return late, fired

    def advance(self, watermark: int) -> Work:
        due = self._next_due()
        return None if due is None or due > watermark else self._fire_until(watermark)

    def on_clock(self, now_ms: int) -> Work:
        return None if self._own else self._tick(now_ms - 1)

    def next_alarm(self) -> int | None:
        if self._rule.by_clock and not self._own:
            return min(self._next.values(), default=None)
        return None if self.time is Time.EVENTS else self._next_due()

    def finish(self) -> Work:
        """What panes hold comes out, as if the clock had reached their next tick."""
        return self._fire_until(NEVER - 1)

    def validate(self) -> None:
        self._store.validate()
        for window, tick in self._store.ticks().items():
            assert self._next.get(window, NEVER) <= tick

    def _next_due(self) -> int | None:
        due = [window - 1 + self._lateness for window in self._store.windows()]
        return min([*due, *(self._next.values() if self._own else ())], default=None)

    def _assign(
        self, timestamps: Int64s, watermark: int
    ) -> tuple[Int64s | None, Int64s, npt.NDArray[np.int64]]:
        """(rows, the end of a window that each is in, late rows), in order of the rows and, for
        one row, as the row path goes through its windows. None: all rows, each in one window."""
        order, runs = runs_by_slice(slice_ends(self._slicing, timestamps))
        late: list[npt.NDArray[np.int64]] = []
        parts: list[tuple[npt.NDArray[np.int64], int]] = []
        for end, start, stop in runs:
            rows = np.arange(start, stop) if order is None else order[start:stop]
            windows = self._slicing.window_ends(end)
            taken = [window for window in windows if watermark < window - 1 + self._lateness]
            if not taken:
                late.append(rows[timestamps[rows] + self._lateness <= watermark])
            parts += [(rows, window) for window in taken]
        missing = np.concatenate(late) if late else NO_ROWS
        if not parts:
            return None, NO_ROWS, missing
        rows = np.concatenate([rows for rows, _ in parts])
        ends = np.repeat([window for _, window in parts], [len(rows) for rows, _ in parts])
        if order is not None or self._overlapping:
            shortest_first = isinstance(self._slicing, CumulateSlicing)
            sort = np.lexsort((ends if shortest_first else -ends, rows))
            rows, ends = rows[sort], ends[sort]
        whole = len(rows) == len(timestamps) and not self._overlapping
        return None if whole else rows, ends, missing

    def _fold(self, held: PaneRows, watermark: int) -> Work:
        """Fold records into panes, and fire those that count or are past their end."""
        slots = self._store.slots(held.keys, held.windows)
        if self._rule.count is not None:
            return self._fold_and_fire(held, slots)
        fired: Work = None
        past = held.windows - 1 <= watermark if self._own else np.zeros(len(slots), dtype=np.bool_)
        if past.any():
            at, other = np.flatnonzero(past), np.flatnonzero(~past)
            fired = self._fold_and_fire(held.at(at, held.windows[at]), slots[at])
            held, slots = held.at(other, held.windows[other]), slots[other]
        if len(slots):
            self._lane.aggregates.fold(self._store.table, slots, held.inputs, held.numbers)
            self._schedule(held, slots)
        return fired

    def _fold_and_fire(self, held: PaneRows, slots: Slots) -> Work:
        from ..kernels import counting

        table, places = self._store.table, np.empty_like(slots)
        counting.positions(slots, table.column(SEEN), places)
        rows, results = self._lane.add(table, slots, places, held.inputs, held.numbers)
        if not len(rows):
            return None
        order = np.argsort(rows, kind="stable")
        at = pa.array(order)
        return self._emit(slots[rows[order]], [take_column(result, at) for result in results])

    def _schedule(self, held: PaneRows, slots: Slots) -> None:
        """Set the first tick of panes that have none: by the first record."""
        ticks = self._store.table.column(TICK)
        new = np.flatnonzero(ticks[slots] == NEVER)
        if not len(new):
            return
        windows = held.windows[new]
        times = held.times[new] if self._own else np.full(len(new), self._site.ctx.clock.now_ms())
        first = self._following(times) if self._rule.interval else windows - 1
        first = np.where(windows - 1 >= times, np.minimum(first, windows - 1), first)
        ticks[slots[new][::-1]] = first[::-1]  # the last assignment stays: the first record's
        for window in np.unique(windows).tolist():
            least = int(first[windows == window].min())
            self._next[window] = min(self._next.get(window, NEVER), least)

    def resume(self) -> Steps:
        site, table = self._site, self._store.table
        until = site.firing.until
        slots = self._due(int(until.max()))
        keys = pa.RecordBatch.from_arrays(self._store.keys(slots), schema=self._keys)
        limits = until[key_groups_of(keys, site.ctx.max_parallelism)]
        missing = table.column(TICK)[slots] <= limits
        yield from self._in_parts(slots[missing], limits[missing])
        site.firing.end()

    def _fire_until(self, watermark: int) -> Steps:
        """Fire what `watermark` passes, and close the windows that it is over with."""
        site = self._site
        if self._own:
            site.firing.begin()
            site.progress.advance(watermark)
            yield from self._tick(watermark) or ()
            site.firing.end()
        over = [w for w in self._store.windows() if w - 1 + self._lateness <= watermark]
        self._store.close(over)
        for window in over:
            self._next.pop(window, None)
        self._store.tidy()

    def _tick(self, until: int) -> Work:
        """Fire and empty the panes whose next tick comes up to `until`, in order of time."""
        slots = self._due(until)
        return self._in_parts(slots, np.full(len(slots), until)) if len(slots) else None

    def _due(self, until: int) -> Slots:
        """The panes whose next tick comes up to `until`, in order of time."""
        due = [window for window, tick in self._next.items() if tick <= until]
        if not due:
            return np.empty(0, dtype=np.int64)
        self._store.bring(due)
        ticks, windows = (self._store.table.column(name) for name in (TICK, WINDOW))
        slots = np.concatenate([self._store.members(window) for window in due])
        slots = slots[ticks[slots] <= until]
        in_order: Slots = slots[np.lexsort((slots, windows[slots], ticks[slots]))]
        return in_order

    def _in_parts(self, slots: Slots, until: Int64s) -> Steps:
        """Fire and empty these panes, whose ticks up to `until` have come. State says of each
        whether it has fired, but for event-time windows by the clock: what the clock has passed is
        in no state."""
        size = self._site.output.size
        windows = np.unique(self._store.table.column(WINDOW)[slots]).tolist()
        for start in range(0, len(slots), size):
            if start:
                yield IN_STATE if self._own else None
            part = slice(start, start + size)
            yield from self._fire(slots[part], until[part]) or ()
        for window in windows:
            self._note_tick(window)

    def _fire(self, slots: Slots, until: Int64s) -> Work:
        table, fired = self._store.table, None
        full = slots[table.column(self._lane.aggregates.rows)[slots] > 0]
        if len(full):
            fired = self._emit(*self._lane.aggregates.emitted(table, full))
            self._store.empty(full)
        table.touch(slots)
        table.column(TICK)[slots] = self._after(until, table.column(WINDOW)[slots])
        return fired

    def _after(self, ticks: Int64s, windows: Int64s) -> Int64s:
        """The ticks that follow, of panes of these windows. There is one at a window's last
        millisecond; none follows it unless windows and ticks follow different times."""
        last = windows - 1
        following = np.full(len(windows), NEVER)
        if self._rule.interval:
            more = ticks < NEVER - self._rule.interval
            following[more] = self._following(ticks[more])
        closed = NEVER if self._own else following
        after: Int64s = np.where(last > ticks, np.minimum(following, last), closed)
        return after

    def _following(self, time: Any) -> Any:
        """The first multiple of the interval after a time, or each of several."""
        assert self._rule.interval is not None
        return time - time % self._rule.interval + self._rule.interval

    def _note_tick(self, window: int) -> None:
        """Set the window's least tick."""
        tick = int(self._store.table.column(TICK)[self._store.members(window)].min())
        if tick < NEVER:
            self._next[window] = tick
        else:
            self._next.pop(window, None)

    def _emit(self, slots: Slots, results: list[pa.Array]) -> Work:
        """One result of each of these panes."""
        ends = self._store.table.column(WINDOW)[slots]
        distinct, which = np.unique(ends, return_inverse=True)
        starts = np.array([self._slicing.window_start(end) for end in distinct.tolist()])[which]
        keys = self._store.keys(slots)
        return self._site.output.emit(keys, pa.array(starts), pa.array(ends), results, ends - 1)

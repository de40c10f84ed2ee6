"""Tumbling, sliding and cumulating windows on kernels: built-in aggregates, extremes, top-n.

Each record is folded once, into the slice of time that holds it; a window's result is merged from
its slices when the watermark passes its end. No per-record Python, no timers: which windows are due
follows from the slices and the watermark.

Lateness is the row path's: a record is late for a window when window end - 1 + allowed lateness <=
watermark, and goes to the late side output (or is dropped and counted) when it is late for all its
windows. One difference: a late but allowed record makes its already fired windows fire again once
per batch and key, at the batch's end, not once per record. The last result of each (key, window) is
the same.

Processing-time windows are the same with the clock for event time (see `operator`).
`ticking_windows` has windows that fire before their end.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...core.elements import MAX_TIMESTAMP
from ...plan.slicing import Slicing
from ..base import Steps, Work
from .fired_slices import Fired, emit_fired
from .slice_store import SliceStore
from .slices import check_time
from .windower import LateRows, Records, Site, Time, Windower


class SliceWindower(Windower):
    """See the module. All state is that of the slices."""

    def __init__(self, slicing: Slicing) -> None:
        self._slicing = slicing

    def open(self, site: Site) -> None:
        self._site, spec = site, site.spec
        event_time = spec.assigner.is_event_time()
        self.time = Time.EVENTS if event_time else Time.CLOCK
        lateness = spec.allowed_lateness_ms if event_time else 0
        self._store = SliceStore(self._slicing, lateness, spec.function)
        self.arguments = self._store.contents
        self._firing = site.firing

    def bind(self, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        self._store.bind(self._site.ctx.keyed_state, keys, fields)
        self._site.output.bind(keys, self._store.contents.names)
        self._store.resume(self._site.progress.watermark)

    def check(self, first: int, last: int) -> None:
        for extreme in (first, last):
            check_time(self._slicing, self._site.ctx.name, extreme)

    def resume(self) -> Work:
        return self._fire_until(self._site.progress.watermark)

    def add(self, records: Records, watermark: int) -> tuple[LateRows, Work]:
        late, arrivals = self._store.add(records, watermark)
        again = sorted(window for window in arrivals.pieces if window - 1 <= watermark)
        if not again:
            return late, None
        slices = self._store.slices()
        fired = (self._store.result(w, slices, arrivals.keys_of(w)) for w in again)
        return late, emit_fired(self._site.output, self._site.ctx.max_parallelism, fired)

    def advance(self, watermark: int) -> Work:
        due = self._store.due
        return None if due is None or due > watermark else self._fire_until(watermark)

    def next_alarm(self) -> int | None:
        return None if self.time is Time.EVENTS else self._store.due

    def finish(self) -> Work:
        return self._fire_until(MAX_TIMESTAMP)

    def _fire_until(self, watermark: int) -> Steps:
        """Fire what `watermark` passes, in order of time, and drop finished slices."""
        site, slices = self._site, self._store.slices()
        self._firing.begin()
        site.progress.advance(watermark)
        due = self._store.windows(slices, self._firing.least, site.progress.furthest)
        results = (self._result(window, slices) for window in due)
        emitted = self._firing.emitted
        yield from emit_fired(site.output, site.ctx.max_parallelism, results, emitted)
        self._firing.end()
        self._store.forget(slices, watermark)

    def _result(self, window: int, slices: list[int]) -> Fired:
        """For all keys that have not had it."""
        fired = self._store.result(window, slices, None)
        unfired = self._firing.unfired(fired.keys, window)
        return fired if unfired is None else fired.filter(unfired)

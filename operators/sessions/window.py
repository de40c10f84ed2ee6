"""Session windows on kernels: built-in aggregates, over event time or the clock, with a gap for all
records or one for each.

A record extends its key's session, joins several of them, or opens one, in a few array accesses;
sessions fire from a wheel of due times. No per-record Python (but for gaps that a user's function
gives), no timers.

What is late, what fires and what comes out is as on the row path, with one difference: where
lateness is allowed, a late record makes its already fired session fire again once per batch, at the
batch's end and with the bounds it has then, not once per record. Bounds that a session had only in
the middle of a batch are never seen. With batches of one record there is no difference.

By the clock, all records of a batch have the time at which it came and none is late; if the clock
goes back, records come at the earliest time that has not fired. Sessions still open when a bounded
input ends fire then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ...api.windows.session_windows import DYNAMIC, SESSIONS
from ...core.arrays import Int64s, Slots
from ...core.batch import Batch, ColumnBatch
from ...core.elements import MAX_TIMESTAMP
from ...core.errors import TypeMismatchError
from ..base import IN_STATE, Steps, Work
from ..slots.slot_kinds import runs_on_slots
from ..windows.windower import LateRows, Records, Site, Time, Windower
from .gaps import SessionAssigner, gaps_of

if TYPE_CHECKING:
    from .fired import Fired


class SessionWindower(Windower):
    """See the module. State: see `store`."""

    def __init__(self) -> None:
        self._gap = 0
        """The greatest of the last batch; before the first 0, where records have gaps of their
        own."""
        self._soonest = MAX_TIMESTAMP
        """No session by the clock ends before this, or the task has been asked to call."""

    def open(self, site: Site) -> None:
        from ..slots.slot_making import make_slots

        self._site, spec = site, site.spec
        assert isinstance(spec.assigner, SESSIONS)
        assert runs_on_slots(spec.function)
        self._assigner: SessionAssigner = spec.assigner
        if not isinstance(spec.assigner, DYNAMIC):
            self._gap = spec.assigner.session_gap
        event_time = spec.assigner.is_event_time()
        self.time = Time.EVENTS if event_time else Time.CLOCK
        self._lateness = min(spec.allowed_lateness_ms if event_time else 0, MAX_TIMESTAMP)
        self._aggregates = make_slots(spec.function)
        self.arguments = self._aggregates

    def spans(self, batch: Batch, columns: ColumnBatch) -> Int64s:
        gaps = gaps_of(self._assigner, batch, columns)
        self._gap = int(gaps.max())
        return gaps

    def check(self, first: int, last: int) -> None:
        if last > MAX_TIMESTAMP - self._gap:
            raise TypeMismatchError(
                f"window operator '{self._site.ctx.name}': a session that starts at "
                f"{last} ms would end after the last timestamp, {MAX_TIMESTAMP}"
            )

    def bind(self, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        from .store import SessionStore

        self._aggregates.bind(fields)
        self._site.output.bind(keys, self._aggregates.names)
        state = self._site.ctx.keyed_state
        self._store = SessionStore(self._gap, self._lateness, state, keys, self._aggregates)
        if self.time is Time.CLOCK and not self._store.empty:
            now_ms = self._site.ctx.clock.now_ms()
            self._soonest = max(now_ms - 1, self._site.progress.watermark + 1)

    def add(self, records: Records, watermark: int) -> tuple[LateRows, Work]:
        times, gaps = records.times, records.spans
        assert gaps is not None
        self._store.suit(self._gap)
        if self.time is Time.CLOCK:
            self._soonest = min(self._soonest, int(times[0] + gaps.min()) - 1)
        late, fired = self._store.add(
            records.keys, times, gaps, records.inputs, records.first, watermark
        )
        return late, self._emit(fired)

    def advance(self, watermark: int) -> Work:
        if self._store.away_due(watermark):
            return self._advance_in_steps(watermark)
        many = self._store.many_due(watermark, self._site.output.size)
        if many is not None:
            return self._advance_in_parts(many, watermark)
        fired = self._emit(self._store.fire(watermark))
        if self.time is Time.CLOCK:
            self._soonest = self._store.next_end(watermark)
        return fired

    def resume(self) -> Steps:
        site = self._site
        until, groups = site.firing.until, site.ctx.max_parallelism
        for bound in self._store.bring(int(until.max())):
            yield from self._in_parts(*self._store.missing(until, groups, bound))
            self._store.forget(until, groups, bound)
            site.ctx.keyed_state.forget_object_keys()
            if bound < until.max():
                yield IN_STATE
        site.firing.end()

    def next_alarm(self) -> int | None:
        return self._soonest if self._soonest < MAX_TIMESTAMP else None

    def finish(self) -> Work:
        return self.advance(MAX_TIMESTAMP)

    def validate(self) -> None:
        self._store.validate()

    def _advance_in_parts(self, slots: Slots, watermark: int) -> Steps:
        """What these sessions hold comes out, and then the rest is done of `advance`."""
        site = self._site
        site.firing.begin()
        site.progress.advance(watermark)
        yield from self._in_parts(slots, np.full(len(slots), watermark, dtype=np.int64))
        site.firing.end()
        yield from self.advance(watermark) or ()

    def _advance_in_steps(self, watermark: int) -> Steps:
        """The same where sessions are away: as many come back at a time as fit."""
        site = self._site
        site.firing.begin()
        site.progress.advance(watermark)
        for bound in self._store.bring(watermark):
            slots = self._store.due(bound)
            yield from self._in_parts(slots, np.full(len(slots), watermark, dtype=np.int64))
            yield from self._emit(self._store.fire(bound)) or ()
            site.ctx.keyed_state.forget_object_keys()
            if bound < watermark:
                yield IN_STATE
        site.firing.end()
        yield from self.advance(watermark) or ()

    def _in_parts(self, slots: Slots, until: Int64s) -> Steps:
        """Fire these sessions, which state says have not fired, by these watermarks."""
        size = self._site.output.size
        for start in range(0, len(slots), size):
            if start:
                yield IN_STATE
            part = slice(start, start + size)
            yield from self._emit(self._store.fire_some(slots[part], until[part])) or ()

    def _emit(self, fired: Fired | None) -> Work:
        if fired is None:
            return None
        bounds = pa.array(fired.starts), pa.array(fired.ends)
        return self._site.output.emit(fired.keys, *bounds, fired.results, fired.ends - 1)

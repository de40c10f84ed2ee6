"""KeyedProcessFunction: per-record logic with keyed state and timers.

One context object is changed for each record, results go into one list, and timestamps and side
outputs are sorted out once per batch (`process.each_record`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

from ...api.functions.user_functions import TimeDomain
from ...core.batch import Batch
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...core.keys import KeySelector
from ...state.backend import KeyedStateBackend
from ..base import IN_STATE, Operator, Steps, plainly
from ..firing_until import FiringUntil
from ..letters import open_letters
from .gathering import Gathering
from .process import collector_of, each_record
from .runtime_context import OperatorRuntimeContext
from .timers import Timer, Timers, timer_time
from .user_function import UserFunction

_TIMER_STATES = ("__event_timers", "__processing_timers")


class KeyedTimerService:
    """TimerService of the current key."""

    __slots__ = ("_timers",)

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def current_processing_time(self) -> int:
        return self._timers.now()

    def current_watermark(self) -> int:
        return self._timers.watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        if type(timestamp) is not int or not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            timestamp = timer_time(timestamp, "register_processing_time_timer")
        self._timers.register_processing(timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        if type(timestamp) is not int or not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            timestamp = timer_time(timestamp, "register_event_time_timer")
        self._timers.register_event(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        if type(timestamp) is not int or not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            timestamp = timer_time(timestamp, "delete_processing_time_timer")
        self._timers.delete_processing(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        if type(timestamp) is not int or not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            timestamp = timer_time(timestamp, "delete_event_time_timer")
        self._timers.delete_event(timestamp)


class KeyedContext:
    """Context and OnTimerContext in one object, changed for each record and timer."""

    __slots__ = ("_service", "_state", "domain", "stamp")

    def __init__(self, service: KeyedTimerService, state: KeyedStateBackend) -> None:
        self._service = service
        self._state = state
        self.stamp: int | None = None
        self.domain = TimeDomain.EVENT_TIME

    def timestamp(self) -> int | None:
        return self.stamp

    def timer_service(self) -> KeyedTimerService:
        return self._service

    def get_current_key(self) -> Any:
        return self._state.get_current_key()

    def time_domain(self) -> TimeDomain:
        return self.domain


class KeyedProcessOperator(Operator):
    """Runs a KeyedProcessFunction.

    Results of `process_element` carry the record's timestamp; those of `on_timer` the timer's.
    Event-time timers fire before the watermark that passed them is forwarded. Processing-time
    timers still pending when a bounded input ends do not fire.

    A record or a timer may give results without end: they go out batch by batch, with a pause after
    each. No checkpoint is taken within one, but between two timers: those that have fired are in no
    state any more, and `_firing` says up to where the others are due.

    What runs functions of several inputs says which method handles the records of which port, and
    what their keys are; state and timers of a key are one for all.
    """

    METHODS: tuple[str, ...] = ("process_element",)
    """By port: what handles its records."""

    def __init__(self, spec: Any) -> None:
        self._keys: tuple[KeySelector, ...] = self._keys_of(spec)
        self._function = UserFunction(spec.function, self.METHODS[0])
        self._calls = [self._function.other(name) for name in self.METHODS]
        self._on_timer = getattr(spec.function, "on_timer", None)
        self._schema = spec.schema

    def _keys_of(self, spec: Any) -> tuple[KeySelector, ...]:
        """By port."""
        return (spec.key,)

    def open(self) -> None:
        self._collector = collector_of(self, self._schema)
        letters = open_letters(self)
        lenient = None if letters is None else Gathering(self, letters, self._schema, sides=True)
        self._gathering = lenient
        """Of operators that write dead letters, in place of the collector."""
        self._each = lenient.each_record if lenient else partial(each_record, self._collector)
        self._timers = Timers(self.ctx, _TIMER_STATES)
        self._firing = FiringUntil(self.ctx.keyed_state, "__event_firing")
        if self._firing.unfinished:
            self.go_on_soon()
        self._context = self._make_context(KeyedTimerService(self._timers))
        self._by_clock = False
        """Whether processing-time timers fire, whose times are no event times."""
        self.ctx.keyed_state.time.stamp_of = self._event_stamp
        self._function.open(OperatorRuntimeContext(self.ctx, keyed=True))

    def _make_context(self, service: KeyedTimerService) -> KeyedContext:
        """What calls are given, of records and of timers."""
        return KeyedContext(service, self.ctx.keyed_state)

    def process(self, batch: Batch, port: int = 0) -> Steps:
        if self._firing.unfinished:
            yield from plainly(self._resume())
        keys, keyed = self._keys[port].held_keys(batch), self.ctx.keyed_state
        keyed.check_keys(keys)
        call, method = self._calls[port], self.METHODS[port]
        yield from self._each(call, method, self._context, batch, keys, keyed.current)

    def process_watermark(self, timestamp: int) -> Steps:
        if self._firing.unfinished:  # a snapshot in between would not know of this watermark
            yield from plainly(self._resume())
        self._firing.begin(timestamp)
        yield from self._fire(TimeDomain.EVENT_TIME, self._timers.advance_watermark(timestamp))
        self._firing.end()
        self.out.emit_watermark(timestamp)

    def on_processing_time(self, now_ms: int) -> Steps:
        if self._firing.unfinished:
            yield from self._resume()
        self._by_clock = True
        yield from self._fire(TimeDomain.PROCESSING_TIME, self._timers.advance_clock(now_ms))
        self._by_clock = False

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._firing.save()
        self._function.snapshot(checkpoint_id)

    def close(self) -> None:
        self._function.close(self.ctx.name)

    def _event_stamp(self) -> int | None:
        """For state that expires by event time."""
        return None if self._by_clock else self._context.stamp

    def _resume(self) -> Steps:
        """Fire what was due when a snapshot was taken between two timers."""
        due = self._timers.overdue(self._firing.by_group, self._firing.furthest)
        yield from self._fire(TimeDomain.EVENT_TIME, due)
        self._timers.watermark = self._firing.least
        self._firing.end()

    def _fire(self, domain: TimeDomain, due: Iterator[Timer]) -> Steps:
        """Call the function for each timer; a pause after each batch of results or of timers. What
        a timer has still to give is in no state, so results that are gathered when it has ended go
        out before the next one if it took several batches."""
        collector, context = self._collector, self._context
        if self._gathering is not None and self._on_timer is not None:
            yield from self._gathering.each_timer(self._on_timer, domain, context, due)
            return
        for timestamp, _, _ in due:
            if self._on_timer is None:
                continue
            context.domain, context.stamp = domain, timestamp
            rest = collector.collect(self._on_timer(timestamp, context), timestamp)
            full = rest is not None or collector.full
            while rest is not None:
                collector.flush()
                one_more = list(islice(rest, 1))
                if not one_more:
                    break
                yield None
                collector.collect(one_more, timestamp)
                if not collector.full:
                    rest = collector.collect(rest, timestamp)
            if full:
                collector.flush()
                yield IN_STATE
        collector.flush()

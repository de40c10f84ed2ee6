"""KeyedProcessFunction: per-record logic with keyed state and timers.

The loop around the user's function is the whole cost here, so it does nothing per record that can
be done per batch: one context object is changed for each record, results go into one list, and
timestamps and side outputs are sorted out once per batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ...api.functions.user_functions import TimeDomain
from ...api.specs.records import KeyedProcessSpec
from ...core.batch import Batch
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...state.backend import KeyedStateBackend
from ..base import Operator, Steps
from .collector import Collector, check_iterable
from .pace import Pace
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


class _Context:
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
    each. No checkpoint is taken within one.
    """

    def __init__(self, spec: KeyedProcessSpec) -> None:
        self._key = spec.key
        self._function = UserFunction(spec.function, "process_element")
        self._on_timer = getattr(spec.function, "on_timer", None)
        self._schema = spec.schema

    def open(self) -> None:
        pace = Pace(self.ctx.config.batch_size, self.ctx.clock)
        self._collector = Collector(self.out, self._schema, pace)
        self._timers = Timers(self.ctx, _TIMER_STATES)
        self._context = _Context(KeyedTimerService(self._timers), self.ctx.keyed_state)
        self._function.open(OperatorRuntimeContext(self.ctx, keyed=True))

    def process(self, batch: Batch, port: int = 0) -> Steps:
        collector, context, call = self._collector, self._context, self._function.call
        current = self.ctx.keyed_state.current
        values, bound, full = collector.values, collector.bounds.append, collector.begin()
        rows, keys, times = batch.rows(), self._key.keys(batch), batch.timestamps
        stamps = [None] * len(rows) if times is None else times.tolist()
        first = 0  # the record to which the first of the bounds belongs
        result: Any = None
        try:
            for value, current.key, context.stamp in zip(rows, keys, stamps, strict=True):
                result = call(value, context)
                if result is not None:
                    rest = iter(result)
                    values.extend(islice(rest, full))
                    if len(values) >= full:
                        this = first + len(collector.bounds)
                        yield from collector.overflow(rest, times, first)
                        values, bound, full = (
                            collector.values,
                            collector.bounds.append,
                            collector.size,
                        )
                        first = this
                bound(len(values))
        except TypeError as error:
            if result is not None:
                check_iterable(result, "process_element", error)
            raise
        collector.flush_groups(None if times is None else times[first:])

    def process_watermark(self, timestamp: int) -> Steps:
        yield from self._fire(TimeDomain.EVENT_TIME, self._timers.advance_watermark(timestamp))
        self.out.emit_watermark(timestamp)

    def on_processing_time(self, now_ms: int) -> Steps:
        return self._fire(TimeDomain.PROCESSING_TIME, self._timers.advance_clock(now_ms))

    def close(self) -> None:
        self._function.close(self.ctx.name)

    def _fire(self, domain: TimeDomain, due: Iterator[Timer]) -> Steps:
        """Call the function for each timer; a pause after each batch of results or of timers."""
        collector, context = self._collector, self._context
        for timestamp, _, _ in due:
            if self._on_timer is None:
                continue
            context.domain, context.stamp = domain, timestamp
            rest = collector.collect(self._on_timer(timestamp, context), timestamp)
            while rest is not None:
                collector.flush()
                yield None
                rest = collector.collect(rest, timestamp)
            if collector.full:
                collector.flush()
                yield None
        collector.flush()

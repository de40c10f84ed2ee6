"""KeyedProcessFunction: per-record logic with keyed state and timers.

The loop around the user's function is the whole cost here, so it does nothing per record that can
be done per batch: one context object is changed for each record, results go into one list, and
timestamps and side outputs are sorted out once per batch.
"""

from __future__ import annotations

import operator
from typing import Any

from ...api.functions.user_functions import TimeDomain
from ...api.specs.records import KeyedProcessSpec
from ...core.batch import Batch
from ...state.backend import KeyedStateBackend
from ..base import Operator
from .collector import Collector, check_iterable
from .runtime_context import OperatorRuntimeContext
from .timers import Timers
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
        self._timers.register_processing(operator.index(timestamp))

    def register_event_time_timer(self, timestamp: int) -> None:
        self._timers.register_event(operator.index(timestamp))

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._timers.delete_processing(operator.index(timestamp))

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._timers.delete_event(operator.index(timestamp))


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
    """

    def __init__(self, spec: KeyedProcessSpec) -> None:
        self._key = spec.key
        self._function = UserFunction(spec.function, "process_element")
        self._on_timer = getattr(spec.function, "on_timer", None)
        self._schema = spec.schema

    def open(self) -> None:
        self._collector = Collector(self.out, self._schema, self.ctx.config.batch_size)
        self._timers = Timers(self.ctx, _TIMER_STATES)
        self._context = _Context(KeyedTimerService(self._timers), self.ctx.keyed_state)
        self._function.open(OperatorRuntimeContext(self.ctx, keyed=True))

    def process(self, batch: Batch, port: int = 0) -> None:
        collector, context, call = self._collector, self._context, self._function.call
        current = self.ctx.keyed_state.current
        values, bound = collector.values, collector.bounds.append
        rows, keys = batch.rows(), self._key.keys(batch)
        stamps = [None] * len(rows) if batch.timestamps is None else batch.timestamps.tolist()
        result: Any = None
        try:
            for value, current.key, context.stamp in zip(rows, keys, stamps, strict=True):
                result = call(value, context)
                if result is not None:
                    values.extend(result)
                bound(len(values))
        except TypeError as error:
            if result is not None:
                check_iterable(result, "process_element", error)
            raise
        collector.flush_groups(batch.timestamps)

    def process_watermark(self, timestamp: int) -> None:
        self._context.domain = TimeDomain.EVENT_TIME
        self._timers.advance_watermark(timestamp, self._fire)
        self._collector.flush()
        self.out.emit_watermark(timestamp)

    def on_processing_time(self, now_ms: int) -> None:
        self._context.domain = TimeDomain.PROCESSING_TIME
        self._timers.advance_clock(now_ms, self._fire)
        self._collector.flush()

    def close(self) -> None:
        self._function.close(self.ctx.name)

    def _fire(self, timestamp: int, key: Any, namespace: Any) -> None:
        if self._on_timer is not None:
            self._context.stamp = timestamp
            self._collector.collect(self._on_timer(timestamp, self._context), timestamp)

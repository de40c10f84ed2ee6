"""Timers in RocksDB, every way a pipeline may be run; no more than those of one moment stay in
memory."""

from __future__ import annotations

from typing import Any

from backends import TINY
from drawn_ways import assert_equivalent
from strom import KeyedProcessFunction
from strom.testing.equivalence import Ways

BUCKET_MS = 100
TIMERS = 8


def times(start: int) -> list[tuple[int, bool]]:
    """The timers of a bucket, and whether they are deleted again: no two buckets share one."""
    end = start + BUCKET_MS
    return [(end + n * (7 * BUCKET_MS + 3), (start + n) % 3 == 0) for n in range(TIMERS)]


class Echoes(KeyedProcessFunction):
    """Each bucket of event time that a key has records in is told of again and again, later."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        service = ctx.timer_service()
        for at, deleted in times(value.ts - value.ts % BUCKET_MS):
            service.register_event_time_timer(at)
            if deleted:
                service.delete_event_time_timer(at)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield (ctx.get_current_key(), timestamp)


def test_timers_of_many_moments(readings: Any) -> None:
    def build(env: Any) -> Any:
        return readings.rows(env).key_by(lambda r: r.k).process(Echoes())

    buckets = {(r.k, r.ts - r.ts % BUCKET_MS) for r in readings.all}
    expected = [(k, at) for k, start in buckets for at, deleted in times(start) if not deleted]
    assert_equivalent(build, expected, Ways(state=TINY))


class Rounds(KeyedProcessFunction):
    """Timers that register timers, while others of their moment are still to fire."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(value.ts - value.ts % BUCKET_MS + BUCKET_MS)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield (ctx.get_current_key(), timestamp)
        if timestamp % BUCKET_MS < 5:
            service = ctx.timer_service()
            service.register_event_time_timer(timestamp + 10_001)
            service.register_event_time_timer(timestamp + 1)
            service.delete_event_time_timer(timestamp + 10_001)


def test_timers_that_register_timers(readings: Any) -> None:
    def build(env: Any) -> Any:
        return readings.rows(env).key_by(lambda r: r.k).process(Rounds())

    buckets = {(r.k, r.ts - r.ts % BUCKET_MS + BUCKET_MS) for r in readings.all}
    expected = [(k, end + n) for k, end in buckets for n in range(6)]
    assert_equivalent(build, expected, Ways(state=TINY))

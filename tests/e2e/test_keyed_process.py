"""KeyedProcessFunction: every kind of state, event-time and processing-time timers; every way.

A timer's effect must not depend on when the watermark comes. Here timers close buckets of event
time; all records of a bucket come before the watermark that passes its end (nothing is late), so
what the timer sees is fixed, although when it fires is not.

    records       a  b    c       d  e            watermark passes 1099 some time after c, and
    bucket     [1000 ...... 1099][1100 ......     before or after d and e: they are another's
"""

from __future__ import annotations

from typing import Any

import pytest
from drawn_ways import assert_equivalent
from strom import (
    AggregateFunction,
    AggregatingStateDescriptor,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ReducingStateDescriptor,
    RuntimeContext,
    TimeDomain,
    ValueStateDescriptor,
)

BUCKET_MS = 100
FOREVER = 2**60
EVENTS = OutputTag("events")


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return [0, 0]

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return [acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]


class Running(KeyedProcessFunction):
    """What a state of some kind holds, after each record."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def open(self, runtime_context: RuntimeContext) -> None:
        match self.kind:
            case "value":
                self.state = runtime_context.get_state(ValueStateDescriptor("s"))
            case "list":
                self.state = runtime_context.get_list_state(ListStateDescriptor("s"))
            case "map":
                self.state = runtime_context.get_map_state(MapStateDescriptor("s"))
            case "reducing":
                descriptor = ReducingStateDescriptor("s", lambda a, b: a * 7 % 1009 + b)
                self.state = runtime_context.get_reducing_state(descriptor)
            case "aggregating":
                descriptor = AggregatingStateDescriptor("s", Mean())
                self.state = runtime_context.get_aggregating_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield (ctx.get_current_key(), getattr(self, self.kind)(value))

    def value(self, record: Any) -> Any:
        self.state.update((self.state.value() or 0) + record.v)
        return self.state.value()

    def list(self, record: Any) -> Any:
        self.state.add(record.v)
        if len(held := list(self.state.get())) > 5:
            self.state.update(held[-3:])
        return tuple(self.state.get())

    def map(self, record: Any) -> Any:
        self.state.put(record.g, (self.state.get(record.g) or 0) + 1)
        if self.state.get(record.g) > 4:
            self.state.remove(record.g)
        return tuple(sorted(self.state.items()))

    def reducing(self, record: Any) -> Any:
        self.state.add(record.v)
        return self.state.get()

    def aggregating(self, record: Any) -> Any:
        self.state.add(record.v)
        return self.state.get()


def running(kind: str, rows: list[Any]) -> list[Any]:
    """The same, without strom."""
    results: list[Any] = []
    values: list[int] = []
    counts: dict[int, int] = {}
    reduced: int | None = None
    for i, r in enumerate(rows):
        values.append(r.v)
        counts[r.g] = counts.get(r.g, 0) + 1
        reduced = r.v if reduced is None else reduced * 7 % 1009 + r.v
        match kind:
            case "value":
                results.append(sum(x.v for x in rows[: i + 1]))
            case "list":
                values = values[-3:] if len(values) > 5 else values
                results.append(tuple(values))
            case "map":
                counts = {g: n for g, n in counts.items() if n <= 4}
                results.append(tuple(sorted(counts.items())))
            case "reducing":
                results.append(reduced)
            case "aggregating":
                results.append(sum(x.v for x in rows[: i + 1]) / (i + 1))
    return results


def by_key(readings: Any) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for r in readings.all:
        groups.setdefault(r.k, []).append(r)
    return groups


@pytest.mark.parametrize("state", ["value", "list", "map", "reducing", "aggregating"])
def test_each_kind_of_state(readings: Any, state: str) -> None:
    def build(env: Any) -> Any:
        return readings.rows(env).key_by(lambda r: r.k).process(Running(state))

    groups = by_key(readings)
    expected = [(k, held) for k, rows in groups.items() for held in running(state, rows)]
    assert_equivalent(build, expected)


class Buckets(KeyedProcessFunction):
    """Sums per bucket of event time, given out by a timer at the bucket's end. A record with g = 0
    withdraws the bucket's timer, the next one sets it again. Every record goes to a side output."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        end = value.ts - value.ts % BUCKET_MS + BUCKET_MS
        self.sums.put(end, (self.sums.get(end) or 0) + value.v)
        service = ctx.timer_service()
        if value.g:
            service.register_event_time_timer(end - 1)
            service.register_event_time_timer(end - 1)
        else:
            service.delete_event_time_timer(end - 1)
        yield EVENTS, (value.k, ctx.timestamp())

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        assert ctx.timer_service().current_watermark() >= timestamp == ctx.timestamp()
        yield (ctx.get_current_key(), timestamp, self.sums.get(timestamp + 1))
        self.sums.remove(timestamp + 1)


def test_event_time_timers(readings: Any, kind: str) -> None:
    def build(env: Any) -> Any:
        main = readings.stream(env, kind).key_by("k").process(Buckets())
        return {"main": main, "events": main.get_side_output(EVENTS)}

    sums: dict[tuple[str, int], int] = {}
    armed: dict[tuple[str, int], bool] = {}
    for r in readings.all:
        bucket = (r.k, r.ts - r.ts % BUCKET_MS + BUCKET_MS)
        sums[bucket] = sums.get(bucket, 0) + r.v
        armed[bucket] = r.g != 0
    fired = [(k, end - 1, sums[k, end]) for (k, end), on in armed.items() if on]
    assert 0 < len(fired) < len(sums)
    events = [("events", (r.k, r.ts)) for r in readings.all]
    assert_equivalent(build, [*(("main", one) for one in fired), *events])


class Chain(KeyedProcessFunction):
    """A timer that sets the next one, four times: timers set by timers survive as well."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.rounds = runtime_context.get_map_state(MapStateDescriptor("rounds"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        at = value.ts + 50
        while self.rounds.contains(at):
            at += 1
        self.rounds.put(at, 0)
        ctx.timer_service().register_event_time_timer(at)
        return None

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        round_ = self.rounds.get(timestamp)
        self.rounds.remove(timestamp)
        yield (ctx.get_current_key(), round_)
        if round_ < 4:
            at = timestamp + 1000
            while self.rounds.contains(at):
                at += 1
            self.rounds.put(at, round_ + 1)
            ctx.timer_service().register_event_time_timer(at)


def test_timers_that_set_timers(readings: Any) -> None:
    def build(env: Any) -> Any:
        return readings.rows(env).key_by("k").process(Chain())

    rounds = [(r.k, i) for r in readings.all for i in range(5)]
    assert_equivalent(build, rounds)


class Flush(KeyedProcessFunction):
    """Holds records back until some processing time has passed, at the latest until the end.

    When the timers fire, and how much at once, is nobody's promise; that each record comes out once
    is.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        self.held = runtime_context.get_list_state(ListStateDescriptor("held"))
        self.timer = runtime_context.get_state(ValueStateDescriptor("timer"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        service = ctx.timer_service()
        if self.timer.value() is None:
            due = service.current_processing_time() + 2
            service.register_processing_time_timer(due)
            service.register_event_time_timer(FOREVER)
            self.timer.update(due)
        self.held.add((value.k, value.v))
        return None

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        service = ctx.timer_service()
        if ctx.time_domain() is TimeDomain.PROCESSING_TIME:
            assert timestamp == self.timer.value()
            assert service.current_processing_time() >= timestamp
            service.delete_event_time_timer(FOREVER)
        elif (due := self.timer.value()) is not None:
            service.delete_processing_time_timer(due)
        yield from list(self.held.get())
        self.held.clear()
        self.timer.clear()


def test_processing_time_timers_lose_and_repeat_nothing(readings: Any) -> None:
    def build(env: Any) -> Any:
        return readings.rows(env).key_by("k").process(Flush())

    assert_equivalent(build, [(r.k, r.v) for r in readings.all])

"""Every kind of state that operators keep: a program whose operator keeps it, and its records.

`python -m benchmarks snapshot` fills each with so many keys. A spec of `operators/registry.py` is
here with one state at least, or in `STATELESS` with the reason: a test holds that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from typing import Any

import numpy as np
import pyarrow as pa
from strom import (
    AggregateFunction,
    BroadcastProcessFunction,
    ContinuousEventTimeTrigger,
    CountTrigger,
    DataStream,
    EventTimeSessionWindows,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStream,
    MapStateDescriptor,
    PurgingTrigger,
    RuntimeContext,
    SlidingEventTimeWindows,
    StateTtlConfig,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    count,
    count_distinct,
    max_,
    sum_,
)
from strom.connectors.datagen import DataGenSource

from .streams import mix, numbers

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.int64())])
HOUR = timedelta(hours=1)
FAR = 2**60
"""A time that does not come."""


def records(start: int, number: int) -> pa.RecordBatch:
    """Records `start` on: a key of its own for each, a value, and the record's number of ms."""
    keys = mix(numbers(start, number)).view(np.int64)
    return pa.RecordBatch.from_arrays(
        [pa.array(keys), pa.array(keys & 1023), pa.array(numbers(start, number).view(np.int64))],
        schema=SCHEMA,
    )


@dataclass(frozen=True)
class State:
    """build: from one or two keyed streams of `records` to the stream whose operator is meant.
    ports: the inputs that get a record of each key. ended: those that end before the snapshots.
    numeric: no Python objects, so that a snapshot is to take milliseconds."""

    build: Callable[..., DataStream]
    ports: tuple[int, ...] = (0,)
    ended: tuple[int, ...] = ()
    numeric: bool = True

    def stream(self) -> DataStream:
        """The program, up to the operator."""
        env = StreamExecutionEnvironment.get_execution_environment()
        return self.build(*(_keyed(env) for _ in signature(self.build).parameters))


def _keyed(env: StreamExecutionEnvironment) -> KeyedStream:
    return (
        env.from_source(DataGenSource(records, 1, schema=SCHEMA)).with_event_time("t").key_by("k")
    )


# --- operators on rows ----------------------------------------------------------------------------


class Latest(KeyedProcessFunction):
    """One value state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.latest = runtime_context.get_state(ValueStateDescriptor("latest"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.latest.update(value.v)
        yield from ()


class LatestOfADay(Latest):
    """One value state that expires."""

    def open(self, runtime_context: RuntimeContext) -> None:
        latest = ValueStateDescriptor("latest")
        latest.enable_time_to_live(StateTtlConfig.new_builder(timedelta(days=1)).build())
        self.latest = runtime_context.get_state(latest)


class Alarm(KeyedProcessFunction):
    """One timer."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(FAR)
        yield from ()


class LatestOfBoth(KeyedCoProcessFunction):
    """One value state for both inputs."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.latest = runtime_context.get_state(ValueStateDescriptor("latest"))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        self.latest.update(value.v)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        self.latest.update(-value.v)


RULES = MapStateDescriptor("rules")


class Ruled(BroadcastProcessFunction[Any, Any, Any]):
    """One broadcast value per element."""

    def process_element(self, value: Any, ctx: Any) -> None:
        pass

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(value.k, value.v)


class RuledByKey(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """One value per key, and one broadcast value per element."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.latest = runtime_context.get_state(ValueStateDescriptor("latest"))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.latest.update(value.v)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(value.k, value.v)


class Total(AggregateFunction):
    """A sum."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + int(value.v)

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


def _same(record: Any) -> Any:
    """Of a keyed stream one without keys."""
    return record


# --- windows --------------------------------------------------------------------------------------


def _tumbling(stream: KeyedStream, trigger: Any = None) -> Any:
    windows = stream.window(TumblingEventTimeWindows.of(HOUR * 24 * 365))
    return windows if trigger is None else windows.trigger(trigger)


def _sliding(stream: KeyedStream) -> Any:
    return stream.window(SlidingEventTimeWindows.of(HOUR * 48, HOUR * 24))


def _sums(windows: Any) -> DataStream:
    stream: DataStream = windows.aggregate(n=count(), total=sum_("v"), most=max_("v"))
    return stream


STATES: dict[str, State] = {
    "running_sum": State(lambda a: a.sum("v")),
    "running_max_by": State(lambda a: a.max_by("v")),
    "aggregate": State(lambda a: a.aggregate(n=count(), total=sum_("v"), most=max_("v"))),
    "aggregate_distinct": State(lambda a: a.aggregate(n=count_distinct("v"))),
    "slices": State(lambda a: _sums(_tumbling(a))),
    "slices_sliding": State(lambda a: _sums(_sliding(a))),
    "slices_distinct": State(lambda a: _tumbling(a).aggregate(n=count_distinct("v"))),
    "ticks": State(lambda a: _sums(_tumbling(a, ContinuousEventTimeTrigger.of(HOUR)))),
    "panes": State(lambda a: _sums(_tumbling(a, PurgingTrigger.of(CountTrigger.of(1000))))),
    "sessions": State(lambda a: _sums(a.window(EventTimeSessionWindows.with_gap(HOUR * 1000)))),
    "counted_windows": State(lambda a: _sums(a.count_window(1000))),
    "counted_windows_sliding": State(lambda a: _sums(a.count_window(1000, 500))),
    "window_max_by": State(lambda a: _tumbling(a).max_by("v")),
    "window_top_n": State(lambda a: _tumbling(a).top_n(3, "v")),
    "window_join": State(
        lambda a, b: a.window_join(b, TumblingEventTimeWindows.of(HOUR * 24 * 365)), (0, 1)
    ),
    "interval_join": State(lambda a, b: a.interval_join(b, -HOUR * 1000, HOUR * 1000), (0, 1)),
    "regular_join": State(lambda a, b: a.join(b), (0, 1)),
    "temporal_join": State(lambda a, b: a.temporal_join(b), (1, 0)),
    "broadcast_join": State(lambda a, b: a.broadcast_join(b, on="k"), (1,), ended=(1,)),
    "top_n": State(lambda a: a.top_n(3, "v")),
    "deduplicate_first": State(lambda a: a.deduplicate("first")),
    "deduplicate_last": State(lambda a: a.deduplicate("last")),
    "deduplicate_first_ttl": State(lambda a: a.deduplicate("first", ttl=timedelta(days=1))),
    "deduplicate_last_ttl": State(lambda a: a.deduplicate("last", ttl=timedelta(days=1))),
    "over_rows": State(lambda a: a.over(rows=3, order="arrival").aggregate(total=sum_("v"))),
    "over_waiting": State(lambda a: a.over(rows=3).aggregate(total=sum_("v"))),
    "over_all": State(lambda a: a.over(order="arrival").aggregate(total=sum_("v"))),
    "row_state": State(lambda a: a.process(Latest()), numeric=False),
    "row_state_ttl": State(lambda a: a.process(LatestOfADay()), numeric=False),
    "row_timers": State(lambda a: a.process(Alarm()), numeric=False),
    "row_state_of_two": State(
        lambda a, b: a.connect(b).process(LatestOfBoth()), (0, 1), numeric=False
    ),
    "broadcast_state": State(
        lambda a, b: a.map(_same).connect(b.broadcast(RULES)).process(Ruled()), (1,), numeric=False
    ),
    "broadcast_state_by_key": State(
        lambda a, b: a.connect(b.broadcast(RULES)).process(RuledByKey()), (0, 1), numeric=False
    ),
    "row_reduce": State(lambda a: a.reduce(lambda one, other: other), numeric=False),
    "row_windows": State(lambda a: _tumbling(a).aggregate(Total()), numeric=False),
}
"""By name."""

STATELESS: dict[str, str] = {
    "SourceSpec": "positions of splits",
    "SinkSpec": "what is to be committed",
    "MapSpec": "none",
    "FlatMapSpec": "none",
    "FilterSpec": "none",
    "ProcessSpec": "none but what the function keeps",
    "ExpressionSpec": "none",
    "MapBatchesSpec": "none",
    "PassSpec": "none",
    "KindSpec": "none",
    "ProjectSpec": "none",
    "AsyncWaitSpec": "what is in flight",
    "AsyncMapBatchesSpec": "what is in flight",
    "WatermarkSpec": "none",
    "EventTimeSpec": "none",
    "CoProcessSpec": "none but what the function keeps",
    "CoMapBatchesSpec": "none but what the function keeps",
    "OneOrderSpec": "none",
    "LocalCombineSpec": "sent on before each barrier",
    "CombineGroupsSpec": "which values were sent, and no need of it",
    "LookupJoinSpec": "a cache",
}
"""Specs of operators without a state that grows with keys, and what they keep instead."""

"""The job behind the golden checkpoints, which are kept for ever: it does not change any more.

State of every face: a table of a rolling aggregate and one of windows on columns, values, lists
and maps of a function, its timers, the position of a source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from strom import (
    DataStream,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RuntimeContext,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
    count,
    sum_,
)
from strom.connectors.datagen import DataGenSource

COUNT, KEYS, STEP = 4_000, 40, 10
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("time", pa.int64())])


def generate(first: int, number: int) -> list[tuple[str, int, int]]:
    return [(f"k{n % KEYS}", n, n * STEP) for n in range(first, first + number)]


class Latest(KeyedProcessFunction):
    """Each record with how many of its key came before it, by three states that must agree."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))
        self.seen = runtime_context.get_map_state(
            MapStateDescriptor("seen", Types.STRING(), Types.LONG())
        )

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        number = (self.number.value() or 0) + 1
        self.number.update(number)
        self.last.add(value.value)
        self.seen.put("count", (self.seen.get("count") or 0) + 1)
        ctx.timer_service().register_event_time_timer(COUNT * STEP * 2)
        yield value.key, number, len(list(self.last.get())), self.seen.get("count")

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.get_current_key(), "timer", timestamp, self.number.value()


def build(env: StreamExecutionEnvironment) -> dict[str, DataStream]:
    source = DataGenSource(generate, count=COUNT, splits=1, schema=SCHEMA, block=16)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
    keyed = env.from_source(source, strategy, "records").uid("records").key_by("key")
    windows = keyed.window(TumblingEventTimeWindows.of(4_000)).aggregate(
        total=sum_("value"), n=count()
    )
    return {
        "windows": windows.uid("windows").map(tuple).uid("shown"),
        "rolling": keyed.sum("value").uid("rolling").map(tuple).uid("rolled"),
        "latest": keyed.process(Latest()).uid("latest"),
    }

"""Sensors that fall silent: each reading sets a timer in event time, at which the next one must be
there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strom.common import Duration, Types, WatermarkStrategy
from strom.common.watermark_strategy import TimestampAssigner
from strom.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from strom.datastream.state import MapStateDescriptor

READING = Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])
SILENCE = Types.TUPLE([Types.STRING(), Types.LONG()])
PATIENCE_MS = 5_000


class ReadingTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        time: int = value[1]
        return time


class Silences(KeyedProcessFunction):
    """Readings may come in any order. When the watermark reaches the end of a reading's patience,
    all that were made until then are there."""

    def open(self, runtime_context: RuntimeContext) -> None:
        times = MapStateDescriptor("times", Types.LONG(), Types.BOOLEAN())
        self.times = runtime_context.get_map_state(times)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.times.put(value[1], True)
        ctx.timer_service().register_event_time_timer(value[1] + PATIENCE_MS)

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterator[tuple[str, int]]:
        reading = timestamp - PATIENCE_MS
        if not any(reading < time <= timestamp for time in self.times):
            yield ctx.get_current_key(), timestamp
        self.times.remove(reading)


def silences(env: StreamExecutionEnvironment) -> DataStream:
    times = [n * 700 for n in range(60) if not 20 < n < 33]
    readings = [(f"sensor {n % 3}", time, n / 2) for n, time in enumerate(times)]
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    stream = env.from_collection(readings, READING).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(ReadingTime())
    )
    by_sensor = stream.key_by(lambda reading: reading[0], key_type=Types.STRING())
    return by_sensor.process(Silences(), output_type=SILENCE)


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    silences(env).print()
    env.execute("silences")


if __name__ == "__main__":
    main()

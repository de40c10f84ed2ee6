"""Payments above a limit that operators may change at any time: the limits are broadcast state.

Which limit a payment is held against must not depend on which of the two arrives first, so a
payment waits until the watermark has passed it: then all limits of before it are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strom.common import Types, WatermarkStrategy
from strom.common.watermark_strategy import TimestampAssigner
from strom.datastream import (
    DataStream,
    KeyedBroadcastProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from strom.datastream.state import MapStateDescriptor

PAYMENT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT()])
"""(account, time in ms, amount)"""
LIMIT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT()])
"""(name, from this time in ms on, amount)"""
ALARM = Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT(), Types.INT()])

LIMITS = MapStateDescriptor("limits", Types.LONG(), Types.INT())


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        time: int = value[1]
        return time


class AboveTheLimit(KeyedBroadcastProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        waiting = MapStateDescriptor("waiting", Types.LONG(), Types.LIST(Types.INT()))
        self.waiting = runtime_context.get_map_state(waiting)

    def process_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> None:
        _, time, amount = value
        self.waiting.put(time, [*(self.waiting.get(time) or ()), amount])
        ctx.timer_service().register_event_time_timer(time)

    def process_broadcast_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        _, since, amount = value
        ctx.get_broadcast_state(LIMITS).put(since, amount)

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterator[tuple[str, int, int, int]]:
        known = [one for one in ctx.get_broadcast_state(LIMITS).items() if one[0] <= timestamp]
        amounts = self.waiting.get(timestamp) or ()
        self.waiting.remove(timestamp)
        if known:
            _, limit = max(known)
            for amount in amounts:
                if amount > limit:
                    yield ctx.get_current_key(), timestamp, amount, limit


def alarms(env: StreamExecutionEnvironment) -> DataStream:
    payments = [(f"account {n % 5}", 100 * n, n * 37 % 100) for n in range(100)]
    limits = [("limit", 1_000, 90), ("limit", 4_000, 50), ("limit", 7_000, 80)]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(EventTime())
    data = env.from_collection(payments, PAYMENT).assign_timestamps_and_watermarks(strategy)
    control = env.from_collection(limits, LIMIT).assign_timestamps_and_watermarks(strategy)
    by_account = data.key_by(lambda payment: payment[0], key_type=Types.STRING())
    connected = by_account.connect(control.broadcast(LIMITS))
    return connected.process(AboveTheLimit(), output_type=ALARM)


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    alarms(env).print()
    env.execute("alarms")


if __name__ == "__main__":
    main()

"""Every tenth call of a user, and how long the ten took: state per user, which is forgotten an hour
after the user's last call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strom.common import Row, Time, Types
from strom.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from strom.datastream.state import (
    ListStateDescriptor,
    StateTtlConfig,
    ValueState,
    ValueStateDescriptor,
)

CALL = Types.ROW_NAMED(["user", "at"], [Types.STRING(), Types.LONG()])
TEN = Types.ROW_NAMED(["user", "calls", "took"], [Types.STRING(), Types.INT(), Types.LONG()])

FORGET = (
    StateTtlConfig.new_builder(Time.hours(1))
    .set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)
    .set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
    .build()
)


class Tens(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        calls = ValueStateDescriptor("calls", Types.INT())
        calls.enable_time_to_live(FORGET)
        self.calls: ValueState = runtime_context.get_state(calls)
        times = ListStateDescriptor("times", Types.LONG())
        times.enable_time_to_live(FORGET)
        self.times = runtime_context.get_list_state(times)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        calls = (self.calls.value() or 0) + 1
        self.calls.update(calls)
        self.times.add(value.at)
        if calls % 10 == 0:
            times = list(self.times.get())
            self.times.clear()
            yield Row(user=value.user, calls=calls, took=max(times) - min(times))


def tenth_calls(env: StreamExecutionEnvironment) -> DataStream:
    calls = [Row(user=f"user {n * n % 7}", at=1_000 * n) for n in range(200)]
    stream = env.from_collection(calls, CALL)
    return stream.key_by(lambda call: call.user).process(Tens(), output_type=TEN)


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    tenth_calls(env).print()
    env.execute("tenth calls")


if __name__ == "__main__":
    main()

"""Event time: timestamps, watermarks as functions see them, timers; timers of processing time."""

from __future__ import annotations

import asyncio

from strom.common import Configuration, Duration, Time, Types, WatermarkStrategy
from strom.common.watermark_strategy import TimestampAssigner
from strom.datastream import (
    AsyncDataStream,
    AsyncFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
    TimeDomain,
)
from strom.datastream.functions import RuntimeContext
from strom.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from strom.datastream.window import (
    ProcessingTimeSessionWindows,
    TumblingProcessingTimeWindows,
)

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
DATA = [("a", 1000), ("b", 500), ("a", 3000), ("c", 2000), ("a", 2500)]


GAP_S = 1.0
"""Between records of which the one must be seen before the other is there."""


class _Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


def _strategy():
    return WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_seconds(10)
    ).with_timestamp_assigner(_Second())


def _timed(env, data=DATA):
    return env.from_collection(data, PAIR).assign_timestamps_and_watermarks(_strategy())


class _Stamps(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp()


class _Watermarks(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


class _WithoutTime(ProcessFunction):
    """A record without a time has none here, and the least long in PyFlink's processes."""

    def process_element(self, value, ctx):
        yield value, ctx.timestamp() in (None, -(2**63))


def no_timestamps(env):
    return env.from_collection(DATA, PAIR).process(_WithoutTime())


def timestamps_through_operators(env):
    stream = _timed(env).map(lambda v: v, output_type=PAIR).filter(lambda v: v[1] != 500)
    twice = stream.flat_map(lambda v: [v, v], output_type=PAIR)
    return twice.key_by(lambda v: v[0]).process(_KeyedStamps())


class _KeyedStamps(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp(), ctx.get_current_key()


class _RecordTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return record_timestamp + value[1]


def the_time_that_assigners_see(env):
    first = env.from_collection(DATA, PAIR).assign_timestamps_and_watermarks(_strategy())
    again = first.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_RecordTime())
    )
    return again.process(_Stamps())


class _Timers(KeyedProcessFunction):
    def process_element(self, value, ctx):
        service = ctx.timer_service()
        service.register_event_time_timer(value[1] + 10)
        service.register_event_time_timer(value[1] + 10)
        service.register_event_time_timer(value[1] + 20)
        service.delete_event_time_timer(value[1] + 20)
        service.delete_event_time_timer(77)
        yield "record", value, ctx.timestamp()

    def on_timer(self, timestamp, ctx):
        service = ctx.timer_service()
        if timestamp == 1010:
            service.register_event_time_timer(1015)
            service.register_event_time_timer(900)
        yield (
            "timer",
            ctx.get_current_key(),
            timestamp,
            ctx.timestamp(),
            ctx.time_domain() == TimeDomain.EVENT_TIME,
            service.current_watermark(),
        )


def event_time_timers(env):
    return _timed(env).key_by(lambda v: v[0], key_type=Types.STRING()).process(_Timers())


def event_time_timers_of_one_key(env):
    return _timed(env).key_by(lambda v: "k", key_type=Types.STRING()).process(_Timers())


class _Once(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1] + 7)
        yield "record", value

    def on_timer(self, timestamp, ctx):
        yield "timer", ctx.get_current_key(), timestamp


def times_of_what_timers_give(env):
    fired = _timed(env).key_by(lambda v: "k", key_type=Types.STRING()).process(_Once())
    return fired.map(lambda v: v).process(_Stamps())


class _TimersWithoutKeys(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(5000)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.count.value()
        self.count.clear()


def state_in_timers(env):
    keyed = _timed(env).key_by(lambda v: v[0], key_type=Types.STRING())
    return keyed.process(_TimersWithoutKeys())


class _Late(AsyncFunction):
    """Answers come one by one, with time between them for watermarks to get everywhere."""

    def open(self, runtime_context):
        self.one_by_one = asyncio.Lock()

    async def async_invoke(self, value):
        async with self.one_by_one:
            await asyncio.sleep(GAP_S)
        return [value]

    def timeout(self, value):
        return []


def _spaced(env, data):
    """Records one after the other, with time between them."""
    one_by_one = Configuration()
    one_by_one.set_string("python.fn-execution.bundle.size", "1")
    env.configure(one_by_one)
    stream = env.from_collection(data, PAIR)
    return AsyncDataStream.ordered_wait(stream, _Late(), Time.seconds(600), 100, PAIR)


def _spaced_and_timed(env, data):
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Second())
    return _spaced(env, data).assign_timestamps_and_watermarks(strategy)


def watermarks_between_records(env):
    return _spaced_and_timed(env, [("a", 1000), ("a", 3000), ("a", 2000)]).process(_Watermarks())


class _Clock(KeyedProcessFunction):
    def process_element(self, value, ctx):
        service = ctx.timer_service()
        now = service.current_processing_time()
        service.register_processing_time_timer(now + 50)
        service.register_processing_time_timer(now + 60)
        service.delete_processing_time_timer(now + 60)
        yield "record", value

    def on_timer(self, timestamp, ctx):
        domain = ctx.time_domain() == TimeDomain.PROCESSING_TIME
        yield "timer", ctx.get_current_key(), domain, ctx.timestamp() == timestamp


def processing_time_timers(env):
    data = [("a", 1), ("b", 2), ("end", 3)]
    spaced = _spaced(env, data).filter(lambda v: True)
    return spaced.key_by(lambda v: v[0], key_type=Types.STRING()).process(_Clock())


class _OfWindow(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        now = context.current_processing_time()
        yield (
            key,
            [n for _, n in elements],
            window.end - window.start,
            now >= window.max_timestamp(),
        )


def processing_time_windows(env):
    data = [("a", 1), ("b", 2), ("end", 3)]
    keyed = _spaced(env, data).key_by(lambda v: v[0], key_type=Types.STRING())
    windows = keyed.window(TumblingProcessingTimeWindows.of(Time.milliseconds(20)))
    return windows.process(_OfWindow()).filter(lambda v: v[0] != "end")


def processing_time_sessions(env):
    data = [("a", 1), ("a", 2), ("end", 3)]
    keyed = _spaced(env, data).key_by(lambda v: v[0], key_type=Types.STRING())
    sessions = keyed.window(ProcessingTimeSessionWindows.with_gap(Time.milliseconds(20)))
    return sessions.process(_OfWindow()).filter(lambda v: v[0] != "end")


class _Expiring(KeyedProcessFunction):
    """State is written once and lives for a gap and a half; then each record reads it."""

    def __init__(self, visibility, update):
        self.visibility = visibility
        self.update = update

    def open(self, runtime_context):
        ttl = (
            StateTtlConfig.new_builder(Time.milliseconds(int(1500 * GAP_S)))
            .set_update_type(getattr(StateTtlConfig.UpdateType, self.update))
            .set_state_visibility(getattr(StateTtlConfig.StateVisibility, self.visibility))
            .build()
        )
        value = ValueStateDescriptor("value", Types.LONG())
        listed = ListStateDescriptor("list", Types.LONG())
        mapped = MapStateDescriptor("map", Types.LONG(), Types.LONG())
        summed = ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
        for one in (value, listed, mapped, summed):
            one.enable_time_to_live(ttl)
        self.value = runtime_context.get_state(value)
        self.list = runtime_context.get_list_state(listed)
        self.map = runtime_context.get_map_state(mapped)
        self.sum = runtime_context.get_reducing_state(summed)

    def process_element(self, value, ctx):
        n = value[1]
        yield (
            n,
            self.value.value(),
            list(self.list.get()),
            sorted(self.map.items()),
            self.sum.get(),
        )
        if n == 1:
            self.value.update(n)
            self.list.add(n)
            self.map.put(n, n)
            self.sum.add(n)


def _expiring(env, visibility, update):
    without_cache = Configuration()  # what its cache has, PyFlink gives for ever
    without_cache.set_string("python.state.cache-size", "0")
    env.configure(without_cache)
    data = [("a", n) for n in (1, 2, 3)]
    keyed = _spaced(env, data).key_by(lambda v: v[0], key_type=Types.STRING())
    return keyed.process(_Expiring(visibility, update))


def time_to_live_from_writes(env):
    return _expiring(env, "NeverReturnExpired", "OnCreateAndWrite")


def time_to_live_from_reads(env):
    return _expiring(env, "NeverReturnExpired", "OnReadAndWrite")


def idle_inputs(env):
    strategy = _strategy().with_idleness(Duration.of_millis(50))
    one = env.from_collection(DATA, PAIR).assign_timestamps_and_watermarks(strategy)
    two = env.from_collection([("z", 1)], PAIR).assign_timestamps_and_watermarks(strategy)
    keyed = one.union(two).key_by(lambda v: v[0], key_type=Types.STRING())
    return keyed.process(_TimersWithoutKeys())


IN_THREADS = {"event_time_timers_of_one_key"}
"""What timers register while a watermark fires them is in order of time; from PyFlink's processes
it comes later."""

WAITING = {
    "idle_inputs",
    "watermarks_between_records",
    "processing_time_timers",
    "processing_time_windows",
    "processing_time_sessions",
    "time_to_live_from_writes",
    "time_to_live_from_reads",
}
"""By the clock `idle_inputs` might have an input idle before its first record."""

ANY_ORDER = {"idle_inputs", "state_in_timers", "event_time_timers"}

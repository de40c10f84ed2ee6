"""Windows of time and sessions, with triggers."""

from __future__ import annotations

from strom.common import Duration, Time, Types, WatermarkStrategy
from strom.common.watermark_strategy import TimestampAssigner
from strom.datastream import (
    AggregateFunction,
    ProcessFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from strom.datastream.functions import AllWindowFunction, ProcessAllWindowFunction
from strom.datastream.state import ListStateDescriptor, ValueStateDescriptor
from strom.datastream.window import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
)

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
DATA = [("a", 1000), ("b", 500), ("a", 9999), ("a", 10000), ("b", 25001), ("a", 12345), ("a", -5)]


class _Time(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


def _timed(env):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(5))
    return env.from_collection(DATA, PAIR).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(_Time())
    )


def _keyed(env):
    return _timed(env).key_by(lambda v: v[0], key_type=Types.STRING())


class _Show(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield (
            key,
            window.start,
            window.end,
            window.max_timestamp(),
            list(elements),
            context.current_watermark(),
        )


class _Stamps(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp()


def tumbling(env):
    return _keyed(env).window(TumblingEventTimeWindows.of(Time.seconds(10))).process(_Show())


def tumbling_with_an_offset(env):
    windows = TumblingEventTimeWindows.of(Time.seconds(10), Time.seconds(3))
    return _keyed(env).window(windows).process(_Show())


def sliding(env):
    windows = SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(4))
    return _keyed(env).window(windows).process(_Show())


def sliding_with_an_offset(env):
    windows = SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(5), Time.seconds(1))
    return _keyed(env).window(windows).process(_Show())


def sessions(env):
    windows = EventTimeSessionWindows.with_gap(Time.seconds(2))
    return _keyed(env).window(windows).process(_Show())


class _Gap(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return 9000 if element[0] == "a" else 100


def sessions_with_dynamic_gaps(env):
    windows = EventTimeSessionWindows.with_dynamic_gap(_Gap())
    return _keyed(env).window(windows).process(_Show())


def _sum(a, b):
    return a[0], a[1] + b[1]


def _tens(env):
    return _keyed(env).window(TumblingEventTimeWindows.of(Time.seconds(10)))


def window_reduce(env):
    return {
        "alone": _tens(env).reduce(_sum),
        "process": _tens(env).reduce(_sum, _Show()),
        "times": _tens(env).reduce(_sum).process(_Stamps()),
    }


class _Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class _Apply(WindowFunction):
    def apply(self, key, window: TimeWindow, inputs):
        return [(key, window.end, one) for one in inputs]


def window_aggregate(env):
    sessions = _keyed(env).window(EventTimeSessionWindows.with_gap(Time.seconds(2)))
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    return {
        "alone": _tens(env).aggregate(_Mean(), accumulator_type=pair, output_type=Types.DOUBLE()),
        "process": _tens(env).aggregate(_Mean(), _Show()),
        "apply": _tens(env).aggregate(_Mean(), _Apply()),
        "merged": sessions.aggregate(_Mean(), _Show()),
    }


def window_apply(env):
    return _tens(env).apply(_Apply())


class _KeepsState(ProcessWindowFunction):
    def process(self, key, context, elements):
        mine = context.window_state().get_state(ValueStateDescriptor("mine", Types.INT()))
        all_of_key = context.global_state().get_list_state(ListStateDescriptor("all", Types.INT()))
        n = len(list(elements))
        before = mine.value()
        mine.update((before or 0) + n)
        all_of_key.add(n)
        yield key, context.window().start, n, before, list(all_of_key.get())

    def clear(self, context):
        context.window_state().get_state(ValueStateDescriptor("mine", Types.INT())).clear()


def state_of_windows(env):
    return _tens(env).trigger(CountTrigger.of(1)).process(_KeepsState())


def count_trigger_on_time_windows(env):
    return {
        "kept": _tens(env).trigger(CountTrigger.of(2)).process(_Show()),
        "purged": _tens(env).trigger(PurgingTrigger.of(CountTrigger.of(2))).process(_Show()),
    }


def purging_event_time_trigger(env):
    return _tens(env).trigger(PurgingTrigger.of(EventTimeTrigger.create())).process(_Show())


def continuous_event_time_trigger(env):
    trigger = ContinuousEventTimeTrigger.of(Time.seconds(4))
    return _tens(env).trigger(trigger).reduce(_sum, _Show())


class _AtNines(Trigger):
    """Fires at once for a record whose time ends in 999 or 5, and at the window's end."""

    def on_element(self, element, timestamp, window, ctx):
        seen = ctx.get_partitioned_state(ValueStateDescriptor("seen", Types.INT()))
        seen.update((seen.value() or 0) + 1)
        ctx.register_event_time_timer(window.max_timestamp())
        if timestamp % 1000 in (999, 995):
            return TriggerResult.FIRE if seen.value() > 1 else TriggerResult.FIRE_AND_PURGE
        return TriggerResult.CONTINUE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return (
            TriggerResult.FIRE_AND_PURGE
            if time == window.max_timestamp()
            else (TriggerResult.CONTINUE)
        )

    def on_merge(self, window, ctx):
        ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window, ctx):
        ctx.get_partitioned_state(ValueStateDescriptor("seen", Types.INT())).clear()
        ctx.delete_event_time_timer(window.max_timestamp())


def trigger_of_ones_own(env):
    return _tens(env).trigger(_AtNines()).process(_Show())


class _All(ProcessAllWindowFunction):
    def process(self, context, elements):
        yield context.window().start, list(elements)


class _ApplyAll(AllWindowFunction):
    def apply(self, window, inputs):
        yield window.end, len(list(inputs))


def windows_of_all_records(env):
    def tens():
        return _timed(env).window_all(TumblingEventTimeWindows.of(Time.seconds(10)))

    return {
        "process": tens().process(_All()),
        "apply": tens().apply(_ApplyAll()),
        "reduce": tens().reduce(_sum),
        "aggregate": tens().aggregate(_Mean()),
    }


IN_THREADS = {"continuous_event_time_trigger"}
"""Triggers register timers while a watermark fires others: see `timers`."""

ANY_ORDER = {
    "tumbling",
    "tumbling_with_an_offset",
    "sliding",
    "sliding_with_an_offset",
    "sessions",
    "sessions_with_dynamic_gaps",
    "window_reduce",
    "window_aggregate",
    "window_apply",
    "count_trigger_on_time_windows",
    "purging_event_time_trigger",
    "continuous_event_time_trigger",
    "trigger_of_ones_own",
    "windows_of_all_records",
}
"""Of windows that end together it is not promised which key's comes first."""

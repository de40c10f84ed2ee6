"""The row window operator: timelines, triggers, functions and errors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from row_windows_kit import (
    KEY,
    LATE,
    Averages,
    Values,
    WithKey,
    listing,
    push,
    state_names,
)
from strom.api.functions.user_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
)
from strom.api.specs.windows import AggregateWindow, ProcessWindow, ReduceWindow, WindowSpec
from strom.api.windows.base import Trigger, TriggerResult
from strom.api.windows.continuous_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
)
from strom.api.windows.count_windows import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from strom.api.windows.session_windows import EventTimeSessionWindows, ProcessingTimeSessionWindows
from strom.api.windows.time_windows import (
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from strom.api.windows.triggers import CountTrigger, EventTimeTrigger, PurgingTrigger
from strom.core.batch import ColumnBatch
from strom.core.elements import MAX_TIMESTAMP, Watermark
from strom.core.errors import GraphError, StateError, TypeMismatchError
from strom.core.keys import ColumnKey, ConstantKey
from strom.operators.row_windows.operator import RowWindowOperator
from strom.state.descriptors import ReducingStateDescriptor, ValueStateDescriptor
from strom.testing.operator_harness import OperatorHarness


def test_tumbling_windows_fire_in_order_when_the_watermark_passes_their_last_millisecond():
    #  ts   -3 | 1    4 | 5        10
    #       [-5,0)  [0,5)  [5,10)  [10,15)
    harness = OperatorHarness(listing(TumblingEventTimeWindows.of(5)))
    push(harness, ("a", 5), ("a", 1), ("b", 4), ("a", -3), ("a", 10))
    harness.watermark(-2)
    assert harness.take_outputs() == []
    harness.watermark(4)
    assert harness.stamped_outputs() == [
        (("a", -5, 0, [-3]), -1),
        (("a", 0, 5, [1]), 4),
        (("b", 0, 5, [4]), 4),
    ]
    harness.take_outputs()
    harness.watermark(MAX_TIMESTAMP)
    assert harness.take_outputs() == [("a", 5, 10, [5]), ("a", 10, 15, [10])]


def test_firings_of_one_watermark_come_as_one_batch_before_the_watermark():
    harness = OperatorHarness(listing(TumblingEventTimeWindows.of(5)))
    push(harness, ("a", 1), ("b", 2), ("a", 7))
    harness.watermark(20)
    batch, mark = harness.output.elements
    assert len(batch) == 3
    assert mark == Watermark(20)


def test_offset_and_negative_timestamps():
    harness = OperatorHarness(listing(TumblingEventTimeWindows.of(10, 3)))
    push(harness, ("a", -8), ("a", -7), ("a", 2), ("a", 3))
    harness.watermark(MAX_TIMESTAMP)
    assert harness.outputs() == [
        ("a", -17, -7, [-8]),
        ("a", -7, 3, [-7, 2]),
        ("a", 3, 13, [3]),
    ]


def test_sliding_windows_hold_each_record_several_times():
    #          0  1  2  3  4  5  6  7
    #  [-2,2)  x  x
    #  [0,4)   x  x  x  x
    #  [2,6)         x  x  x  x
    harness = OperatorHarness(listing(SlidingEventTimeWindows.of(4, 2)))
    push(harness, ("a", 1), ("a", 3))
    harness.watermark(MAX_TIMESTAMP)
    assert harness.outputs() == [
        ("a", -2, 2, [1]),
        ("a", 0, 4, [1, 3]),
        ("a", 2, 6, [3]),
    ]


def test_late_records_are_counted_or_sent_to_the_side():
    harness = OperatorHarness(listing(TumblingEventTimeWindows.of(5)))
    harness.watermark(4)
    push(harness, ("a", 4), ("a", 5), ("b", 0))
    harness.watermark(9)
    assert harness.outputs() == [("a", 5, 10, [5])]
    assert harness.metrics.get_count("numLateRecordsDropped") == 2

    harness = OperatorHarness(listing(TumblingEventTimeWindows.of(5), late_tag=LATE))
    harness.watermark(4)
    push(harness, ("a", 4), ("a", 5), ("b", 0))
    assert harness.side_outputs("late") == [("a", 4), ("b", 0)]
    assert harness.output.side["late"][0].timestamps.tolist() == [4, 0]
    assert harness.metrics.get_count("numLateRecordsDropped") == 0


def test_late_columns_stay_columns():
    spec = WindowSpec(
        ColumnKey(("k",)), TumblingEventTimeWindows.of(5), ReduceWindow(max), late_tag=LATE
    )
    harness = OperatorHarness(spec)
    harness.watermark(4)
    data = pa.RecordBatch.from_pydict({"k": ["a", "b"], "v": [1, 2]})
    harness.push(ColumnBatch(data, np.array([2, 8])))
    (late,) = harness.output.side["late"]
    assert isinstance(late, ColumnBatch)
    assert late.data.to_pydict() == {"k": ["a"], "v": [1]}


def test_allowed_lateness_fires_again_per_late_record_and_then_forgets():
    #  watermark    4         7          8
    #  [0,5)        fire      fire again  cleared (4 + 4 <= 8)
    spec = listing(TumblingEventTimeWindows.of(5), allowed_lateness_ms=4)
    harness = OperatorHarness(spec)
    push(harness, ("a", 1))
    harness.watermark(4)
    assert harness.take_outputs() == [("a", 0, 5, [1])]
    harness.watermark(7)
    push(harness, ("a", 2), ("a", 3))
    assert harness.take_outputs() == [("a", 0, 5, [1, 2]), ("a", 0, 5, [1, 2, 3])]
    harness.watermark(8)
    push(harness, ("a", 4))
    assert harness.take_outputs() == []
    assert harness.metrics.get_count("numLateRecordsDropped") == 1
    assert state_names(harness) == set()


def test_sessions_merge_out_of_order():
    #   0    5    10   15   20   25
    #   a         c              e      gap 5
    #        b                          joins a and c, for windows that touch merge
    harness = OperatorHarness(listing(EventTimeSessionWindows.with_gap(5)))
    push(harness, ("k", 0), ("k", 10), ("k", 25))
    push(harness, ("k", 5))
    harness.watermark(13)
    assert harness.outputs() == []
    harness.watermark(14)
    assert harness.take_outputs() == [("k", 0, 15, [0, 10, 5])]
    harness.watermark(MAX_TIMESTAMP)
    assert harness.take_outputs() == [("k", 25, 30, [25])]
    assert state_names(harness) == set()


def test_session_reduce_counts_every_record_once_after_merges():
    spec = WindowSpec(
        KEY, EventTimeSessionWindows.with_gap(5), ReduceWindow(lambda a, b: (a[0], a[1] + b[1]))
    )
    harness = OperatorHarness(spec)
    harness.push([("k", 1), ("k", 10), ("k", 100)], timestamps=[0, 12, 6])
    harness.push([("k", 1000)], timestamps=[3])
    harness.watermark(MAX_TIMESTAMP)
    assert harness.stamped_outputs() == [(("k", 1101), 10), (("k", 10), 16)]


def test_late_record_joins_a_session_that_is_still_open():
    harness = OperatorHarness(listing(EventTimeSessionWindows.with_gap(5)))
    push(harness, ("k", 10))
    harness.watermark(12)
    push(harness, ("k", 6), ("k", 3))  # 6 merges with the open session, 3 then with that
    push(harness, ("j", 3))  # late: nothing is open for j
    harness.watermark(20)
    assert harness.outputs() == [("k", 3, 15, [10, 6, 3])]
    assert harness.metrics.get_count("numLateRecordsDropped") == 1


def test_dynamic_gaps():
    assigner = EventTimeSessionWindows.with_dynamic_gap(lambda record: record[2])
    spec = WindowSpec(KEY, assigner, ProcessWindow(Listing3()))
    harness = OperatorHarness(spec)
    harness.push([("k", 0, 3), ("k", 2, 10), ("k", 8, 4), ("k", 13, 1)], timestamps=[0, 2, 8, 13])
    harness.watermark(MAX_TIMESTAMP)
    assert harness.outputs() == [(0, 12, 3), (13, 14, 1)]
    with pytest.raises(TypeMismatchError, match="gap of a record"):
        harness.push([("k", 0, 0)], timestamps=[0])


class Listing3(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield context.window().start, context.window().end, len(elements)


def test_processing_time_windows_use_the_clock():
    harness = OperatorHarness(listing(TumblingProcessingTimeWindows.of(10)), start_ms=3)
    push(harness, ("a", 1))
    harness.advance_processing_time(9)
    push(harness, ("a", 2))
    assert harness.outputs() == []
    harness.advance_processing_time(10)
    assert harness.stamped_outputs() == [(("a", 0, 10, [1, 2]), 9)]
    push(harness, ("a", 3))
    harness.finish()
    assert harness.outputs()[1:] == [("a", 10, 20, [3])]


def test_processing_time_sessions():
    harness = OperatorHarness(listing(ProcessingTimeSessionWindows.with_gap(10)))
    push(harness, ("a", 1))
    harness.advance_processing_time(8)
    push(harness, ("a", 2))
    harness.advance_processing_time(17)
    assert harness.outputs() == []
    harness.advance_processing_time(18)
    assert harness.outputs() == [("a", 0, 18, [1, 2])]
    assert state_names(harness) == set()


def values(spec, events, finish=True):
    harness = OperatorHarness(spec)
    for event in events:
        harness.push([event], timestamps=[event[1]])
    if finish:
        harness.watermark(MAX_TIMESTAMP)
    return harness.outputs()


def test_count_trigger_keeps_and_purging_drops():
    events = [("a", n) for n in range(5)]
    keep = WindowSpec(KEY, GlobalWindows.create(), ProcessWindow(Values()), CountTrigger.of(2))
    assert values(keep, events) == [[0, 1], [0, 1, 2, 3]]
    purge = PurgingTrigger.of(CountTrigger.of(2))
    drop = WindowSpec(KEY, GlobalWindows.create(), ProcessWindow(Values()), purge)
    assert values(drop, events) == [[0, 1], [2, 3]]


def test_global_windows_never_fire_by_default():
    assert values(WindowSpec(KEY, GlobalWindows(), ProcessWindow(Values())), [("a", 1)]) == []


def test_count_windows():
    events = [("a", n) for n in range(7)] + [("b", 0)]
    tumbling = WindowSpec(KEY, CountTumblingWindowAssigner.of(3), ProcessWindow(Values()))
    assert values(tumbling, events) == [[0, 1, 2], [3, 4, 5]]
    sliding = WindowSpec(KEY, CountSlidingWindowAssigner.of(4, 2), ProcessWindow(Values()))
    assert values(sliding, events) == [[0, 1, 2, 3], [2, 3, 4, 5]]


def test_count_trigger_over_merging_sessions():
    spec = WindowSpec(
        KEY, EventTimeSessionWindows.with_gap(5), ProcessWindow(Values()), CountTrigger.of(3)
    )
    assert values(spec, [("a", 0), ("a", 8), ("a", 4)]) == [[0, 8, 4]]


def test_continuous_event_time_trigger():
    #  window [0, 20), fires at 5, 10, 15 and at its end
    trigger = ContinuousEventTimeTrigger.of(5)
    harness = OperatorHarness(listing(TumblingEventTimeWindows.of(20), trigger=trigger))
    push(harness, ("a", 1))
    harness.watermark(5)
    push(harness, ("a", 7))
    harness.watermark(11)
    assert [row[3] for row in harness.take_outputs()] == [[1], [1, 7]]
    harness.watermark(MAX_TIMESTAMP)
    assert [stamp for _, stamp in harness.stamped_outputs()] == [19, 19]
    assert state_names(harness) == set()


def test_continuous_event_time_trigger_on_a_global_window_ends():
    trigger = ContinuousEventTimeTrigger.of(5)
    spec = WindowSpec(KEY, GlobalWindows(), ProcessWindow(Values()), trigger)
    assert values(spec, [("a", 1)]) == [[1], [1]]


def test_continuous_processing_time_trigger():
    trigger = ContinuousProcessingTimeTrigger.of(5)
    spec = WindowSpec(KEY, GlobalWindows(), ProcessWindow(Values()), trigger)
    harness = OperatorHarness(spec, start_ms=2)
    push(harness, ("a", 1))
    harness.advance_processing_time(11)
    assert harness.outputs() == [[1], [1]]


def test_aggregate_with_window_function_and_side_output():
    spec = WindowSpec(KEY, TumblingEventTimeWindows.of(10), AggregateWindow(Averages(), WithKey()))
    harness = OperatorHarness(spec)
    push(harness, ("a", 1), ("a", 4), ("b", 7))
    harness.watermark(9)
    assert harness.outputs() == [("a", 2.5), ("b", 7.0)]
    assert harness.side_outputs("side") == [2.5, 7.0]


def test_aggregate_without_window_function():
    spec = WindowSpec(KEY, EventTimeSessionWindows.with_gap(5), AggregateWindow(Averages()))
    assert values(spec, [("a", 0), ("a", 8), ("a", 4)]) == [4.0]


class AllProcess(ProcessAllWindowFunction):
    def process(self, context, elements):
        yield context.window().start, sorted(elements)


class AllApply(AllWindowFunction):
    def apply(self, window, inputs):
        return [(window.start, sorted(inputs))]


@pytest.mark.parametrize(
    "function", [AllProcess(), AllApply(), lambda window, inputs: [(window.start, sorted(inputs))]]
)
def test_windows_over_the_whole_stream(function):
    spec = WindowSpec(
        ConstantKey(), TumblingEventTimeWindows.of(5), ProcessWindow(function), keyed=False
    )
    assert values(spec, [("a", 1), ("b", 2), ("a", 6)]) == [
        (0, [("a", 1), ("b", 2)]),
        (5, [("a", 6)]),
    ]


class Stateful(ProcessWindowFunction):
    """Counts firings of the window and of the key."""

    def process(self, key, context, elements):
        firings = []
        for store in (context.window_state(), context.global_state()):
            state = store.get_state(ValueStateDescriptor("firings"))
            state.update((state.value() or 0) + 1)
            firings.append(state.value())
        yield context.window().start, *firings

    def clear(self, context):
        context.window_state().get_state(ValueStateDescriptor("firings")).clear()


def test_window_state_and_global_state():
    assigner = TumblingEventTimeWindows.of(5)
    spec = WindowSpec(KEY, assigner, ProcessWindow(Stateful()), allowed_lateness_ms=10)
    harness = OperatorHarness(spec)
    push(harness, ("a", 1), ("a", 6))
    harness.watermark(9)
    push(harness, ("a", 2))
    assert harness.outputs() == [(0, 1, 1), (5, 1, 2), (0, 2, 3)]
    harness.watermark(MAX_TIMESTAMP)
    assert state_names(harness) == {"firings"}  # of the key; those of the windows are cleared


def test_window_state_with_sessions_is_refused():
    spec = WindowSpec(KEY, EventTimeSessionWindows.with_gap(5), ProcessWindow(Stateful()))
    with pytest.raises(StateError, match="merging"):
        values(spec, [("a", 1)])


class NoMerge(Trigger):
    def on_element(self, element, timestamp, window, ctx):
        return TriggerResult.CONTINUE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def clear(self, window, ctx):
        pass


def test_sessions_refuse_a_trigger_that_cannot_merge():
    with pytest.raises(GraphError, match="NoMerge"):
        RowWindowOperator(listing(EventTimeSessionWindows.with_gap(5), trigger=NoMerge()))


def test_a_record_without_timestamp_is_an_error():
    harness = OperatorHarness(listing(TumblingEventTimeWindows.of(5)))
    with pytest.raises(TypeMismatchError, match="without timestamp"):
        harness.push([("a", 1)])


def test_default_trigger_equals_event_time_trigger():
    events = [("a", 1), ("a", 3), ("b", 12)]
    plain = listing(TumblingEventTimeWindows.of(5))
    explicit = listing(TumblingEventTimeWindows.of(5), trigger=EventTimeTrigger.create())
    assert values(plain, events) == values(explicit, events)


def test_trigger_states_of_one_name_are_kept_apart_from_the_functions():
    class Noisy(Stateful):
        def process(self, key, context, elements):
            state = context.global_state().get_reducing_state(
                ReducingStateDescriptor("count", lambda a, b: a + b)
            )
            state.add(100)
            yield state.get(), len(elements)

        def clear(self, context):
            pass

    spec = WindowSpec(KEY, GlobalWindows(), ProcessWindow(Noisy()), CountTrigger.of(2))
    assert values(spec, [("a", n) for n in range(4)]) == [(100, 2), (200, 4)]

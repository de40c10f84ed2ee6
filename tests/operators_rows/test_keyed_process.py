"""KeyedProcessFunction: state, timers of both kinds, side outputs, restores."""

from __future__ import annotations

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.functions.user_functions import KeyedProcessFunction, OutputTag, TimeDomain
from strom.api.specs.records import KeyedProcessSpec
from strom.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark
from strom.core.errors import TypeMismatchError
from strom.core.keys import FunctionKey
from strom.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from strom.testing.operator_harness import OperatorHarness

KEY = FunctionKey(lambda record: record[0])


class Sums(KeyedProcessFunction):
    def open(self, runtime_context):
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum"))

    def process_element(self, value, ctx):
        self.sum.update((self.sum.value() or 0) + value[1])
        yield ctx.get_current_key(), self.sum.value(), ctx.timestamp()


def test_state_is_per_key():
    harness = OperatorHarness(KeyedProcessSpec(KEY, Sums()))
    harness.push([("a", 1), ("b", 5), ("a", 2)], timestamps=[10, 20, 30])
    assert harness.stamped_outputs() == [
        (("a", 1, 10), 10),
        (("b", 5, 20), 20),
        (("a", 3, 30), 30),
    ]


class Alarms(KeyedProcessFunction):
    """A record (key, time) sets an event-time timer; even ones set one more when they fire."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp, ctx):
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        assert ctx.timestamp() == timestamp
        if timestamp % 2 == 0:
            ctx.timer_service().register_event_time_timer(timestamp + 1)
        yield ctx.get_current_key(), timestamp, ctx.timer_service().current_watermark()


def test_event_timers_fire_in_order_before_the_watermark_and_in_the_same_advance():
    #  timers  b3  a4(+5)  a9     watermark 5
    harness = OperatorHarness(KeyedProcessSpec(KEY, Alarms()))
    harness.push([("a", 9), ("a", 4), ("b", 3), ("a", 4)])
    harness.watermark(5)
    batch, mark = harness.output.elements
    assert batch.rows() == [("b", 3, 5), ("a", 4, 5), ("a", 5, 5)]
    assert batch.timestamps.tolist() == [3, 4, 5]
    assert mark == Watermark(5)
    harness.take_outputs()
    harness.push([("c", 1)])  # in the past: fires with the next watermark
    harness.watermark(6)
    assert harness.take_outputs() == [("c", 1, 6)]
    harness.watermark(MAX_TIMESTAMP)
    assert harness.take_outputs() == [("a", 9, MAX_TIMESTAMP)]


class Deletes(KeyedProcessFunction):
    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        for register in (timers.register_event_time_timer, timers.register_processing_time_timer):
            register(5)
            register(6)
        timers.delete_event_time_timer(5)
        timers.delete_processing_time_timer(6)

    def on_timer(self, timestamp, ctx):
        yield ctx.time_domain(), timestamp


def test_deleted_timers_do_not_fire():
    harness = OperatorHarness(KeyedProcessSpec(KEY, Deletes()))
    harness.push([("a", 1)])
    harness.watermark(10)
    harness.advance_processing_time(100)
    assert harness.outputs() == [(TimeDomain.EVENT_TIME, 6), (TimeDomain.PROCESSING_TIME, 5)]


class Ticks(KeyedProcessFunction):
    """Three ticks 10 ms apart, the first 10 ms after a record; then nothing."""

    def open(self, runtime_context):
        self.left = runtime_context.get_state(ValueStateDescriptor("left"))

    def process_element(self, value, ctx):
        self.left.update(3)
        self._next(ctx)

    def on_timer(self, timestamp, ctx):
        self.left.update(self.left.value() - 1)
        if self.left.value():
            self._next(ctx)
        return [(ctx.get_current_key(), timestamp, ctx.timer_service().current_processing_time())]

    def _next(self, ctx):
        now = ctx.timer_service().current_processing_time()
        ctx.timer_service().register_processing_time_timer(now + 10)


def test_processing_timers_fire_once_their_millisecond_is_over():
    harness = OperatorHarness(KeyedProcessSpec(KEY, Ticks()))
    harness.push([("a", 0)])
    harness.advance_processing_time(10)
    assert harness.outputs() == []
    harness.advance_processing_time(11)
    assert harness.stamped_outputs() == [(("a", 10, 11), 10)]
    harness.advance_processing_time(100)
    assert harness.outputs()[1:] == [("a", 21, 22), ("a", 32, 33)]


def test_processing_timers_survive_a_restore():
    spec = KeyedProcessSpec(KEY, Ticks())
    harness = OperatorHarness(spec)
    harness.push([("a", 0)])
    restored = OperatorHarness(spec, restored=harness.snapshot())
    restored.advance_processing_time(100)
    assert restored.outputs() == [("a", 10, 11), ("a", 21, 22), ("a", 32, 33)]


class Noise(KeyedProcessFunction):
    def process_element(self, value, ctx):
        return value[1]


def test_results_must_be_iterable():
    harness = OperatorHarness(KeyedProcessSpec(KEY, Noise()))
    with pytest.raises(TypeMismatchError, match=r"process_element returned 7 \(int\)"):
        harness.push([("a", 7)])


class Dedup(KeyedProcessFunction):
    """Remembers what it saw until a timer 10 ms later; sends repeats to the side."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def process_element(self, value, ctx):
        if value[1] in list(self.seen.get()):
            yield OutputTag("repeat"), value
            return
        self.seen.add(value[1])
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)
        yield value

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "forgets", sorted(self.seen.get())
        self.seen.clear()


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 60)),
        st.integers(0, 70),
    ),
    max_size=30,
)


def run(events, cuts=()):
    spec = KeyedProcessSpec(KEY, Dedup())
    harness = OperatorHarness(spec)
    main, side, mark = [], [], MIN_TIMESTAMP
    for index, event in enumerate([*events, MAX_TIMESTAMP]):
        if index in cuts:
            main += harness.stamped_outputs()
            side += harness.side_outputs("repeat")
            harness = OperatorHarness(spec, restored=harness.snapshot())
        if not isinstance(event, int):
            harness.push([event[:2]], timestamps=[event[2]])
        elif event > mark:
            mark = event
            harness.watermark(mark)
    return main + harness.stamped_outputs(), side + harness.side_outputs("repeat")


@settings(max_examples=examples(60), deadline=None)
@given(EVENTS.map(lambda events: sorted_marks(events)), st.sets(st.integers(0, 30), max_size=3))
def test_a_restore_anywhere_changes_nothing(events, cuts):
    assert run(events, cuts) == run(events)


def sorted_marks(events):
    """The same events with watermarks in ascending order."""
    marks = iter(sorted(event for event in events if isinstance(event, int)))
    return [next(marks) if isinstance(event, int) else event for event in events]

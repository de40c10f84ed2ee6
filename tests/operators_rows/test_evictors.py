"""Evictors: what each takes out, and windows with them against a model that rescans everything."""

from __future__ import annotations

from typing import Any

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from row_windows_kit import KEY, Averages, Listing, listing, push, state_names
from strom import (
    ConfigurationError,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    EventTimeSessionWindows,
    Evictor,
    GlobalWindows,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    StateError,
    StreamExecutionEnvironment,
    TimeEvictor,
    TimestampedValue,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    count,
)
from strom.api.specs.windows import AggregateWindow, ProcessWindow, ReduceWindow, WindowSpec
from strom.core.config import JobConfig
from strom.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from strom.testing.operator_harness import OperatorHarness


class Odd(Evictor):
    """Takes odd values out before, and the first of what is left afterwards."""

    def evict_before(self, elements, size, window, evictor_context):
        assert size == len(elements)
        assert evictor_context.get_current_watermark() >= MIN_TIMESTAMP
        for element in [e for e in elements if e.get_value()[1] % 2]:
            elements.remove(element)

    def evict_after(self, elements, size, window, evictor_context):
        assert size == len(elements)
        evictor_context.get_metric_group().counter("firings").inc()
        del elements[:1]


class Oldest(Evictor):
    """Drops the oldest record of a window behind each firing."""

    def evict_before(self, elements, size, window, evictor_context):
        """Nothing."""

    def evict_after(self, elements, size, window, evictor_context):
        del elements[:1]


class Rewriting(Evictor):
    """Puts another record in the place of the oldest, behind each firing, or before it."""

    def __init__(self, after):
        self.after = after

    def evict_before(self, elements, size, window, evictor_context):
        if not self.after:
            self.rewrite(elements)

    def evict_after(self, elements, size, window, evictor_context):
        if self.after:
            self.rewrite(elements)

    def rewrite(self, elements):
        key, value = elements[0].get_value()
        elements[:] = [*elements[1:], TimestampedValue((key, value + 100), 7)]


def distance(old, new):
    return abs(new[1] - old[1])


EVICTORS = {
    "count": CountEvictor.of(2),
    "count after": CountEvictor.of(2, True),
    "nothing left": CountEvictor.of(0),
    "time": TimeEvictor.of(4),
    "time after": TimeEvictor.of(4, do_evict_after=True),
    "delta": DeltaEvictor.of(5, distance),
    "delta after": DeltaEvictor.of(5, distance, True),
    "own": Odd(),
    "oldest": Oldest(),
}


# --- each evictor alone ---------------------------------------------------------------------


def elements(*values: int) -> list[Any]:
    return [TimestampedValue(("a", value), value) for value in values]


def after(evictor: Evictor, values: tuple[int, ...], late: bool = False) -> list[int]:
    held = elements(*values)
    evict = evictor.evict_after if late else evictor.evict_before
    evict(held, len(held), None, None)
    return [element.get_timestamp() for element in held]


def test_what_each_takes_out():
    values = (9, 1, 7, 5)
    assert after(CountEvictor.of(2), values) == [7, 5]
    assert after(CountEvictor.of(9), values) == list(values)
    assert after(CountEvictor.of(0), values) == []
    assert after(TimeEvictor.of(4), values) == [9, 7]  # 5 is exactly 4 before the latest
    assert after(TimeEvictor.of(0), values) == []
    assert after(DeltaEvictor.of(4, distance), values) == [7, 5]
    assert after(DeltaEvictor.of(0, distance), values) == []
    assert after(TimeEvictor.of(4), ()) == after(DeltaEvictor.of(4, distance), ()) == []


@pytest.mark.parametrize("name", ["count", "time", "delta"])
def test_each_evicts_on_its_side_only(name):
    before, behind, values = EVICTORS[name], EVICTORS[f"{name} after"], (30, 20, 10)
    assert after(before, values) == after(behind, values, late=True) != list(values)
    assert after(before, values, late=True) == after(behind, values) == list(values)


def test_a_delta_function_object():
    class Distance:
        def get_delta(self, old_data_point, new_data_point):
            return distance(old_data_point, new_data_point)

    assert after(DeltaEvictor.of(4, Distance()), (9, 1, 7, 5)) == [7, 5]


def test_without_event_times_the_time_evictor_takes_nothing():
    held = [TimestampedValue(n) for n in range(3)]
    assert not held[0].has_timestamp()
    TimeEvictor.of(1).evict_before(held, 3, None, None)
    assert len(held) == 3


# --- windows against a model ----------------------------------------------------------------

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("ab"), st.integers(-5, 20)),
        st.integers(-5, 25),  # a watermark
    ),
    max_size=40,
)
"""Dense, so that windows fire several times where lateness allows it."""


class Quiet:
    """An EvictorContext."""

    def get_current_watermark(self):
        return 0

    def get_metric_group(self):
        return self

    def counter(self, name):
        return self

    def inc(self):
        """Nothing."""


def naive(events, windows_of, lateness, evictor):
    """One firing when the watermark passes a window, one more per late record; what an evictor took
    out is gone for all later ones."""
    held, order, out = {}, [], []
    now = -(2**63)

    def fire(window):
        records = [TimestampedValue(("", ts), ts) for ts in held[window][1]]
        evictor.evict_before(records, len(records), None, Quiet())
        out.append((*window, [record.timestamp for record in records]))
        evictor.evict_after(records, len(records), None, Quiet())
        held[window][1][:] = [record.timestamp for record in records]

    for event in [*events, MAX_TIMESTAMP]:
        if isinstance(event, int):
            now, before = max(now, event), now
            due = [(w[2], at, w) for w, (at, _) in held.items()]
            for end, _, window in sorted(due):
                # A window without records is not fired, but it still has its place.
                if before < end - 1 <= now and held[window][1]:
                    fire(window)
            held = {w: v for w, v in held.items() if w[2] - 1 + lateness > now}
            continue
        key, ts = event
        for start, end in windows_of(ts):
            if end - 1 + lateness > now:
                held.setdefault((key, start, end), (len(order), []))[1].append(ts)
                order.append(None)
                if end - 1 <= now:
                    fire((key, start, end))
    return out


def run(spec, events, cuts=()):
    """Outputs, restoring from a snapshot at each cut. Nothing is left in the end."""
    harness, outputs = OperatorHarness(spec), []
    for index, event in enumerate([*events, MAX_TIMESTAMP]):
        if index in cuts:
            outputs += harness.outputs()
            harness = OperatorHarness(spec, restored=harness.snapshot(), attempt=index)
        if isinstance(event, int):
            if event > harness.output.watermark:
                harness.watermark(event)
        else:
            push(harness, event)
    assert state_names(harness) == set()
    return outputs + harness.outputs()


@pytest.mark.parametrize("name", EVICTORS)
@settings(max_examples=examples(40), deadline=None)
@given(EVENTS, st.sampled_from([(10, 10), (8, 4)]), st.sampled_from([0, 6, 30]), st.data())
def test_windows_match_the_model_also_over_restores(name, events, shape, lateness, data):
    size, slide = shape

    def windows_of(ts):
        starts = range(ts - size + 1, ts + 1)
        return [(s, s + size) for s in reversed(starts) if s % slide == 0]

    assigner = SlidingEventTimeWindows.of(size, slide)
    spec = listing(assigner, allowed_lateness_ms=lateness, evictor=EVICTORS[name])
    cuts = data.draw(st.sets(st.integers(0, 40), max_size=3))
    assert run(spec, events, cuts) == naive(events, windows_of, lateness, EVICTORS[name])


@pytest.mark.parametrize("name", EVICTORS)
@settings(max_examples=examples(20), deadline=None)
@given(EVENTS, st.sets(st.integers(0, 40), max_size=3))
def test_a_restore_anywhere_changes_nothing_with_merging_windows(name, events, cuts):
    assigner = EventTimeSessionWindows.with_gap(6)
    spec = listing(assigner, allowed_lateness_ms=6, evictor=EVICTORS[name])
    assert run(spec, events, cuts) == run(spec, events)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(-30, 60)), max_size=30))
def test_sessions_keep_their_latest_records(events):
    """All records come before the watermark, so that each session fires once."""
    evictor = DeltaEvictor.of(5, distance)
    found = run(listing(EventTimeSessionWindows.with_gap(6)), events)
    evicted = run(listing(EventTimeSessionWindows.with_gap(6), evictor=evictor), events)
    assert evicted == [
        (key, start, end, [v for v in values if abs(v - values[-1]) < 5])
        for key, start, end, values in found
    ]


@pytest.mark.parametrize("restored", [False, True])
def test_what_was_evicted_stays_out_of_later_firings(restored):
    """
    window [0, 10), evict_after drops the oldest    1 2 | 3 | 4     | a firing
    held behind each firing                           2   3   4
    """
    spec = listing(TumblingEventTimeWindows.of(10), allowed_lateness_ms=6, evictor=Oldest())
    harness, found = OperatorHarness(spec), []
    push(harness, ("a", 1), ("a", 2))
    harness.watermark(10)
    for late in (3, 4):
        if restored:
            found += harness.outputs()
            harness = OperatorHarness(spec, restored=harness.snapshot())
        push(harness, ("a", late))
    found += harness.outputs()
    assert [values for *_, values in found] == [[1, 2], [2, 3], [3, 4]]


def test_what_was_evicted_stays_out_when_windows_merge():
    spec = listing(EventTimeSessionWindows.with_gap(6), allowed_lateness_ms=100, evictor=Oldest())
    harness = OperatorHarness(spec)
    push(harness, ("a", 1), ("a", 2), ("a", 20), ("a", 21))
    harness.watermark(30)
    assert harness.take_outputs() == [("a", 1, 8, [1, 2]), ("a", 20, 27, [20, 21])]
    push(harness, ("a", 8), ("a", 14))
    assert harness.outputs() == [("a", 1, 14, [2, 8]), ("a", 1, 27, [8, 21, 14])]


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_a_window_holds_what_the_evictor_put_into_the_list(after, restored):
    """As many records as before, but others.

    evict_after      1 2 | 2 101 3 | 101 3 102 4      a firing
    """
    spec = listing(TumblingEventTimeWindows.of(10), allowed_lateness_ms=6, evictor=Rewriting(after))
    harness, found = OperatorHarness(spec), []
    push(harness, ("a", 1), ("a", 2))
    harness.watermark(10)
    for late in (3, 4):
        if restored:
            found += harness.outputs()
            harness = OperatorHarness(spec, restored=harness.snapshot())
        push(harness, ("a", late))
    found += harness.outputs()
    values = [values for *_, values in found]
    if after:
        assert values == [[1, 2], [2, 101, 3], [101, 3, 102, 4]]
    else:
        assert values == [[2, 101], [101, 3, 102], [3, 102, 4, 201]]


# --- incremental functions, triggers --------------------------------------------------------


def pairs(left, right):
    return (left[0], left[1] + right[1])


def test_reduce_and_aggregate_fold_what_is_left():
    def of(function, evictor):
        spec = WindowSpec(KEY, TumblingEventTimeWindows.of(10), function, evictor=evictor)
        harness = OperatorHarness(spec)
        push(harness, ("a", 1), ("a", 2), ("a", 6), ("b", 9))
        harness.watermark(9)
        return harness.outputs()

    assert of(ReduceWindow(pairs), CountEvictor.of(2)) == [("a", 8), ("b", 9)]
    assert of(AggregateWindow(Averages()), CountEvictor.of(2)) == [4.0, 9.0]
    reduced = of(ReduceWindow(pairs, Listing()), CountEvictor.of(2))
    assert reduced == [("a", 0, 10, [8]), ("b", 0, 10, [9])]
    # Of no records there is no reduction; an aggregate says itself what it gives.
    assert of(ReduceWindow(pairs), CountEvictor.of(0)) == []


class Counts(Averages):
    def get_result(self, accumulator):
        return accumulator[1]


def test_an_aggregate_of_nothing():
    spec = WindowSpec(
        KEY, TumblingEventTimeWindows.of(10), AggregateWindow(Counts()), evictor=CountEvictor.of(0)
    )
    harness = OperatorHarness(spec)
    push(harness, ("a", 1))
    harness.watermark(9)
    assert harness.outputs() == [0]


@pytest.mark.parametrize("purging", [False, True])
def test_a_sliding_count_is_a_count_trigger_and_evictor_over_global_windows(purging):
    class Values(ProcessWindowFunction):
        def process(self, key, context, elements):
            yield [value for _, value in elements]

    trigger = CountTrigger.of(2)
    spec = WindowSpec(
        KEY,
        GlobalWindows.create(),
        ProcessWindow(Values()),
        trigger=PurgingTrigger.of(trigger) if purging else trigger,
        evictor=CountEvictor.of(3),
    )
    harness = OperatorHarness(spec)
    push(harness, *[("a", n) for n in range(6)])
    slid = [[0, 1], [1, 2, 3], [3, 4, 5]]
    assert harness.outputs() == ([[0, 1], [2, 3], [4, 5]] if purging else slid)
    (contents,) = [
        len(table.data) for table in harness.snapshot().keyed if table.name == "__window_contents"
    ] or [0]
    assert bool(contents) != purging


def test_windows_by_the_clock():
    spec = WindowSpec(
        KEY,
        TumblingProcessingTimeWindows.of(10),
        ProcessWindow(Listing()),
        evictor=CountEvictor.of(1),
    )
    harness = OperatorHarness(spec)
    harness.push([("a", 1), ("a", 2)])
    harness.advance_processing_time(harness.clock.now_ms() + 20)
    assert [row[3] for row in harness.outputs()] == [[2]]


def test_evict_after_waits_for_all_results():
    """Results that come in several batches are all out before the evictor is called again."""
    seen = []

    class Many(ProcessWindowFunction):
        def process(self, key, context, elements):
            seen.append("begun")
            yield from range(50)
            seen.append("done")

    class Watching(CountEvictor):
        def evict_after(self, elements, size, window, evictor_context):
            seen.append("after")
            elements.clear()

    spec = WindowSpec(
        KEY, TumblingEventTimeWindows.of(10), ProcessWindow(Many()), evictor=Watching(9)
    )
    harness = OperatorHarness(spec, config=JobConfig(batch_size=8))
    push(harness, ("a", 1))
    harness.watermark(9)
    assert seen == ["begun", "done", "after"]
    assert harness.outputs() == list(range(50))


def test_an_evictor_that_comes_or_goes_with_a_new_program():
    plain = listing(TumblingEventTimeWindows.of(10))
    evicting = listing(TumblingEventTimeWindows.of(10), evictor=CountEvictor.of(2))
    harness = OperatorHarness(evicting)
    push(harness, ("a", 1), ("a", 2), ("a", 3))
    without = OperatorHarness(plain, restored=harness.snapshot())
    push(without, ("a", 4))
    without.watermark(9)
    assert without.outputs() == [("a", 0, 10, [1, 2, 3, 4])]
    harness = OperatorHarness(plain)
    push(harness, ("a", 1), ("a", 2))
    restored = OperatorHarness(evicting, restored=harness.snapshot())
    push(restored, ("a", 3))
    with pytest.raises(StateError, match=r"has 3 records and 1 times: .* without an evictor"):
        restored.watermark(9)


# --- programs -------------------------------------------------------------------------------


def windowed() -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = env.from_collection([{"k": "a", "v": 1}]).key_by("k")
    return rows.window(TumblingEventTimeWindows.of(10))


def test_explain_says_why_it_runs_row_by_row():
    stream = windowed().evictor(CountEvictor.of(2)).process(Listing())
    stream.print()
    text = stream.get_execution_environment().explain()
    assert "the evictor CountEvictor looks at each record of a window" in text


@pytest.mark.parametrize(
    "call",
    [
        lambda: windowed().evictor(5),
        lambda: windowed().evictor(CountEvictor.of(2)).aggregate(n=count()),
        lambda: windowed().evictor(CountEvictor.of(2)).max_by("v"),
        lambda: windowed().evictor(CountEvictor.of(2)).top_n(2, "v"),
        lambda: CountEvictor.of(-1),
        lambda: CountEvictor.of("2"),
        lambda: TimeEvictor.of("soon"),
        lambda: DeltaEvictor.of(1.0, None),
    ],
)
def test_what_is_refused_where_the_program_is_written(call):
    with pytest.raises(ConfigurationError):
        call()

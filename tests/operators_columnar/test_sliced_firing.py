"""Sliced windows fire what the row path fires: cumulating and processing-time windows, continuous
triggers, top-n. Both operators get the same random script; what comes out between two steps must be
the same multiset of records with the same event times."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.aggregates import count, last, max_, sum_
from strom.api.functions.user_functions import OutputTag
from strom.api.specs.columns import OrderColumn
from strom.api.specs.windows import BuiltinWindow, ExtremeWindow, TopNWindow, WindowSpec
from strom.api.windows.continuous_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
)
from strom.api.windows.time_windows import (
    CumulateEventTimeWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from strom.api.windows.triggers import (
    CountTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from strom.core.batch import ColumnBatch
from strom.core.elements import MAX_TIMESTAMP
from strom.core.keys import ColumnKey, ConstantKey
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.window_choice import make_window_operator
from strom.operators.windows.operator import WindowOperator
from strom.operators.windows.slice_store import SliceStore
from strom.operators.windows.ticking_windows import TickingWindower
from strom.plan.window_forms import Sliced, Ticking
from strom.plan.windows import window
from strom.testing.operator_harness import OperatorHarness

SCHEMA = pa.schema([("k", pa.string_view()), ("v", pa.int32()), ("s", pa.string_view())])
KEY = ColumnKey(("k",))
FUNCTIONS = {
    "aggregates": BuiltinWindow((("n", count()), ("t", sum_("v")), ("l", last("v")))),
    "text": BuiltinWindow((("m", max_("s")),)),
    "extremes": ExtremeWindow("v", "max", True),
    "top": TopNWindow(2, (OrderColumn("v", True),), "place"),
    "top by text": TopNWindow(2, (OrderColumn("s"), OrderColumn("v", True))),
}
EVENT_WINDOWS = st.sampled_from(
    [
        TumblingEventTimeWindows(10),
        TumblingEventTimeWindows(10, -3),
        SlidingEventTimeWindows(10, 4, 1),
        SlidingEventTimeWindows(4, 7, 2),
        CumulateEventTimeWindows(12, 4),
        CumulateEventTimeWindows(9, 3, -2),
    ]
)
CLOCK_WINDOWS = st.sampled_from(
    [
        TumblingProcessingTimeWindows(10),
        TumblingProcessingTimeWindows(10, 3),
        SlidingProcessingTimeWindows(10, 4, 1),
        SlidingProcessingTimeWindows(4, 7, 2),
    ]
)
ROWS = st.tuples(
    st.sampled_from("ab"),
    st.none() | st.integers(-3, 3),
    st.none() | st.sampled_from(["", "x", "yy"]),
    st.integers(-20, 40),
)


@dataclass(frozen=True)
class Push:
    rows: list[Any]


@dataclass(frozen=True)
class Mark:
    """A watermark so much greater than the last."""

    by: int


@dataclass(frozen=True)
class Tick:
    """The clock goes on by so much."""

    by: int


@dataclass(frozen=True)
class Restart:
    """From a snapshot."""


SCRIPT = st.lists(
    st.builds(Push, st.lists(ROWS, min_size=1, max_size=6))
    | st.builds(Mark, st.integers(0, 15))
    | st.builds(Tick, st.integers(0, 15))
    | st.just(Restart()),
    min_size=2,
    max_size=12,
)


def batch(rows: Sequence[Any]) -> ColumnBatch:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=False)]
    data = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return ColumnBatch(data, np.array(columns[3], dtype=np.int64))


def run(make: Any, script: Sequence[Any], start: int) -> tuple[list[Any], list[str]]:
    """What came out at each step: (step, records with event times, schemas, late records); and the
    names of the states that hold something in the end."""
    harness, watermark, steps = OperatorHarness(make(), start_ms=start), -20, []
    for step in [*script, "end"]:
        match step:
            case Push(rows):
                harness.push(batch(rows))
            case Mark(by):
                watermark += by
                harness.watermark(watermark)
            case Tick(by):
                harness.advance_processing_time(harness.clock.now_ms() + by)
            case Restart():
                held = harness.snapshot()
                harness = OperatorHarness(make(), restored=held, attempt=1)
            case _:
                harness.finish()
        found = Counter(repr((tuple(row), at)) for row, at in harness.stamped_outputs())
        schemas = {str(b.data.schema) for b in harness.batches()}
        late = Counter(repr(tuple(row)) for row in harness.side_outputs("late"))
        steps.append((type(step).__name__, found, schemas, late))
        harness.output.elements.clear()
        harness.output.side.clear()
    left = [t.name for t in harness.snapshot().keyed if t.name != "progress" and len(t.data)]
    return steps, left


def check(spec: WindowSpec, script: Sequence[Any], start: int = 0) -> None:
    """`start`: where the clock starts."""
    assert isinstance(make_window_operator(spec), WindowOperator)
    found, left = run(lambda: make_window_operator(spec), script, start)
    assert found == run(lambda: RowWindowOperator(spec), script, start)[0]
    assert not left


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=examples(40), deadline=None)
@given(EVENT_WINDOWS, SCRIPT)
def test_event_time_windows(name: str, assigner: Any, script: Any) -> None:
    check(WindowSpec(KEY, assigner, FUNCTIONS[name], late_tag=OutputTag("late")), script)


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=examples(40), deadline=None)
@given(CLOCK_WINDOWS, SCRIPT)
def test_processing_time_windows(name: str, assigner: Any, script: Any) -> None:
    check(WindowSpec(KEY, assigner, FUNCTIONS[name], allowed_lateness_ms=3), script)


@pytest.mark.parametrize("name", ["aggregates", "top"])
@settings(max_examples=examples(60), deadline=None)
@given(EVENT_WINDOWS, st.integers(1, 12), SCRIPT)
def test_continuous_event_time_trigger(
    name: str, assigner: Any, interval: int, script: Any
) -> None:
    trigger = ContinuousEventTimeTrigger(interval)
    spec = WindowSpec(KEY, assigner, FUNCTIONS[name], trigger, late_tag=OutputTag("late"))
    check(spec, script)


@settings(max_examples=examples(60), deadline=None)
@given(CLOCK_WINDOWS, st.integers(1, 12), SCRIPT)
def test_continuous_processing_time_trigger(assigner: Any, interval: int, script: Any) -> None:
    trigger = ContinuousProcessingTimeTrigger(interval)
    check(WindowSpec(KEY, assigner, FUNCTIONS["aggregates"], trigger), script)


@settings(max_examples=examples(100), deadline=None)
@given(
    EVENT_WINDOWS,
    st.integers(1, 12),
    st.sampled_from([0, 0, 6]),
    st.sampled_from([-1000, 0, 1000]),
    SCRIPT,
)
def test_continuous_processing_time_trigger_of_event_time_windows(
    assigner: Any, interval: int, lateness: int, start: int, script: Any
) -> None:
    """Windows lie in the clock's future, around its time, or in its past."""
    trigger = ContinuousProcessingTimeTrigger(interval)
    spec = WindowSpec(KEY, assigner, FUNCTIONS["aggregates"], trigger, lateness)
    check(spec, script, start)


@settings(max_examples=examples(30), deadline=None)
@given(EVENT_WINDOWS, SCRIPT)
def test_purging_at_the_end_changes_nothing(assigner: Any, script: Any) -> None:
    trigger = PurgingTrigger.of(EventTimeTrigger.create())
    check(WindowSpec(KEY, assigner, FUNCTIONS["aggregates"], trigger), script)


@settings(max_examples=examples(60), deadline=None)
@given(EVENT_WINDOWS, st.sampled_from([None, 3, 7]), SCRIPT)
def test_late_records_fire_again_once_per_batch(assigner: Any, interval: Any, script: Any) -> None:
    """One record per batch: then once per batch is once per record."""
    trigger = None if interval is None else ContinuousEventTimeTrigger(interval)
    spec = WindowSpec(KEY, assigner, FUNCTIONS["aggregates"], trigger, 7, OutputTag("late"))
    single: list[Any] = []
    for step in script:
        single += [Push([row]) for row in step.rows] if type(step) is Push else [step]
    check(spec, single)


def test_what_stays_on_the_row_path() -> None:
    tumbling, clock = TumblingEventTimeWindows(10), TumblingProcessingTimeWindows(10)
    function = FUNCTIONS["aggregates"]
    ticks = ContinuousEventTimeTrigger(2)
    at_end = PurgingTrigger(EventTimeTrigger())
    for spec in (
        WindowSpec(KEY, tumbling, function, CountTrigger(2)),
        WindowSpec(KEY, tumbling, function, PurgingTrigger(ticks)),
        WindowSpec(KEY, tumbling, function, at_end, allowed_lateness_ms=1),
        WindowSpec(KEY, tumbling, function, ProcessingTimeTrigger()),
        WindowSpec(KEY, clock, function, EventTimeTrigger()),
        WindowSpec(KEY, clock, function, ticks),
    ):
        assert not isinstance(window(spec).form, Sliced | Ticking)
    made = make_window_operator(WindowSpec(KEY, tumbling, function, ticks))
    assert isinstance(made, WindowOperator)
    assert isinstance(made.windower, TickingWindower)


def fired(harness: OperatorHarness) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in harness.take_outputs()]


def test_cumulating_windows() -> None:
    """
    ts       1   3 3   7            11 (late for all but the last)
    step 4   [0  )
             [0      8)
             [0          12)
    """
    counts = BuiltinWindow((("n", count()),))
    spec = WindowSpec(KEY, CumulateEventTimeWindows.of(12, 4), counts)
    harness = OperatorHarness(make_window_operator(spec))
    harness.push(batch([("a", 1, None, t) for t in (1, 3, 3, 7)]))
    harness.watermark(3)
    assert fired(harness) == [("a", 0, 4, 3)]
    harness.watermark(10)
    assert fired(harness) == [("a", 0, 8, 4)]
    harness.push(batch([("a", 1, None, 2), ("b", 1, None, 12)]))
    harness.finish()
    assert fired(harness) == [
        ("a", 0, 12, 5),
        ("b", 12, 16, 1),
        ("b", 12, 20, 1),
        ("b", 12, 24, 1),
    ]


def test_a_clock_that_goes_back_fires_no_window_twice() -> None:
    counts = BuiltinWindow((("n", count()),))
    spec = WindowSpec(KEY, TumblingProcessingTimeWindows(10), counts)
    harness = OperatorHarness(make_window_operator(spec), start_ms=20)
    harness.push(batch([("a", 1, None, 0)]))
    harness.advance_processing_time(30)
    assert fired(harness) == [("a", 20, 30, 1)]
    harness.clock._now_ms = 25
    harness.push(batch([("a", 1, None, 0)]))
    harness.advance_processing_time(39)
    assert fired(harness) == []
    harness.advance_processing_time(40)
    assert fired(harness) == [("a", 30, 40, 1)]


def test_several_ticks_at_once_fire_as_often() -> None:
    """
    ts        1       4   5              watermark 3, then 11
    ticks     .   3   .   6     9   [10 the window's last is 9]
    """
    counts = BuiltinWindow((("n", count()),))
    spec = WindowSpec(KEY, TumblingEventTimeWindows(10), counts, ContinuousEventTimeTrigger(3))
    harness = OperatorHarness(make_window_operator(spec))
    harness.push(batch([("a", 1, None, 1)]))
    harness.watermark(3)
    assert fired(harness) == [("a", 0, 10, 1)]
    harness.push(batch([("a", 1, None, 4), ("b", 1, None, 7)]))
    harness.watermark(11)
    assert fired(harness) == [("a", 0, 10, 2), ("a", 0, 10, 2), ("b", 0, 10, 1)]


def test_top_n_over_the_whole_stream_and_its_columns() -> None:
    function = TopNWindow(1, (OrderColumn("v"),), "place")
    spec = WindowSpec(ConstantKey(), TumblingEventTimeWindows(10), function, keyed=False)
    harness = OperatorHarness(make_window_operator(spec))
    harness.push(batch([("a", 3, "x", 1), ("b", 1, "y", 2), ("c", None, None, 3)]))
    harness.finish()
    row = harness.outputs()[0]
    assert row.as_dict() == {
        "k": "b", "v": 1, "s": "y", "window_start": 0, "window_end": 10, "place": 1,
    }  # fmt: skip


def test_a_late_refiring_writes_no_keys_into_slices() -> None:
    """slices   |0    4    8    12
    records     a    b    .    c late    windows of 12 by 4, lateness 100"""
    spec = WindowSpec(KEY, SlidingEventTimeWindows(12, 4), FUNCTIONS["aggregates"], None, 100)
    harness = OperatorHarness(make_window_operator(spec))
    harness.push(batch([("a", 1, "", 1), ("b", 2, "", 5), ("b", 2, "", 9)]))
    harness.watermark(40)
    kept = keys_in_slices(harness)
    harness.push(batch([("c", 3, "", 10), ("a", 3, "", 2)]))
    assert keys_in_slices(harness) == {**kept, 12: ["b", "c"]}
    again = OperatorHarness(make_window_operator(spec), restored=harness.snapshot())
    assert keys_in_slices(again) == {4: ["a"], 8: ["b"], 12: ["b", "c"]}
    late = [(r.k, r.window_end, r.n, r.t) for r in harness.outputs()[-6:]]
    assert sorted(late) == [
        *[("a", 4, 2, 4), ("a", 8, 2, 4), ("a", 12, 2, 4)],
        *[("c", 12, 1, 3), ("c", 16, 1, 3), ("c", 20, 1, 3)],
    ]


def keys_in_slices(harness: Any) -> dict[int, list[str]]:
    held = harness.operator.windower._store.contents._table
    return {end: held.table(end).keys().column(0).to_pylist() for end in held.namespaces()}


@pytest.mark.parametrize("slide", [10, 5])
def test_a_jump_over_many_windows_holds_the_results_of_one(
    slide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[Any]] = []
    held: list[int] = []
    result = SliceStore.result

    def counted(*args: Any) -> Any:
        held.append(sum(one() is not None for one in made))
        fired = result(*args)
        made.append(weakref.ref(fired))
        return fired

    monkeypatch.setattr(SliceStore, "result", counted)
    assigner = SlidingEventTimeWindows(10, slide)
    trigger = ContinuousEventTimeTrigger(4)
    spec = WindowSpec(KEY, assigner, FUNCTIONS["aggregates"], trigger)
    harness = OperatorHarness(make_window_operator(spec))
    harness.push(batch([(k, 1, "", time) for time in range(0, 200, 3) for k in "ab"]))
    harness.watermark(MAX_TIMESTAMP)
    assert len(made) >= 20
    assert set(held) == {0}

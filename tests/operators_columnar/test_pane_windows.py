"""Windows of time whose triggers count or purge: columns against the row path, and against plain
models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import CumulateEventTimeWindows
from strom.api.aggregates import arg_max, count, first, last, max_, mean, sum_
from strom.api.functions.user_functions import OutputTag
from strom.api.specs.windows import BuiltinWindow, ExtremeWindow, WindowSpec
from strom.api.windows.continuous_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
)
from strom.api.windows.time_windows import (
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from strom.api.windows.triggers import CountTrigger, EventTimeTrigger, PurgingTrigger
from strom.core.batch import ColumnBatch
from strom.core.keys import ColumnKey, ConstantKey
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.window_choice import make_window_operator
from strom.operators.windows.pane_windows import PaneWindower
from strom.testing.operator_harness import OperatorHarness
from window_scripts import drive, rescaled, run, scripts, without_restarts

SCHEMA = pa.schema([("k", pa.string_view()), ("v", pa.int32()), ("s", pa.string_view())])
KEYS = {"text": ColumnKey(("k",)), "two": ColumnKey(("s", "k")), "all": ConstantKey()}
FUNCTIONS = {
    "numbers": BuiltinWindow(
        (("n", count()), ("t", sum_("v")), ("f", first("v")), ("l", last("v")), ("m", mean("v")))
    ),
    "text": BuiltinWindow((("m", max_("s")), ("a", arg_max("s", "v")))),
    "extremes": ExtremeWindow("v", "max", False),
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
COUNTS = st.sampled_from([1, 2, 2, 3]).map(CountTrigger.of)
COUNT_TRIGGERS = COUNTS | COUNTS.map(PurgingTrigger.of)
ROW = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.none() | st.integers(-3, 3),
    st.none() | st.sampled_from(["", "x", "yy"]),
    st.integers(-20, 40),
)
SCRIPT = scripts(ROW)
LATENESS = st.sampled_from([0, 0, 6, 25])
LATE = OutputTag("late")


def batch(rows: Sequence[Any]) -> ColumnBatch:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=False)]
    data = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return ColumnBatch(data, np.array(columns[3], dtype=np.int64))


def spec_of(
    assigner: Any, trigger: Any, lateness: int = 0, function: str = "numbers", key: str = "text"
) -> WindowSpec:
    selector = KEYS[key]
    keyed = not isinstance(selector, ConstantKey)
    return WindowSpec(selector, assigner, FUNCTIONS[function], trigger, lateness, LATE, keyed=keyed)


def check(spec: WindowSpec, script: Sequence[Any], start: int = 0) -> None:
    """`start`: where the clock starts."""
    assert isinstance(cast(Any, make_window_operator(spec)).windower, PaneWindower)
    found, left = run(lambda: make_window_operator(spec), batch, script, start)
    assert found == run(lambda: RowWindowOperator(spec), batch, script, start)[0]
    assert not left


@pytest.mark.parametrize("function", FUNCTIONS)
@settings(max_examples=examples(50), deadline=None)
@given(EVENT_WINDOWS, COUNT_TRIGGERS, LATENESS, st.sampled_from(list(KEYS)), SCRIPT)
def test_counting_in_event_time_windows(
    function: str, assigner: Any, trigger: Any, lateness: int, key: str, script: Any
) -> None:
    check(spec_of(assigner, trigger, lateness, function, key), script)


@settings(max_examples=examples(60), deadline=None)
@given(CLOCK_WINDOWS, COUNT_TRIGGERS, SCRIPT)
def test_counting_in_processing_time_windows(assigner: Any, trigger: Any, script: Any) -> None:
    check(spec_of(assigner, trigger, 3), script)


@settings(max_examples=examples(80), deadline=None)
@given(EVENT_WINDOWS, st.sampled_from([3, 7, 25]), SCRIPT)
def test_purging_at_the_end_with_lateness(assigner: Any, lateness: int, script: Any) -> None:
    """Each late record fires with itself only, however many come in a batch."""
    check(spec_of(assigner, PurgingTrigger.of(EventTimeTrigger.create()), lateness), script)


@pytest.mark.parametrize("function", FUNCTIONS)
@settings(max_examples=examples(50), deadline=None)
@given(EVENT_WINDOWS, st.integers(1, 12), LATENESS, SCRIPT)
def test_purging_at_multiples_of_event_time(
    function: str, assigner: Any, interval: int, lateness: int, script: Any
) -> None:
    trigger = PurgingTrigger.of(ContinuousEventTimeTrigger(interval))
    check(spec_of(assigner, trigger, lateness, function), script)


@settings(max_examples=examples(60), deadline=None)
@given(CLOCK_WINDOWS, st.integers(1, 12), SCRIPT)
def test_purging_at_multiples_of_the_clock(assigner: Any, interval: int, script: Any) -> None:
    check(spec_of(assigner, PurgingTrigger.of(ContinuousProcessingTimeTrigger(interval))), script)


@settings(max_examples=examples(80), deadline=None)
@given(EVENT_WINDOWS, st.integers(1, 12), LATENESS, st.sampled_from([-1000, 0, 1000]), SCRIPT)
def test_purging_event_time_windows_by_the_clock(
    assigner: Any, interval: int, lateness: int, start: int, script: Any
) -> None:
    trigger = PurgingTrigger.of(ContinuousProcessingTimeTrigger(interval))
    check(spec_of(assigner, trigger, lateness), script, start)


@settings(max_examples=examples(60), deadline=None)
@given(EVENT_WINDOWS, st.integers(1, 3), st.booleans(), st.lists(ROW, max_size=30))
def test_counting_by_a_plain_model(assigner: Any, n: int, purge: bool, rows: Any) -> None:
    """The n-th, 2n-th, ... record of each key and window brings out all before it, or the last n;
    nothing comes when windows end."""
    trigger = PurgingTrigger.of(CountTrigger.of(n)) if purge else CountTrigger.of(n)
    harness = OperatorHarness(make_window_operator(spec_of(assigner, trigger)))
    for part in (rows[:11], rows[11:]):
        if part:
            harness.push(batch(part))
    harness.finish()
    held: dict[Any, list[Any]] = {}
    expected = []
    for key, value, _, ts in rows:
        for window in assigner.windows_at(ts):
            values = held.setdefault((key, window), [])
            values.append(value)
            if len(values) % n == 0:
                some = [v for v in (values[-n:] if purge else values) if v is not None]
                total = sum(some) if some else None
                size = n if purge else len(values)
                expected.append((key, window.start, window.end, size, total))
    assert [tuple(row)[:5] for row in harness.outputs()] == expected


@settings(max_examples=examples(60), deadline=None)
@given(
    EVENT_WINDOWS,
    COUNT_TRIGGERS
    | st.integers(2, 9).map(lambda n: PurgingTrigger.of(ContinuousEventTimeTrigger(n))),
    LATENESS,
    st.sampled_from(["numbers", "text"]),
    SCRIPT,
    SCRIPT,
    SCRIPT,
)
def test_snapshots_split_in_halves_and_whole_again(
    assigner: Any, trigger: Any, lateness: int, function: str, before: Any, between: Any, after: Any
) -> None:
    spec = spec_of(assigner, trigger, lateness, function)
    script = [without_restarts(part) for part in (before, between, after)]
    oracle = OperatorHarness(make_window_operator(spec))
    drive(oracle, batch, [step for part in script for step in part])
    oracle.finish()
    parts = rescaled(lambda: make_window_operator(spec), batch, *script)
    assert Counter(r for p in parts for r in results(p)) == Counter(results(oracle))


def results(harness: OperatorHarness) -> list[str]:
    late = [repr(tuple(row)) for row in harness.side_outputs("late")]
    return [*late, *(repr((tuple(row), at)) for row, at in harness.stamped_outputs())]


def test_memory_follows_the_open_windows() -> None:
    """Each key comes once: 100,000 keys and as many texts, some 2,000 panes open at any time."""
    spec = spec_of(TumblingEventTimeWindows(10), CountTrigger.of(2), function="text")
    harness = OperatorHarness(make_window_operator(spec))
    for start in range(0, 100_000, 1000):
        names = [f"k{i}" for i in range(start, start + 1000)]
        stamps = np.arange(start, start + 1000) // 100
        data = pa.record_batch({"k": names * 2, "v": [1] * 2000, "s": names * 2})
        harness.push(ColumnBatch(data, np.concatenate([stamps, stamps])))
        harness.watermark(start // 100)
        store = cast(Any, harness.operator).windower._store
        assert len(store) <= 2000
        assert len(store.table) <= 10_000
    assert len(harness.outputs()) == 100_000
    assert all(row.k == row.m == row.a for row in harness.outputs())


def test_what_needs_the_row_path() -> None:
    spec = WindowSpec(
        KEYS["text"], TumblingProcessingTimeWindows(9), FUNCTIONS["text"], EventTimeTrigger()
    )
    assert isinstance(make_window_operator(spec), RowWindowOperator)

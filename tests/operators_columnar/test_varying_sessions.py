"""Sessions with a gap per record and sessions by the clock: columns against the row path, and
against a plain model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.aggregates import count, last, max_, sum_
from strom.api.functions.user_functions import OutputTag
from strom.api.specs.windows import BuiltinWindow, WindowSpec
from strom.api.windows.session_windows import EventTimeSessionWindows, ProcessingTimeSessionWindows
from strom.api.windows.triggers import EventTimeTrigger, ProcessingTimeTrigger, PurgingTrigger
from strom.core.batch import ColumnBatch
from strom.core.errors import TypeMismatchError
from strom.core.keys import ColumnKey, ConstantKey
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.sessions.window import SessionWindower
from strom.operators.window_choice import make_window_operator
from strom.testing.operator_harness import OperatorHarness
from window_scripts import rescaled, run, scripts, singly, without_restarts

SCHEMA = pa.schema([("k", pa.string_view()), ("gap", pa.int32()), ("v", pa.int64())])
KEYS = {"text": ColumnKey(("k",)), "all": ConstantKey()}
FUNCTION = BuiltinWindow((("n", count()), ("s", sum_("v")), ("m", max_("k")), ("l", last("v"))))
LATE = OutputTag("late")


def by_function(record: Any) -> int:
    return int(record["gap"])


GAPS = {
    "function": by_function,
    "column": "gap",
    "expression": pl.col("gap") * 1,
    "duration": pl.duration(milliseconds=pl.col("gap")),
}
ROW = st.tuples(
    st.none() | st.sampled_from("ab"),
    st.integers(1, 25),
    st.none() | st.integers(-3, 3),
    st.integers(-30, 60),
)


SCRIPT = scripts(ROW)


def batch(rows: Sequence[Any]) -> ColumnBatch:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=False)]
    data = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return ColumnBatch(data, np.array(columns[3], dtype=np.int64))


def check(spec: WindowSpec, script: Sequence[Any], start: int = 0) -> None:
    """`start`: where the clock starts."""
    assert isinstance(cast(Any, make_window_operator(spec)).windower, SessionWindower)
    found, left = run(lambda: make_window_operator(spec), batch, script, start)
    assert found == run(lambda: RowWindowOperator(spec), batch, script, start)[0]
    assert not left


def spec_of(assigner: Any, key: str = "text", lateness: int = 0, trigger: Any = None) -> WindowSpec:
    selector = KEYS[key]
    keyed = not isinstance(selector, ConstantKey)
    return WindowSpec(selector, assigner, FUNCTION, trigger, lateness, LATE, keyed=keyed)


@pytest.mark.parametrize("gap", GAPS)
@settings(max_examples=examples(40), deadline=None)
@given(script=SCRIPT, key=st.sampled_from(list(KEYS)))
def test_a_gap_per_record_gives_what_rows_give(gap: str, script: Any, key: str) -> None:
    check(spec_of(EventTimeSessionWindows.with_dynamic_gap(GAPS[gap]), key), script)


@settings(max_examples=examples(60), deadline=None)
@given(SCRIPT, st.sampled_from([3, 12, 50]))
def test_late_records_with_gaps_of_their_own(script: Any, lateness: int) -> None:
    """One record per batch: then once per batch is once per record."""
    spec = spec_of(EventTimeSessionWindows.with_dynamic_gap("gap"), lateness=lateness)
    check(spec, singly(script))


@settings(max_examples=examples(80), deadline=None)
@given(SCRIPT, st.integers(1, 20), st.sampled_from([-1000, 0, 5]), st.sampled_from(list(KEYS)))
def test_sessions_by_the_clock(script: Any, gap: int, start: int, key: str) -> None:
    check(spec_of(ProcessingTimeSessionWindows.with_gap(gap), key, lateness=3), script, start)


@settings(max_examples=examples(80), deadline=None)
@given(SCRIPT, st.sampled_from(["function", "column"]))
def test_sessions_by_the_clock_with_a_gap_per_record(script: Any, gap: str) -> None:
    check(spec_of(ProcessingTimeSessionWindows.with_dynamic_gap(GAPS[gap])), script)


@settings(max_examples=examples(30), deadline=None)
@given(SCRIPT)
def test_purging_at_the_end_changes_nothing(script: Any) -> None:
    event = PurgingTrigger.of(EventTimeTrigger.create())
    check(spec_of(EventTimeSessionWindows.with_gap(5), trigger=event), script)
    clock = PurgingTrigger.of(ProcessingTimeTrigger.create())
    check(spec_of(ProcessingTimeSessionWindows.with_gap(5), trigger=clock), script)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(ROW, max_size=20))
def test_a_gap_per_record_by_a_plain_model(rows: Any) -> None:
    """Intervals of a key that overlap or touch are one."""
    spec = spec_of(EventTimeSessionWindows.with_dynamic_gap("gap"))
    harness = OperatorHarness(make_window_operator(spec))
    for part in (rows[:7], rows[7:]):
        if part:
            harness.push(batch(part))
    harness.finish()
    found = Counter((r.k, r.window_start, r.window_end, r.n) for r in harness.outputs())
    expected: Counter[Any] = Counter()
    for key in {row[0] for row in rows}:
        mine = sorted((ts, ts + gap) for k, gap, _, ts in rows if k == key)
        while mine:
            start, end = mine.pop(0)
            size = 1
            while mine and mine[0][0] <= end:
                end, size = max(end, mine.pop(0)[1]), size + 1
            expected[key, start, end, size] += 1
    assert found == expected


@settings(max_examples=examples(40), deadline=None)
@given(SCRIPT, SCRIPT, SCRIPT, st.booleans())
def test_snapshots_split_in_halves_and_whole_again(
    before: Any, between: Any, after: Any, clock: bool
) -> None:
    kind = ProcessingTimeSessionWindows if clock else EventTimeSessionWindows
    spec = spec_of(kind.with_dynamic_gap("gap"))
    script = [without_restarts(part) for part in (before, between, after)]
    steps, _ = run(
        lambda: make_window_operator(spec), batch, [step for part in script for step in part]
    )
    parts = rescaled(lambda: make_window_operator(spec), batch, *script)
    found = Counter(repr((tuple(r), at)) for p in parts for r, at in p.stamped_outputs())
    assert found == Counter(result for step in steps for result in step.results)


@pytest.mark.parametrize(
    ("gap", "kind", "values", "message"),
    [
        ("gap", pa.int64(), [5, 0], "must be > 0 ms, is 0 ms by gap"),
        ("gap", pa.int64(), [5, None], "is null by gap"),
        ("gap", pa.string(), ["5", "6"], "gives values of type string"),
        ("gap", pa.bool_(), [True, True], "gives values of type bool"),
        ("gap", pa.float64(), [1.0, float("inf")], "not finite"),
        ("no", pa.int64(), [5, 5], "no column 'no'"),
        (lambda record: -1, pa.int64(), [5, 5], "must be > 0 ms, is -1"),
    ],
)
def test_gaps_that_make_no_sense(gap: Any, kind: Any, values: Any, message: str) -> None:
    spec = spec_of(EventTimeSessionWindows.with_dynamic_gap(gap))
    data = pa.record_batch({"k": ["a", "b"], "gap": pa.array(values, kind), "v": [1, 2]})
    with pytest.raises(TypeMismatchError, match=message):
        OperatorHarness(make_window_operator(spec)).push(ColumnBatch(data, np.array([1, 2])))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float32(), [2.0, 7.5]),
        (pa.duration("ns"), [timedelta(milliseconds=2), timedelta(milliseconds=7)]),
        (pa.duration("s"), [timedelta(seconds=1), timedelta(seconds=2)]),
        (pa.uint16(), [2, 7]),
    ],
    ids=str,
)
def test_gaps_of_other_types(kind: pa.DataType, values: Any) -> None:
    spec = spec_of(EventTimeSessionWindows.with_dynamic_gap("gap"))
    data = pa.record_batch({"k": ["a", "b"], "gap": pa.array(values, kind), "v": [1, 2]})
    ends = []
    for operator in (make_window_operator(spec), RowWindowOperator(spec)):
        harness = OperatorHarness(operator)
        harness.push(ColumnBatch(data, np.array([100, 100])))
        harness.finish()
        ends.append([row.window_end for row in harness.outputs()])
    millis = [
        v // timedelta(milliseconds=1) if isinstance(v, timedelta) else int(v) for v in values
    ]
    assert ends == [[100 + ms for ms in millis]] * 2


@pytest.mark.parametrize("gap", ["fixed", "column"])
def test_a_restored_wheel_has_places_as_wide_as_before(gap: str) -> None:
    """With places of 1 ms for lives of minutes, each watermark would look at every open session."""
    minutes = 60_000
    fixed = EventTimeSessionWindows.with_gap(5 * minutes)
    assigner = fixed if gap == "fixed" else EventTimeSessionWindows.with_dynamic_gap("gap")
    spec = spec_of(assigner)
    rows = [(chr(97 + i % 20), 5 * minutes, i, 1000 * i) for i in range(200)]
    one = OperatorHarness(make_window_operator(spec))
    one.push(batch(rows[:100]))
    one.watermark(90_000)
    other = OperatorHarness(make_window_operator(spec), restored=one.snapshot())
    width = _width(one)
    assert width > 500
    assert _width(other) == pytest.approx(width, rel=0.5)
    other.watermark(95_000)
    other.push(batch(rows[100:]))
    assert _width(other) == width
    cast(Any, other.operator).validate()
    one.push(batch(rows[100:]))
    for harness in (one, other):
        harness.watermark(8 * minutes)
        cast(Any, harness.operator).validate()
        harness.finish()
    assert Counter(map(repr, other.outputs())) == Counter(map(repr, one.outputs()))
    assert len(other.outputs()) == 20


def _width(harness: OperatorHarness) -> int:
    """Of a place of the wheel, in ms."""
    return int(cast(Any, harness.operator).windower._store._width)

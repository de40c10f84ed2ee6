"""Aggregates that keep many values, ties and top-n, in sessions, windows by count and panes:
columns against the row path; and the lists they are kept in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import reference_lists
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.aggregates import (
    approx_count_distinct,
    collect,
    count,
    count_distinct,
    largest,
    smallest,
)
from strom.api.functions.user_functions import OutputTag
from strom.api.specs.columns import OrderColumn
from strom.api.specs.windows import BuiltinWindow, ExtremeWindow, TopNWindow, WindowSpec
from strom.api.windows.continuous_triggers import ContinuousEventTimeTrigger
from strom.api.windows.count_windows import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from strom.api.windows.session_windows import EventTimeSessionWindows, ProcessingTimeSessionWindows
from strom.api.windows.time_windows import GlobalWindows, SlidingEventTimeWindows
from strom.api.windows.triggers import CountTrigger, PurgingTrigger
from strom.core.batch import ColumnBatch
from strom.core.keys import ColumnKey
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.window_choice import make_window_operator
from strom.state.value_lists import ValueLists
from strom.testing.operator_harness import OperatorHarness
from window_scripts import rescaled, run, scripts, without_restarts

SCHEMA = pa.schema(
    [
        ("k", pa.string_view()),
        ("v", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string_view()),
        ("n", pa.int64()),
    ]
)
KEY = ColumnKey(("k",))
FUNCTIONS = {
    "lists": BuiltinWindow(
        (
            ("rows", count()),
            ("all", collect("v")),
            ("words", collect("s").where(pl.col("v") > 0)),
            ("best", largest("v", 2)),
            ("most", largest("v", 20)),
            ("least", smallest("s", 2)),
        )
    ),
    "distinct": BuiltinWindow(
        (
            ("values", count_distinct("v")),
            ("floats", count_distinct("f")),
            ("words", count_distinct("s").where(pl.col("v") > 0)),
            ("about", approx_count_distinct("n", precision=4)),
            ("about words", approx_count_distinct("s")),
        )
    ),
    "ties": ExtremeWindow("v", "max", True),
    "ties of text": ExtremeWindow("s", "min", True),
    "ties of floats": ExtremeWindow("f", "max", True),
    "top": TopNWindow(2, (OrderColumn("v", True), OrderColumn("n")), "place"),
    "top by text": TopNWindow(2, (OrderColumn("s"), OrderColumn("n", True))),
}
WINDOWS: dict[str, tuple[Any, Any]] = {
    "sessions": (EventTimeSessionWindows.with_gap(5), None),
    "varying": (EventTimeSessionWindows.with_dynamic_gap(pl.col("n") % 20 + 1), None),
    "by the clock": (ProcessingTimeSessionWindows.with_gap(8), None),
    "tumbling": (CountTumblingWindowAssigner(3), None),
    "sliding": (CountSlidingWindowAssigner(5, 2), None),
    "growing": (GlobalWindows.create(), CountTrigger.of(2)),
    "every": (GlobalWindows.create(), CountTrigger.of(1)),
    "counting": (SlidingEventTimeWindows(10, 4, 1), CountTrigger.of(2)),
    "emptied": (SlidingEventTimeWindows(10, 4, 1), PurgingTrigger.of(CountTrigger.of(3))),
    "ticking": (SlidingEventTimeWindows(10, 4), PurgingTrigger.of(ContinuousEventTimeTrigger(3))),
}
ROW = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.none() | st.integers(-3, 3),
    st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
    st.none() | st.sampled_from(["", "x", "yy", "zzz"]),
    st.integers(0, 2**40),
    st.integers(-20, 40),
)
SCRIPT = scripts(ROW)


def batch(rows: Sequence[Any]) -> ColumnBatch:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=False)]
    data = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return ColumnBatch(data, np.array(columns[-1], dtype=np.int64))


def spec_of(window: str, function: str) -> WindowSpec:
    assigner, trigger = WINDOWS[window]
    return WindowSpec(KEY, assigner, FUNCTIONS[function], trigger, late_tag=OutputTag("late"))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("window", WINDOWS)
@settings(max_examples=4, deadline=None)
@given(script=SCRIPT)
def test_rows_and_columns_give_the_same(window: str, function: str, script: Any) -> None:
    """Records that tie are in no particular order row by row where sessions have merged."""
    spec = spec_of(window, function)
    assert not isinstance(make_window_operator(spec), RowWindowOperator)
    found, _ = run(lambda: make_window_operator(spec), batch, script)
    expected, _ = run(lambda: RowWindowOperator(spec), batch, script)
    for step in (*found, *expected):
        if function.startswith("ties"):
            step.results.sort()
    assert found == expected


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(list(WINDOWS)), st.sampled_from(list(FUNCTIONS)), SCRIPT, SCRIPT, SCRIPT)
def test_snapshots_split_in_halves_and_whole_again(
    window: str, function: str, before: Any, between: Any, after: Any
) -> None:
    spec = spec_of(window, function)
    script = [without_restarts(part) for part in (before, between, after)]
    steps, _ = run(
        lambda: make_window_operator(spec), batch, [step for part in script for step in part]
    )
    parts = rescaled(lambda: make_window_operator(spec), batch, *script)
    found = [repr((tuple(r), at)) for p in parts for r, at in p.stamped_outputs()]
    assert sorted(found) == sorted(result for step in steps for result in step.results)


STEP = st.lists(st.integers(0, 3), max_size=6) | st.tuples(st.integers(0, 3), st.integers(0, 3))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEP, max_size=12), st.integers(0, 12))
def test_lists_equal_their_twin(steps: Any, keep_at: int) -> None:
    """Values come to slots; (a, b): the list of b is put ahead of a's, and b is empty then."""
    lists, last = ValueLists(pa.int64()), np.full(4, -1, dtype=np.int64)
    twin: reference_lists.Lists = [[], [], [], []]
    number = 0
    for at, step in enumerate(steps):
        if isinstance(step, list):
            numbers = np.arange(number, number + len(step))
            slots = np.array(step, dtype=np.int64)
            lists.extend(last, slots, pa.array(numbers, pa.int64()), numbers)
            reference_lists.extend(twin, step, number)
            number += len(step)
        elif step[0] != step[1]:
            target, source = step
            lists.join(last, np.array([target]), last[[source]])
            reference_lists.join(twin, [target], [twin[source]])
            last[source], twin[source] = -1, []
        if at == keep_at:
            used = np.flatnonzero(last >= 0)
            last[used] = lists.keep(last[used], lambda owners, *_: np.arange(len(owners)))
    assert lists.freeze()(last).to_pylist() == [
        [{"value": v, "number": v} for v in sorted(held)] or None for held in twin
    ]
    other = ValueLists(pa.int64())
    again = other.append(lists.freeze()(last))
    assert other.freeze()(again) == lists.freeze()(last)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=14))
def test_lists_are_joined_to_running_ones(sizes: list[int]) -> None:
    """Slots of a few values, or none; each takes in all before it by doubling distances, as the
    segments of windows by count do."""
    lists, last = ValueLists(pa.int64()), np.full(len(sizes), -1, dtype=np.int64)
    slots, numbers = np.repeat(np.arange(len(sizes)), sizes), np.arange(sum(sizes))
    lists.extend(last, slots, pa.array(numbers), numbers)
    distance = 1
    while distance < len(sizes):
        lists.join(last, np.arange(distance, len(sizes)), last[:-distance].copy())
        distance *= 2
        # A ring of values would be read without end: none may be there at any time.
        before, at = lists._before, last.copy()
        for _ in range(sum(sizes)):
            at = np.where(at >= 0, before[at], -1)
        assert (at < 0).all()
    owners, values, _ = lists.read(last)
    held = [values.filter(pa.array(owners == slot)).to_pylist() for slot in range(len(sizes))]
    assert held == [list(range(end)) for end in np.cumsum(sizes).tolist()]


@pytest.mark.parametrize(
    ("name", "aggregate", "limit"),
    [
        ("distinct", count_distinct("v"), 20_000),
        ("about", approx_count_distinct("n", precision=6), 20_000),
        ("best", largest("s", 3), 20_000),
    ],
)
def test_memory_follows_what_results_need(name: str, aggregate: Any, limit: int) -> None:
    """A session that never ends: half a million values, of which few matter."""
    spec = WindowSpec(
        KEY, EventTimeSessionWindows.with_gap(10**9), BuiltinWindow(((name, aggregate),))
    )
    harness = OperatorHarness(make_window_operator(spec))
    for start in range(0, 500_000, 10_000):
        numbers = np.arange(start, start + 10_000)
        text = pa.array([f"{n:07}" for n in numbers.tolist()])
        arrays = [pa.array(["a"] * 10_000), pa.array(numbers % 1000), text, pa.array(numbers)]
        data = pa.RecordBatch.from_arrays(arrays, names=["k", "v", "s", "n"])
        harness.push(ColumnBatch(data, numbers))
        sessions = cast(Any, harness.operator).windower._store._table
        assert all(len(store) <= limit for store in sessions.stores.values())
    harness.finish()
    (row,) = harness.outputs()
    value = row[3]
    match name:
        case "distinct":
            assert value == 1000
        case "about":
            assert 0.6 < value / 500_000 < 1.4
        case _:
            assert value == ["0499999", "0499998", "0499997"]

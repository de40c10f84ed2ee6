"""Columnar windows by count against the row path: random keys, nulls, batch cuts, restores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
import reference_counting
from amounts import examples
from columns_kit import HALVES, WHOLE, batch, of_groups
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.aggregates import (
    arg_max,
    arg_min,
    count,
    first,
    last,
    max_,
    mean,
    min_,
    sum_,
)
from strom.api.specs.windows import BuiltinWindow, ExtremeWindow, WindowSpec
from strom.api.windows.count_windows import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from strom.api.windows.time_windows import GlobalWindows
from strom.api.windows.triggers import CountTrigger, EventTimeTrigger, PurgingTrigger
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.elements import MAX_TIMESTAMP
from strom.core.errors import GraphError, TypeMismatchError
from strom.core.keys import ColumnKey, ConstantKey
from strom.operators.kernels import counting
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.window_choice import make_window_operator
from strom.operators.windows.counted_windows import CountWindower
from strom.testing.operator_harness import OperatorHarness, regroup

SCHEMA = pa.schema([("k", pa.string()), ("g", pa.int32()), ("v", pa.int64()), ("s", pa.string())])
AGGREGATES = (
    ("rows", count()),
    ("n", count("v")),
    ("total", sum_("v")),
    ("low", min_("v")),
    ("avg", mean("v")),
    ("one", first("v")),
    ("two", last("v")),
    ("word", min_("s")),
    ("upper", max_("s")),
    ("opened", first("s")),
    ("closed", last("s")),
    ("least at", arg_min("v", "g")),
    ("said", arg_max("s", "v")),
)
WINDOWS: dict[str, tuple[Any, Any]] = {
    "tumbling": (CountTumblingWindowAssigner(3), None),
    "single": (CountTumblingWindowAssigner(1), None),
    "sliding": (CountSlidingWindowAssigner(4, 2), None),
    "uneven": (CountSlidingWindowAssigner(5, 2), None),
    "gaps": (CountSlidingWindowAssigner(2, 5), None),
    "default": (CountTumblingWindowAssigner(2), PurgingTrigger.of(CountTrigger.of(2))),
    "purging": (GlobalWindows.create(), PurgingTrigger.of(CountTrigger.of(3))),
    "growing": (GlobalWindows.create(), CountTrigger.of(2)),
    "every": (GlobalWindows.create(), CountTrigger.of(1)),
}
KEYS = {"text": ColumnKey(("k",)), "two": ColumnKey(("g", "k")), "all": ConstantKey()}
ROW = st.tuples(
    st.none() | st.sampled_from(["a", "b", "cc"]),
    st.integers(0, 2),
    st.none() | st.integers(-3, 3),
    st.none() | st.sampled_from(["x", "yy", "z", ""]),
)
BATCHES = st.lists(st.lists(ROW, min_size=1, max_size=12), max_size=6)


def spec_of(
    window: str | tuple[Any, Any], key: Any = None, aggregates: Any = AGGREGATES
) -> WindowSpec:
    assigner, trigger = WINDOWS[window] if isinstance(window, str) else window
    key = key or KEYS["text"]
    return WindowSpec(
        key=key,
        assigner=assigner,
        function=BuiltinWindow(aggregates),
        trigger=trigger,
        keyed=not isinstance(key, ConstantKey),
    )


def drive(harness: OperatorHarness, batches: Sequence[Any]) -> None:
    for rows in batches:
        if rows:
            harness.push(batch(SCHEMA, rows))


def results(harness: OperatorHarness) -> list[str]:
    return [repr((tuple(row), ts)) for row, ts in harness.stamped_outputs()]


@pytest.mark.parametrize("window", WINDOWS)
@settings(max_examples=15, deadline=None)
@given(batches=BATCHES, key=st.sampled_from(list(KEYS)))
def test_rows_and_columns_give_the_same_in_the_same_order(
    window: str, batches: Any, key: str
) -> None:
    spec = spec_of(window, KEYS[key])
    columns, rows = (
        OperatorHarness(make_window_operator(spec)),
        OperatorHarness(RowWindowOperator(spec)),
    )
    assert isinstance(cast(Any, columns.operator).windower, CountWindower)
    for harness in (columns, rows):
        drive(harness, batches)
        harness.finish()
    assert results(columns) == results(rows)
    assert {str(b.data.schema) for b in columns.batches()} == {
        str(b.data.schema) for b in rows.batches()
    }


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(list(WINDOWS)), BATCHES, BATCHES, BATCHES)
def test_snapshots_restore_split_in_halves_and_whole_again(
    window: str, before: Any, between: Any, after: Any
) -> None:
    spec = spec_of(window)
    oracle = OperatorHarness(make_window_operator(spec))
    drive(oracle, [*before, *between, *after])
    one = OperatorHarness(make_window_operator(spec))
    drive(one, before)
    snapshot = one.snapshot()
    halves = []
    for groups in HALVES:
        restored = regroup([snapshot], groups)
        half = OperatorHarness(make_window_operator(spec), key_groups=groups, restored=restored)
        drive(half, [of_groups(batch(SCHEMA, rows), rows, "k", groups) for rows in between])
        halves.append(half)
    whole = regroup([half.snapshot() for half in halves], WHOLE)
    joined = OperatorHarness(make_window_operator(spec), restored=whole)
    drive(joined, after)
    parts = [one, *halves, joined]
    assert Counter(r for p in parts for r in results(p)) == Counter(results(oracle))


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.integers(0, 2), max_size=15),
    st.integers(0, 4),
    st.integers(1, 6),
    st.integers(1, 6),
    st.lists(st.integers(0, 9), min_size=3, max_size=3),
)
def test_kernels_equal_their_twins(
    slots: list[int], phase: int, period: int, size: int, seen: list[int]
) -> None:
    size = min(size, period)
    held, counts = np.array(slots, dtype=np.int64), np.array(seen, dtype=np.int64)
    places, current = np.empty_like(held), np.full(3, -1, dtype=np.int64)
    counting.positions(held, counts, places)
    assert places.tolist() == reference_counting.positions(slots, seen)
    assert counts.tolist() == seen
    want = reference_counting.cut(slots, places.tolist(), phase, period, size)
    segments, owners, previous, completed, newest = np.empty((5, len(slots)), dtype=np.int64)
    found = counting.cut(
        held, places, phase, period, size, current, segments, owners, previous, completed, newest
    )
    assert current.tolist() == [-1, -1, -1]
    arrays = (owners, previous, completed, newest)
    got = reference_counting.Cut(segments.tolist(), *(a[:found].tolist() for a in arrays))
    assert got == want


@pytest.mark.parametrize("window", ["tumbling", "uneven", "growing"])
@settings(max_examples=15, deadline=None)
@given(
    before=BATCHES,
    after=BATCHES,
    field=st.sampled_from(["v", "s"]),
    kind=st.sampled_from(["min", "max"]),
)
def test_first_extremes(window: str, before: Any, after: Any, field: str, kind: Any) -> None:
    spec = replace(spec_of(window), function=ExtremeWindow(field, kind, False))
    columns, rows = harnesses(spec)
    drive(columns, before)
    again = OperatorHarness(make_window_operator(spec), restored=columns.snapshot())
    drive(again, after)
    drive(rows, [*before, *after])
    assert [*results(columns), *results(again)] == results(rows)


def harnesses(spec: WindowSpec) -> tuple[OperatorHarness, OperatorHarness]:
    """The columnar operator's and the row operator's."""
    return OperatorHarness(make_window_operator(spec)), OperatorHarness(RowWindowOperator(spec))


COUNT = (("n", count()), ("s", sum_("v")))


def simple(keys: Any, values: Any, kind: Any = None) -> ColumnBatch:
    return ColumnBatch(pa.record_batch({"k": pa.array(keys, type=kind), "v": pa.array(values)}))


def test_results_come_with_the_record_that_completes_their_window() -> None:
    """
    size 3, slide 2     place  0  1  2  3  4  5  6
    key 1               value  1  2  4  8 16 32 64
    windows                    [7     )
                                     [28    )
                                           [112   )
    """
    spec = spec_of((CountSlidingWindowAssigner(3, 2), None), aggregates=COUNT)
    harness = OperatorHarness(make_window_operator(spec))
    harness.push(simple([1, 1, 2, 1, 1], [1, 2, 100, 4, 8]))
    assert harness.stamped_outputs() == [((1, None, None, 3, 7), MAX_TIMESTAMP)]
    harness.push(simple([1, 1, 2, 2, 1], [16, 32, 100, 100, 64]))
    assert [tuple(row) for row in harness.outputs()[1:]] == [
        (1, None, None, 3, 28),
        (2, None, None, 3, 300),
        (1, None, None, 3, 112),
    ]


def test_one_key_many_windows_in_a_batch() -> None:
    spec = spec_of("every", aggregates=COUNT)
    harness = OperatorHarness(make_window_operator(spec))
    harness.push(simple([7] * 1000, range(1000)))
    want = [(7, None, None, n + 1, n * (n + 1) // 2) for n in range(1000)]
    assert [tuple(row) for row in harness.outputs()] == want


@pytest.mark.parametrize("window", ["tumbling", "uneven"])
@pytest.mark.parametrize(
    "kind", [pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.large_binary()], ids=str
)
def test_keys_and_values_of_other_types(kind: pa.DataType, window: str) -> None:
    spec = spec_of(window, aggregates=(*COUNT, ("least", min_("k")), ("last", last("k"))))
    keys = ["a", "b", "a", "a", "b"] if kind != pa.large_binary() else [b"a", b"b"] * 2 + [b"b"]
    harness = OperatorHarness(make_window_operator(spec))
    harness.push(simple(keys, range(5), kind))
    again = OperatorHarness(make_window_operator(spec), restored=harness.snapshot())
    again.push(simple(keys, range(5), kind))
    rows = [row for each in (harness, again) for row in each.outputs()]
    assert len(rows) == (3 if window == "tumbling" else 1)
    assert all(row.k == row.least == row.last for row in rows)
    assert {batch.data.schema.field("k").type for batch in again.batches()} == {kind}


def test_objects_become_columns() -> None:
    harness = OperatorHarness(make_window_operator(spec_of("single", aggregates=COUNT)))
    harness.push(ObjectBatch([{"k": 1, "v": 2}, {"k": 3, "v": 4}]))
    assert [tuple(row) for row in harness.outputs()] == [
        (1, None, None, 1, 2),
        (3, None, None, 1, 4),
    ]


def test_texts_no_longer_held_are_forgotten() -> None:
    spec = spec_of("tumbling", aggregates=(("last", last("s")),))
    harness = OperatorHarness(make_window_operator(spec))
    for start in range(0, 50_000, 1000):
        texts = [f"text {n}" for n in range(start, start + 1000)]
        data = pa.record_batch({"k": [n % 7 for n in range(start, start + 1000)], "s": texts})
        harness.push(ColumnBatch(data))
    windower = cast(Any, harness.operator).windower
    assert all(len(store) < 6000 for store in windower._table.stores.values())
    numbers = [n for k in range(7) for n in range(k, 50_000, 7)[2::3]]
    assert sorted(row.last for row in harness.outputs()) == sorted(f"text {n}" for n in numbers)


def test_what_needs_the_row_path() -> None:
    builtin, text = BuiltinWindow(COUNT), KEYS["text"]
    for spec in (
        WindowSpec(text, CountTumblingWindowAssigner(3), builtin, CountTrigger.of(3)),
        WindowSpec(text, CountSlidingWindowAssigner(3, 1), builtin, EventTimeTrigger()),
        WindowSpec(text, GlobalWindows.create(), builtin),
    ):
        assert isinstance(make_window_operator(spec), RowWindowOperator)


def test_errors_say_what_is_wrong() -> None:
    harness = OperatorHarness(make_window_operator(spec_of("growing", aggregates=COUNT)))
    harness.push(simple([1], [2**62]))
    with pytest.raises(TypeMismatchError, match="int64"):
        harness.push(simple([1], [2**62]))
    harness = OperatorHarness(make_window_operator(spec_of("single", aggregates=(("k", count()),))))
    with pytest.raises(GraphError, match=r"several columns named \['k'\]"):
        harness.push(simple([1], [1]))

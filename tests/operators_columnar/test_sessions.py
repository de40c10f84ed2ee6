"""Columnar sessions against the row path: random keys, times, nulls, batch cuts, watermarks,
lateness, restores and rescales."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pytest
from amounts import examples
from columns_kit import AGGREGATES, FIELDS, HALVES, VALUES, WHOLE, of_groups, stamped
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.aggregates import (
    arg_max,
    arg_min,
    count,
    stddev,
    sum_,
    variance,
)
from strom.api.functions.user_functions import OutputTag
from strom.api.specs.windows import BuiltinWindow, ExtremeWindow, WindowSpec
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.core.elements import MAX_TIMESTAMP
from strom.core.ids import KeyGroupRange
from strom.core.keys import ColumnKey, ConstantKey, ExpressionKey
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.sessions.window import SessionWindower
from strom.operators.window_choice import make_window_operator
from strom.testing.operator_harness import OperatorHarness, regroup

SCHEMA = pa.schema([("k", pa.string()), ("g", pa.int32()), *FIELDS])
LATE = OutputTag("late")
GAP = 5
KEYS = {
    "text": ColumnKey(("k",)),
    "two columns": ColumnKey(("g", "k")),
    "int": ColumnKey(("g",)),
    "date": ColumnKey(("d",)),
    "expression": ExpressionKey(((pl.col("g") % 2).alias("odd"),)),
    "all": ConstantKey(),
}


ROW = st.tuples(st.none() | st.sampled_from(["a", "b", "cc"]), st.integers(0, 2), *VALUES)
RECORD = st.tuples(ROW, st.integers(-30, 60))
STEP = st.lists(RECORD, min_size=1, max_size=8) | st.integers(-30, 65)
STEPS = st.lists(STEP, max_size=8)
LATENESS = st.sampled_from([0, 0, 4, 15])


def spec_of(lateness: int = 0, key: Any = None, aggregates: Any = AGGREGATES) -> WindowSpec:
    return window_of(BuiltinWindow(aggregates), lateness, key)


def window_of(function: Any, lateness: int = 0, key: Any = None) -> WindowSpec:
    key = key or KEYS["text"]
    return WindowSpec(
        key=key,
        assigner=EventTimeSessionWindows.with_gap(GAP),
        function=function,
        allowed_lateness_ms=lateness,
        late_tag=LATE,
        keyed=not isinstance(key, ConstantKey),
    )


def drive(harness: OperatorHarness, steps: Sequence[Any]) -> None:
    """Batches and (never decreasing) watermarks; the columnar operator's invariants hold after
    each."""
    for step in steps:
        if not isinstance(step, int):
            harness.push(stamped(SCHEMA, step))
        elif step >= harness.output.watermark:
            harness.watermark(step)
        check = getattr(harness.operator, "validate", None)
        if check is not None:
            check()


def results(harness: OperatorHarness) -> list[str]:
    """In order of time; sessions of one end are in no particular order, and sorted here."""
    return in_order(harness.stamped_outputs())


def in_order(outputs: Any) -> list[str]:
    """Records and their times as texts, those of one time sorted."""
    found = [(repr(tuple(row)), ts) for row, ts in outputs]
    groups = groupby(found, key=lambda result: result[1])
    return [repr(result) for _, group in groups for result in sorted(group)]


def by_end(harness: OperatorHarness) -> list[Any]:
    """Results by their sessions' ends and keys."""
    return sorted(harness.outputs(), key=lambda row: (row.window_end, repr(row.k)))


def late(harness: OperatorHarness) -> list[str]:
    return [repr(tuple(row)) for row in harness.side_outputs(LATE.tag_id)]


def schemas(harness: OperatorHarness) -> set[str]:
    return {str(batch.data.schema) for batch in harness.batches()}


def both(spec: WindowSpec, steps: Sequence[Any]) -> tuple[OperatorHarness, OperatorHarness]:
    columns, rows = (
        OperatorHarness(make_window_operator(spec)),
        OperatorHarness(RowWindowOperator(spec)),
    )
    assert isinstance(cast(Any, columns.operator).windower, SessionWindower)
    for harness in (columns, rows):
        drive(harness, [*steps, MAX_TIMESTAMP])
    return columns, rows


@pytest.mark.parametrize("key", KEYS)
@settings(max_examples=examples(20), deadline=None)
@given(steps=STEPS)
def test_rows_and_columns_give_the_same_in_the_same_order(key: str, steps: Any) -> None:
    columns, rows = both(spec_of(key=KEYS[key]), steps)
    assert results(columns) == results(rows)
    assert late(columns) == late(rows)
    assert schemas(columns) == schemas(rows)


@settings(max_examples=examples(40), deadline=None)
@given(STEPS, LATENESS)
def test_with_batches_of_one_record_every_early_result_is_the_same(
    steps: Any, lateness: int
) -> None:
    singles = [
        part
        for step in steps
        for part in ([step] if isinstance(step, int) else [[record] for record in step])
    ]
    columns, rows = both(spec_of(lateness), singles)
    assert results(columns) == results(rows)
    assert late(columns) == late(rows)


def settled(harness: OperatorHarness) -> dict[Any, str]:
    """The last result per (key, window), without windows that later grew into another."""
    found: dict[Any, str] = {}
    for row, _ in harness.stamped_outputs():
        key, start, end = row[0], row.window_start, row.window_end
        for other in list(found):
            if other[0] == key and start <= other[1] and other[2] <= end:
                del found[other]
        found[key, start, end] = repr(tuple(row))
    return found


@settings(max_examples=examples(40), deadline=None)
@given(STEPS, st.sampled_from([4, 15, 40]))
def test_what_is_left_after_late_records_is_the_same(steps: Any, lateness: int) -> None:
    columns, rows = both(spec_of(lateness), steps)
    assert settled(columns) == settled(rows)
    assert late(columns) == late(rows)


def part_of(step: Any, groups: KeyGroupRange) -> Any:
    """The records of a step whose keys belong to these groups."""
    return step if isinstance(step, int) else of_groups(stamped(SCHEMA, step), step, "k", groups)


@settings(max_examples=examples(30), deadline=None)
@given(STEPS, STEPS, STEPS, LATENESS)
def test_snapshots_restore_split_in_halves_and_whole_again(
    before: Any, between: Any, after: Any, lateness: int
) -> None:
    spec = spec_of(lateness)
    oracle = OperatorHarness(make_window_operator(spec))
    drive(oracle, [*before, *between, *after, MAX_TIMESTAMP])
    one = OperatorHarness(make_window_operator(spec))
    drive(one, before)
    last_watermark = one.output.watermark
    snapshots = [one.snapshot()]
    halves = []
    for groups in HALVES:
        half = OperatorHarness(
            make_window_operator(spec), key_groups=groups, restored=regroup(snapshots, groups)
        )
        half.output.watermark = last_watermark
        drive(half, [part for step in between if (part := part_of(step, groups)) != []])
        halves.append(half)
    last_watermark = min(half.output.watermark for half in halves)
    joined = OperatorHarness(
        make_window_operator(spec), restored=regroup([h.snapshot() for h in halves], WHOLE)
    )
    joined.output.watermark = last_watermark
    drive(joined, [*after, MAX_TIMESTAMP])
    parts = [one, *halves, joined]
    assert Counter(r for p in parts for r in results(p)) == Counter(results(oracle))
    assert Counter(r for p in parts for r in late(p)) == Counter(late(oracle))


@settings(max_examples=examples(40), deadline=None)
@given(STEPS, st.sampled_from(["v", "f", "d", "s"]), st.sampled_from(["min", "max"]), st.booleans())
def test_first_extremes(steps: Any, field: str, kind: Any, every: bool) -> None:
    """Bounds and extremes are the row path's. Of several records at the extreme it is the first to
    arrive, which on the row path is so only where no sessions were merged."""
    steps, numbered = number_records(steps)
    spec = window_of(ExtremeWindow(field, kind, False), key=KEYS["all" if every else "text"])
    columns, rows = both(spec, steps)
    assert schemas(columns) == schemas(rows)
    assert late(columns) == late(rows)
    gone = {row.g for row in columns.side_outputs(LATE.tag_id)}
    for row, other in zip(by_end(columns), by_end(rows), strict=True):
        assert repr((row.window_start, row.window_end, row[field])) == repr(
            (other.window_start, other.window_end, other[field])
        )
        holders = [
            n
            for n, (record, ts) in numbered.items()
            if n not in gone
            and (every or record[0] == row.k)
            and row.window_start <= ts < row.window_end
            and repr(record[SCHEMA.names.index(field)]) == repr(row[field])
        ]
        assert row.g == min(holders)
        assert repr(tuple(row)[: len(SCHEMA)]) == repr(numbered[row.g][0])


def number_records(steps: Any) -> tuple[Any, dict[int, Any]]:
    """The steps with the records' numbers of arrival in column g, and the records by number."""
    numbered: dict[int, Any] = {}
    out = []
    for step in steps:
        if isinstance(step, int):
            out.append(step)
            continue
        batch = []
        for row, ts in step:
            n = len(numbered)
            numbered[n] = ((row[0], n, *row[2:]), ts)
            batch.append(numbered[n])
        out.append(batch)
    return out, numbered


SKEW = 7


@settings(max_examples=examples(30), deadline=None)
@given(STEPS, STEPS, LATENESS)
def test_halves_that_fired_unequally_far_become_one(before: Any, after: Any, lateness: int) -> None:
    """The second half's watermark is behind. As one, each key group goes on from where it was: no
    session fires twice, and the same records are late as if the halves had stayed apart."""
    spec = spec_of(lateness)
    apart, snapshots = [], []
    for behind, groups in zip((0, SKEW), HALVES, strict=True):
        half = OperatorHarness(make_window_operator(spec), key_groups=groups)
        mine = [part for step in before if (part := part_of(step, groups)) != []]
        drive(half, [step - behind if isinstance(step, int) else step for step in mine])
        snapshots.append(half.snapshot())
        half.output.elements.clear()
        half.output.side.clear()
        apart.append(half)
    joined = OperatorHarness(make_window_operator(spec), restored=regroup(snapshots, WHOLE))
    joined.output.watermark = min(half.output.watermark for half in apart)
    drive(joined, [*after, MAX_TIMESTAMP])
    for half, groups in zip(apart, HALVES, strict=True):
        mine = [part for step in after if (part := part_of(step, groups)) != []]
        drive(half, [*mine, MAX_TIMESTAMP])
    assert Counter(results(joined)) == Counter(r for half in apart for r in results(half))
    assert Counter(late(joined)) == Counter(r for half in apart for r in late(half))


LATER = (
    ("spread", variance("v")),
    ("deviation", stddev("f", ddof=0)),
    ("positive", sum_("v").where(pl.col("v") > 0)),
    ("several", count().where(pl.col("g") > 0)),
    ("at least", arg_min("v", "g")),
    ("said", arg_max("s", "g")),
)


@settings(max_examples=examples(40), deadline=None)
@given(STEPS)
def test_further_aggregates(steps: Any) -> None:
    """arg_min and arg_max by the number of arrival, so that there are no ties."""
    steps, _ = number_records(steps)
    spec = spec_of(aggregates=LATER)
    columns, rows = both(spec, steps)
    for row, other in zip(by_end(columns), by_end(rows), strict=True):
        for value, wanted in zip(row, other, strict=True):
            same = isinstance(value, float) and value == pytest.approx(wanted, nan_ok=True)
            assert same or value == wanted


@settings(max_examples=examples(30), deadline=None)
@given(STEPS, STEPS, LATENESS)
def test_first_extremes_across_a_restore(before: Any, after: Any, lateness: int) -> None:
    spec = window_of(ExtremeWindow("s", "max", False), lateness)
    oracle = OperatorHarness(make_window_operator(spec))
    drive(oracle, [*before, *after, MAX_TIMESTAMP])
    one = OperatorHarness(make_window_operator(spec))
    drive(one, before)
    other = OperatorHarness(make_window_operator(spec), restored=one.snapshot())
    other.output.watermark = one.output.watermark
    drive(other, [*after, MAX_TIMESTAMP])
    assert in_order([*one.stamped_outputs(), *other.stamped_outputs()]) == results(oracle)

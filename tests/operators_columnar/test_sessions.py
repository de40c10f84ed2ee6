"""Columnar sessions against the row path: random keys, times, nulls, batch cuts, watermarks,
lateness, restores and rescales."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
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
    stddev,
    sum_,
    variance,
)
from strom.api.output_tag import OutputTag
from strom.api.specs import BuiltinWindow, ExtremeWindow, WindowSpec
from strom.api.windows import EventTimeSessionWindows
from strom.core.batch import ColumnBatch
from strom.core.elements import MAX_TIMESTAMP
from strom.core.ids import KeyGroupRange
from strom.core.keys import ColumnKey, ConstantKey, ExpressionKey
from strom.operators.row_windows import RowWindowOperator
from strom.operators.sessions.window import ColumnarSessionOperator
from strom.operators.windows import make_window_operator
from strom.state.backend import KEY_GROUP, StateTable
from strom.state.key_groups import key_groups_of
from strom.testing.operator_harness import OperatorHarness, OperatorSnapshotTables

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("g", pa.int32()),
        ("v", pa.int64()),
        ("f", pa.float64()),
        ("d", pa.date32()),
        ("b", pa.bool_()),
        ("s", pa.string()),
    ]
)
AGGREGATES = (
    ("rows", count()),
    ("n", count("v")),
    ("total", sum_("v")),
    ("low", min_("v")),
    ("high", max_("f")),
    ("fsum", sum_("f")),
    ("avg", mean("v")),
    ("one", first("v")),
    ("two", last("f")),
    ("day", max_("d")),
    ("flag", min_("b")),
    ("word", min_("s")),
    ("upper", max_("s")),
    ("opened", first("s")),
    ("closed", last("s")),
)
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


def maybe(values: Any) -> Any:
    return st.none() | values


ROW = st.tuples(
    maybe(st.sampled_from(["a", "b", "cc"])),
    st.integers(0, 2),
    maybe(st.integers(-3, 3)),
    maybe(st.integers(-2, 2).map(float) | st.just(float("nan"))),
    maybe(st.integers(-1, 1).map(lambda n: dt.date(1970, 1, 1) + dt.timedelta(n))),
    maybe(st.booleans()),
    maybe(st.sampled_from(["x", "yy", "z", ""])),
)
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


def batch_of(records: Sequence[Any]) -> ColumnBatch:
    columns = list(zip(*[row for row, _ in records], strict=True))
    data = pa.RecordBatch.from_arrays(
        [pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
    return ColumnBatch(data, np.array([ts for _, ts in records], dtype=np.int64))


def drive(harness: OperatorHarness, steps: Sequence[Any]) -> None:
    """Batches and (never decreasing) watermarks; the columnar operator's invariants hold after
    each."""
    for step in steps:
        if not isinstance(step, int):
            harness.push(batch_of(step))
        elif step >= harness.output.watermark:
            harness.watermark(step)
        check = getattr(harness.operator, "validate", None)
        if check is not None:
            check()


def results(harness: OperatorHarness) -> list[str]:
    return [repr((tuple(row), ts)) for row, ts in harness.stamped_outputs()]


def late(harness: OperatorHarness) -> list[str]:
    return [repr(tuple(row)) for row in harness.side_outputs(LATE.tag_id)]


def schemas(harness: OperatorHarness) -> set[str]:
    return {str(batch.data.schema) for batch in harness.batches()}


def both(spec: WindowSpec, steps: Sequence[Any]) -> tuple[OperatorHarness, OperatorHarness]:
    columns, rows = (
        OperatorHarness(make_window_operator(spec)),
        OperatorHarness(RowWindowOperator(spec)),
    )
    assert isinstance(columns.operator, ColumnarSessionOperator)
    for harness in (columns, rows):
        drive(harness, [*steps, MAX_TIMESTAMP])
    return columns, rows


@pytest.mark.parametrize("key", KEYS)
@settings(max_examples=20, deadline=None)
@given(steps=STEPS)
def test_rows_and_columns_give_the_same_in_the_same_order(key: str, steps: Any) -> None:
    columns, rows = both(spec_of(key=KEYS[key]), steps)
    assert results(columns) == results(rows)
    assert late(columns) == late(rows)
    assert schemas(columns) == schemas(rows)


@settings(max_examples=40, deadline=None)
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


@settings(max_examples=40, deadline=None)
@given(STEPS, st.sampled_from([4, 15, 40]))
def test_what_is_left_after_late_records_is_the_same(steps: Any, lateness: int) -> None:
    columns, rows = both(spec_of(lateness), steps)
    assert settled(columns) == settled(rows)
    assert late(columns) == late(rows)


def cut(snapshots: Sequence[OperatorSnapshotTables], groups: KeyGroupRange) -> Any:
    tables = []
    for snapshot in snapshots:
        for table in snapshot.keyed:
            mine = [group in groups for group in table.data.column(KEY_GROUP).to_pylist()]
            if any(mine):
                data = table.data.filter(pa.array(mine))
                tables.append(StateTable(table.name, table.kind, data, table.metadata))
    return OperatorSnapshotTables(tuple(tables), ())


HALVES = (KeyGroupRange(0, 63), KeyGroupRange(64, 127))
WHOLE = KeyGroupRange(0, 127)


def of_groups(step: Any, groups: KeyGroupRange) -> Any:
    """The records of a step whose keys belong to these groups."""
    if isinstance(step, int):
        return step
    keys = batch_of(step).data.select(["k"])
    return [r for r, g in zip(step, key_groups_of(keys, 128).tolist(), strict=True) if g in groups]


@settings(max_examples=30, deadline=None)
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
            make_window_operator(spec), key_groups=groups, restored=cut(snapshots, groups)
        )
        half.output.watermark = last_watermark
        drive(half, [part for step in between if (part := of_groups(step, groups)) != []])
        halves.append(half)
    last_watermark = min(half.output.watermark for half in halves)
    joined = OperatorHarness(
        make_window_operator(spec), restored=cut([h.snapshot() for h in halves], WHOLE)
    )
    joined.output.watermark = last_watermark
    drive(joined, [*after, MAX_TIMESTAMP])
    parts = [one, *halves, joined]
    assert Counter(r for p in parts for r in results(p)) == Counter(results(oracle))
    assert Counter(r for p in parts for r in late(p)) == Counter(late(oracle))


@settings(max_examples=40, deadline=None)
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
    found = columns.outputs()
    for row, other in zip(found, rows.outputs(), strict=True):
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


@settings(max_examples=30, deadline=None)
@given(STEPS, STEPS, LATENESS)
def test_halves_that_fired_unequally_far_become_one(before: Any, after: Any, lateness: int) -> None:
    """The second half's watermark is behind. As one, each key group goes on from where it was: no
    session fires twice, and the same records are late as if the halves had stayed apart."""
    spec = spec_of(lateness)
    apart, snapshots = [], []
    for behind, groups in zip((0, SKEW), HALVES, strict=True):
        half = OperatorHarness(make_window_operator(spec), key_groups=groups)
        mine = [part for step in before if (part := of_groups(step, groups)) != []]
        drive(half, [step - behind if isinstance(step, int) else step for step in mine])
        snapshots.append(half.snapshot())
        half.output.elements.clear()
        half.output.side.clear()
        apart.append(half)
    joined = OperatorHarness(make_window_operator(spec), restored=cut(snapshots, WHOLE))
    joined.output.watermark = min(half.output.watermark for half in apart)
    drive(joined, [*after, MAX_TIMESTAMP])
    for half, groups in zip(apart, HALVES, strict=True):
        mine = [part for step in after if (part := of_groups(step, groups)) != []]
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


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_further_aggregates(steps: Any) -> None:
    """arg_min and arg_max by the number of arrival, so that there are no ties."""
    steps, _ = number_records(steps)
    spec = spec_of(aggregates=LATER)
    columns, rows = both(spec, steps)
    for row, other in zip(columns.outputs(), rows.outputs(), strict=True):
        for value, wanted in zip(row, other, strict=True):
            same = isinstance(value, float) and value == pytest.approx(wanted, nan_ok=True)
            assert same or value == wanted


@settings(max_examples=30, deadline=None)
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
    assert [*results(one), *results(other)] == results(oracle)

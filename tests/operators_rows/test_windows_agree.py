"""Built-in window functions: the row path gives what the kernels give."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.aggregates import (
    approx_count_distinct,
    arg_max,
    arg_min,
    collect,
    count,
    count_distinct,
    first,
    largest,
    last,
    max_,
    mean,
    min_,
    smallest,
    sum_,
    variance,
)
from strom.api.specs.windows import BuiltinWindow, ExtremeWindow, WindowSpec
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.api.windows.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from strom.api.windows.triggers import CountTrigger, ProcessingTimeTrigger
from strom.core.batch import ColumnBatch
from strom.core.elements import MAX_TIMESTAMP
from strom.core.keys import ColumnKey
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.window_choice import make_window_operator
from strom.testing.operator_harness import OperatorHarness

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int32())])
KEY = ColumnKey(("k",))
FUNCTIONS = {
    "aggregates": BuiltinWindow(
        tuple((f.__name__, f("v")) for f in (count, sum_, min_, max_, mean, first, last))
    ),
    "more aggregates": BuiltinWindow(
        (
            ("distinct", count_distinct("v")),
            ("about", approx_count_distinct("v", precision=4)),
            ("keys", count_distinct("k").where(pl.col("v") > 0)),
            ("all", collect("v")),
            ("words", collect("k").where(pl.col("v") > 0)),
            ("low", arg_min("k", by="v")),
            ("high", arg_max("v", by="k")),
            ("best", largest("v", 2)),
            ("least", smallest("k", 2)),
            ("squares", variance("v", ddof=0)),
            ("positive", count().where(pl.col("v") > 0)),
        )
    ),
    "extremes": ExtremeWindow("v", "max", True),
    "first extreme": ExtremeWindow("v", "min", False),
}
RECORDS = st.lists(
    st.tuples(st.sampled_from("ab"), st.none() | st.integers(-3, 3), st.integers(-20, 40)),
    min_size=1,
    max_size=25,
)


def outputs(operator, records):
    harness = OperatorHarness(operator)
    for half in (records[::2], records[1::2]):
        if half:
            rows = [{"k": k, "v": v} for k, v, _ in half]
            stamps = np.array([ts for _, _, ts in half], dtype=np.int64)
            harness.push(ColumnBatch(pa.RecordBatch.from_pylist(rows, SCHEMA), stamps))
    harness.watermark(MAX_TIMESTAMP)
    schemas = {str(batch.data.schema) for batch in harness.batches()}
    rows = [(*map(rounded, row), ts) for row, ts in harness.stamped_outputs()]
    return schemas, sorted(rows, key=repr)


def rounded(value):
    """Variances of several slices are merged, which rounds otherwise than value by value."""
    return round(value, 9) if isinstance(value, float) else value


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=examples(30), deadline=None)
@given(RECORDS)
def test_rows_and_kernels_agree(name, records):
    spec = WindowSpec(KEY, SlidingEventTimeWindows.of(10, 5), FUNCTIONS[name])
    columnar = make_window_operator(spec)
    assert not isinstance(columnar, RowWindowOperator)
    assert outputs(columnar, records) == outputs(RowWindowOperator(spec), records)


def test_what_kernels_do_not_cover_runs_on_rows():
    builtin = FUNCTIONS["aggregates"]
    sessions = WindowSpec(KEY, EventTimeSessionWindows.with_gap(5), builtin, CountTrigger.of(2))
    windows = TumblingEventTimeWindows.of(10)
    by_the_clock = WindowSpec(KEY, windows, builtin, ProcessingTimeTrigger())
    for spec in (sessions, by_the_clock):
        assert isinstance(make_window_operator(spec), RowWindowOperator)

"""Values, types and times at the edge of what columns hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from strom.api.aggregates import first, max_, mean, min_, sum_, variance
from strom.api.specs.tables import GroupAggregateSpec
from strom.api.specs.windows import BuiltinWindow, ExtremeWindow, WindowSpec
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.api.windows.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from strom.core.batch import ColumnBatch
from strom.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from strom.core.errors import TypeMismatchError
from strom.core.keys import ColumnKey
from strom.operators.row_windows.operator import RowWindowOperator
from strom.testing.operator_harness import OperatorHarness

KEY = ColumnKey(("k",))
TUMBLING, SESSIONS = TumblingEventTimeWindows.of(10), EventTimeSessionWindows.with_gap(10)
BIG = 2**63 - 1


def batch(values, stamps=None, **more):
    count = len(values)
    columns = {"k": pa.array([1] * count), "v": values, **more}
    times = np.arange(count) if stamps is None else np.array(stamps, dtype=np.int64)
    return ColumnBatch(pa.RecordBatch.from_pydict(columns), times)


def outputs(spec, *batches):
    harness = OperatorHarness(spec)
    for one in batches:
        harness.push(one)
    harness.finish()
    return harness.outputs()


def window(assigner, **aggregates):
    return WindowSpec(KEY, assigner, BuiltinWindow(tuple(aggregates.items())))


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
@pytest.mark.parametrize("assigner", [TUMBLING, SESSIONS])
def test_means_of_integers_that_floats_do_not_hold(assigner, kind):
    """Beyond 2**53, such as times in nanoseconds."""
    values = pa.array([BIG, BIG - 2], kind)
    (row,) = outputs(window(assigner, m=mean("v"), s=variance("v", ddof=0)), batch(values))
    assert row.m == pytest.approx(float(BIG))
    assert row.s == 0.0
    aggregates = (("m", mean("v")), ("t", max_("v")))
    (row,) = outputs(GroupAggregateSpec(KEY, aggregates), batch(values))
    assert (row.m, row.t) == (pytest.approx(float(BIG)), BIG)


@pytest.mark.parametrize("assigner", [TUMBLING, SESSIONS])
def test_sums_beyond_int64_are_an_error(assigner):
    with pytest.raises(TypeMismatchError, match="range of int64"):
        outputs(window(assigner, s=sum_("v")), batch(pa.array([BIG, 1])))
    with pytest.raises(TypeMismatchError, match="uint64 exceeds the range of int64"):
        outputs(window(assigner, s=sum_("v")), batch(pa.array([BIG + 1], pa.uint64())))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("assigner", [TUMBLING, SESSIONS])
@pytest.mark.parametrize(
    "values",
    [
        pa.array(["b", "a", None, "b"]).dictionary_encode(),
        pa.array([2.0, 1.0, None, 2.0], pa.float16()),
    ],
    ids=["dictionary", "half floats"],
)
def test_extremes_of_columns_without_a_rank(values, assigner, ties):
    rows = outputs(WindowSpec(KEY, assigner, ExtremeWindow("v", "max", ties)), batch(values))
    greatest = values[0].as_py()
    assert [row.v for row in rows] == [greatest, greatest] if ties else [greatest]


def test_half_floats_everywhere():
    values = pa.array(np.array([2, 1, np.nan], dtype=np.float16))
    aggregates = {"low": min_("v"), "high": max_("v"), "one": first("v"), "total": sum_("v")}
    (row,) = outputs(window(SESSIONS, **aggregates), batch(values))
    assert (row.low, row.one) == (1.0, 2.0)
    assert row.high != row.high
    assert row.total != row.total


def test_the_first_of_equals_where_sessions_merge():
    """0 comes last and joins both; 20 came first.

    order of arrival   20   0   10
    """
    spec = WindowSpec(KEY, SESSIONS, ExtremeWindow("v", "min", False))
    data = batch(pa.array([7, 7, 7]), [20, 0, 10], at=pa.array([20, 0, 10]))
    for operator in (spec, RowWindowOperator(spec)):
        (row,) = outputs(operator, data)
        assert row.at == 20


@pytest.mark.parametrize("timestamp", [MAX_TIMESTAMP, MIN_TIMESTAMP + 1])
@pytest.mark.parametrize("assigner", [TUMBLING, SlidingEventTimeWindows.of(50, 20)])
def test_windows_that_end_after_all_time_are_an_error(assigner, timestamp):
    with pytest.raises(TypeMismatchError, match=f"record at {timestamp} ms"):
        outputs(window(assigner, n=sum_("v")), batch(pa.array([1]), [timestamp]))


def test_a_column_that_is_there_twice():
    arrays = [pa.array([1]), pa.array([2]), pa.array([3])]
    data = pa.RecordBatch.from_arrays(arrays, names=["k", "v", "v"])
    with pytest.raises(TypeMismatchError, match="several columns 'v'"):
        outputs(window(TUMBLING, s=sum_("v")), ColumnBatch(data, np.array([1])))

"""`with_event_time`: timestamps from a column, watermarks untouched."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from strom import Row, StreamExecutionEnvironment, TumblingEventTimeWindows, count
from strom.api.specs.tables import EventTimeSpec
from strom.core.batch import ColumnBatch
from strom.core.elements import Watermark
from strom.core.errors import ConfigurationError, TypeMismatchError
from strom.testing.operator_harness import OperatorHarness


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([3, 5], pa.int64()),
        ([3, 5], pa.int32()),
        ([3000, 5999], pa.timestamp("us")),
        ([3, 5], pa.timestamp("ms")),
    ],
)
def test_types_of_times(values: Any, kind: Any) -> None:
    harness = OperatorHarness(EventTimeSpec("t"))
    harness.push(ColumnBatch(pa.record_batch({"t": pa.array(values, kind)})))
    assert [stamp for _, stamp in harness.stamped_outputs()] == [3, 5]


def test_rows_and_watermarks_pass() -> None:
    harness = OperatorHarness(EventTimeSpec("t"))
    harness.watermark(100)
    harness.push([Row(t=7, v=1)], timestamps=[90])
    harness.status(False)
    assert harness.stamped_outputs() == [((7, 1), 7)]
    assert harness.controls()[0] == Watermark(100)
    harness.push([Row(t=dt.datetime(1970, 1, 1, 0, 0, 1), v=1)])
    assert harness.stamped_outputs()[-1][1] == 1000


def test_refusals() -> None:
    harness = OperatorHarness(EventTimeSpec("t"))
    for data in ({"u": [1]}, {"t": pa.array([None], pa.int64())}, {"t": ["x"]}):
        with pytest.raises(TypeMismatchError):
            harness.push(ColumnBatch(pa.record_batch(data)))
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([])
    with pytest.raises(ConfigurationError):
        stream.with_event_time("")


def test_windows_go_by_the_new_time() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = env.from_collection([{"k": 1, "t": 5}, {"k": 1, "t": 15}, {"k": 1, "t": 12}])
    windows = rows.with_event_time("t").key_by("k").window(TumblingEventTimeWindows.of(10))
    found = windows.aggregate(n=count()).execute_and_collect(limit=2)
    assert [tuple(row) for row in found] == [(1, 0, 10, 1), (1, 10, 20, 2)]

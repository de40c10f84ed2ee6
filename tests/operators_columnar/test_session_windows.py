"""Columnar sessions by example: timelines, key types, bounded memory, errors."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from strom.api.aggregates import count, max_, sum_
from strom.api.functions.user_functions import OutputTag
from strom.api.specs.windows import BuiltinWindow, ExtremeWindow, ReduceWindow, WindowSpec
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.api.windows.triggers import CountTrigger
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from strom.core.errors import GraphError, TypeMismatchError
from strom.core.keys import ColumnKey
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.window_choice import make_window_operator
from strom.testing.operator_harness import OperatorHarness

GAP = 5
KEY = ColumnKey(("k",))
LATE = OutputTag("late")


def spec_of(lateness: int = 0, aggregates: Any = ()) -> WindowSpec:
    return window_of(BuiltinWindow(tuple(aggregates)), lateness)


def window_of(function: Any, lateness: int = 0) -> WindowSpec:
    return WindowSpec(
        key=KEY,
        assigner=EventTimeSessionWindows.with_gap(GAP),
        function=function,
        allowed_lateness_ms=lateness,
        late_tag=LATE,
    )


def simple(*rows: tuple[Any, int, int], kind: Any = None) -> ColumnBatch:
    """(key, value, timestamp) each."""
    keys, values, stamps = zip(*rows, strict=True)
    data = pa.record_batch({"k": pa.array(keys, type=kind), "v": pa.array(values)})
    return ColumnBatch(data, np.array(stamps, dtype=np.int64))


COUNT = (("n", count()), ("s", sum_("v")))


def test_sessions_grow_meet_and_fire_before_the_watermark() -> None:
    """
    gap 5   arrival  time   sessions of key 1
            first    10     [10     15)
            second   20     [10     15)    [20     25)
            third    15     [10                    25)      touches both
            fourth   26     [10                    25) [26     31)
    """
    harness = OperatorHarness(make_window_operator(spec_of(aggregates=COUNT)))
    harness.push(simple((1, 1, 10), (1, 10, 20)))
    harness.push(simple((1, 100, 15), (1, 1000, 26)))
    harness.watermark(23)
    assert harness.outputs() == []
    harness.watermark(24)
    assert harness.take_outputs() == [(1, 10, 25, 3, 111)]
    harness.watermark(30)
    assert harness.stamped_outputs() == [((1, 26, 31, 1, 1000), 30)]


def test_a_late_but_allowed_record_fires_its_session_again() -> None:
    """
    gap 5, lateness 20; watermark 24 fires [10, 15)
    12 at 24: in the session, which fires again; 13 in the same batch: once more for both
    25 at 24: opens [25, 30); 20 then joins [20, 30); 15 joins all, nothing to fire until 29
    """
    harness = OperatorHarness(make_window_operator(spec_of(20, aggregates=COUNT)))
    harness.push(simple((1, 1, 10)))
    harness.watermark(24)
    assert harness.take_outputs() == [(1, 10, 15, 1, 1)]
    harness.push(simple((1, 2, 12), (1, 4, 13)))
    assert harness.take_outputs() == [(1, 10, 18, 3, 7)]
    harness.push(simple((1, 8, 25)))
    harness.push(simple((1, 16, 20)))
    harness.push(simple((1, 32, 15)))
    assert harness.outputs() == []
    harness.watermark(29)
    assert harness.take_outputs() == [(1, 10, 30, 6, 63)]
    harness.watermark(49)
    harness.push(simple((1, 1, 24), (1, 1, 25)))
    assert [tuple(row) for row in harness.side_outputs("late")] == [(1, 1), (1, 1)]


def test_dropped_late_records_are_counted() -> None:
    spec = WindowSpec(KEY, EventTimeSessionWindows.with_gap(GAP), BuiltinWindow(COUNT))
    harness = OperatorHarness(make_window_operator(spec))
    harness.watermark(30)
    harness.push(simple((1, 1, 3), (1, 1, 31)))
    assert harness.metrics.counts == {"numLateRecordsDropped": 1}


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.string_view(), ["a", None, "b"]),
        (pa.large_binary(), [b"a", None, b""]),
        (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "a"]),
        (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("2.00"), None]),
        (pa.uint64(), [2**64 - 1, 0, None]),
        (pa.float32(), [1.5, float("inf"), None]),
        (pa.timestamp("us"), [dt.datetime(2026, 1, 1), None, dt.datetime(1970, 1, 1)]),
        (pa.list_(pa.int64()), [[1, 2], [], None]),
    ],
    ids=str,
)
def test_keys_of_every_type_come_out_as_they_went_in(kind: pa.DataType, keys: list[Any]) -> None:
    spec = spec_of(aggregates=COUNT)
    harness = OperatorHarness(make_window_operator(spec))
    rows = [(key, 2**i, 10 * i) for i, key in enumerate(keys)]
    harness.push(simple(*rows, kind=kind))
    restored = OperatorHarness(make_window_operator(spec), restored=harness.snapshot())
    for each in (harness, restored):
        each.push(simple(*rows, kind=kind))
        each.finish()
        batches = [batch.data for batch in each.batches()]
        assert {batch.schema.field("k").type for batch in batches} == {kind}
        found = [row for batch in batches for row in batch.to_pylist()]
        assert [row["k"] for row in found] == keys
        assert [row["s"] for row in found] == [2 * 2**i for i in range(len(keys))]


def test_memory_is_bounded_by_open_sessions_though_keys_come_and_go() -> None:
    """Each key comes once: 200,000 keys and as many texts, 2,000 sessions open at any time."""
    spec = spec_of(aggregates=(*COUNT, ("word", max_("w"))))
    harness = OperatorHarness(make_window_operator(spec))
    for start in range(0, 200_000, 1000):
        keys = np.arange(start, start + 1000)
        words = pa.array([f"w{key}" for key in keys.tolist()])
        data = pa.record_batch({"k": pa.array(keys), "v": pa.array(keys), "w": words})
        harness.push(ColumnBatch(data, keys // 100))
        harness.watermark(int(keys[-1]) // 100 - 10)
        store = cast(Any, harness.operator).windower._store
        assert len(store) <= 2600
        assert store._table.owners <= 10_000
        assert len(store._table) <= 4000
        assert all(len(held) <= 10_000 for held in store._table.stores.values())
    assert harness.snapshot().keyed[0].data.num_rows <= 2600
    harness.finish()
    rows = [row for batch in harness.batches() for row in batch.data.to_pylist()]
    assert sorted(row["k"] for row in rows) == list(range(200_000))
    assert all(row["word"] == f"w{row['k']}" and row["n"] == 1 for row in rows)
    assert not [table for table in harness.snapshot().keyed if table.name == "sessions"]


def test_large_firings_are_chunked() -> None:
    config = JobConfig(batch_size=2)
    harness = OperatorHarness(make_window_operator(spec_of(aggregates=COUNT)), config=config)
    harness.push(simple(*[(k, 1, 1) for k in range(20)]))
    harness.finish()
    assert [len(b) for b in harness.batches()] == [8, 8, 4]


def test_what_needs_the_row_path() -> None:
    session = EventTimeSessionWindows.with_gap(GAP)
    builtin = BuiltinWindow(COUNT)
    for spec in (
        WindowSpec(KEY, session, ReduceWindow(max)),
        WindowSpec(KEY, session, builtin, CountTrigger.of(2)),
    ):
        assert isinstance(make_window_operator(spec), RowWindowOperator)


def test_errors_say_what_is_wrong() -> None:
    def fresh(*aggregates: Any) -> OperatorHarness:
        return OperatorHarness(make_window_operator(spec_of(aggregates=aggregates)))

    with pytest.raises(TypeMismatchError, match="without timestamp"):
        fresh(*COUNT).push(simple((1, 1, 1)).with_timestamps(None))
    with pytest.raises(TypeMismatchError, match="without timestamp"):
        fresh(*COUNT).push(simple((1, 1, MIN_TIMESTAMP)))
    with pytest.raises(TypeMismatchError, match="after the last timestamp"):
        fresh(*COUNT).push(simple((1, 1, MAX_TIMESTAMP - 2)))
    with pytest.raises(GraphError, match=r"several columns named \['k'\]"):
        fresh(("k", count())).push(simple((1, 1, 1)))
    harness = fresh(*COUNT)
    harness.push(simple((1, 2**62, 1)))
    with pytest.raises(TypeMismatchError, match="int64"):
        harness.push(simple((1, 2**62, 1)))
    extreme = OperatorHarness(make_window_operator(window_of(ExtremeWindow("no", "max", False))))
    with pytest.raises(TypeMismatchError, match="no column 'no'"):
        extreme.push(simple((1, 1, 1)))

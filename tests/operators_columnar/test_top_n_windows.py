"""Window top-n: the kernel against its twin, the operator against a sort of each window's records,
and the row path for windows that have no slices."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import reference_topn
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import (
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
)
from strom.api.specs.columns import OrderColumn
from strom.api.specs.windows import TopNWindow, WindowSpec
from strom.core.batch import ColumnBatch
from strom.core.elements import MAX_TIMESTAMP
from strom.core.errors import ConfigurationError, GraphError, TypeMismatchError
from strom.core.keys import ColumnKey
from strom.operators.aggregates.best_rows import best_rows
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.window_choice import make_window_operator
from strom.testing.operator_harness import OperatorHarness

SCHEMA = pa.schema(
    [("k", pa.string_view()), ("a", pa.float64()), ("b", pa.int64()), ("s", pa.string_view())]
)
ORDERS = st.sampled_from(
    [
        (OrderColumn("a"),),
        (OrderColumn("a", True),),
        (OrderColumn("b", True),),
        (OrderColumn("s", True),),
        (OrderColumn("a", True), OrderColumn("b")),
        (OrderColumn("s"), OrderColumn("a"), OrderColumn("b", True)),
    ]
)
ROWS = st.tuples(
    st.sampled_from("xy"),
    st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("-inf")]),
    st.none() | st.sampled_from([0, 1, 2**63 - 2, -(2**63) + 1]),
    st.none() | st.sampled_from(["", "p", "a text beyond twelve bytes"]),
    st.integers(0, 30),
)


@settings(max_examples=examples(80), deadline=None)
@given(st.data(), st.sampled_from([1, 2, 3, 40]), st.integers(1, 3))
def test_the_kernel_equals_its_twin(data: Any, n: int, width: int) -> None:
    size = data.draw(st.integers(0, 60))
    slots = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    row = st.tuples(*[st.integers(-2, 2)] * width)
    words = data.draw(st.lists(row, min_size=size, max_size=size))
    flat = np.array(words, dtype=np.int64).reshape(-1)
    rows, places = best_rows(np.array(slots, dtype=np.int64), 5, flat, width, n)
    found = list(zip(rows.tolist(), places.tolist(), strict=True))
    assert found == reference_topn.first_rows(slots, words, n)


def batch(rows: list[Any]) -> ColumnBatch:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=False)]
    data = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return ColumnBatch(data, np.array(columns[4], dtype=np.int64))


def sort_key(order: Any, row: Any) -> Any:
    parts: list[Any] = []
    for column in order:
        value = row[SCHEMA.names.index(column.name)]
        parts.append(value is None)
        if isinstance(value, str):
            text = [ord(c) for c in value]
            parts.append([-c for c in text] + [1] if column.descending else [*text, -1])
        elif value is not None:
            nan = value != value
            number = (nan, 0 if nan else value)
            parts.append((-number[0], -number[1]) if column.descending else number)
    return parts


def expected(order: Any, n: int, assigner: Any, rows: list[Any]) -> list[str]:
    windows: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        for window in assigner.windows_at(row[4]):
            windows[row[0], window].append(row)
    found = []
    for (_, window), held in windows.items():
        best = sorted(held, key=lambda row: sort_key(order, row))[:n]
        for place, row in enumerate(best, 1):
            found.append(repr((*row[:4], window.start, window.end, place)))
    return sorted(found)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(st.lists(ROWS, min_size=1, max_size=12), min_size=1, max_size=4),
    ORDERS,
    st.sampled_from([1, 2, 40]),
    st.sampled_from([TumblingEventTimeWindows(10), SlidingEventTimeWindows(10, 4)]),
    st.integers(0, 4),
    st.booleans(),
)
def test_top_n_equals_a_sort(
    batches: Any, order: Any, n: int, assigner: Any, restart: int, thin: bool
) -> None:
    """`thin`: buffers are thinned out with every batch."""
    spec = WindowSpec(ColumnKey(("k",)), assigner, TopNWindow(n, order, "place"))
    harness = OperatorHarness(make_window_operator(spec))
    with pytest.MonkeyPatch.context() as patch:
        if thin:
            patch.setattr("strom.operators.windows.compacting_buffer.FIRST_COMPACTION", 1)
        for number, rows in enumerate(batches):
            if number == restart:
                harness = OperatorHarness(make_window_operator(spec), restored=harness.snapshot())
            harness.push(batch(rows))
        harness.watermark(MAX_TIMESTAMP)
    found = sorted(repr(tuple(row)) for row in harness.outputs())
    assert found == expected(order, n, assigner, [row for rows in batches for row in rows])


def test_what_cannot_win_is_dropped_on_arrival() -> None:
    spec = WindowSpec(
        ColumnKey(("k",)), TumblingEventTimeWindows(10), TopNWindow(3, (OrderColumn("b", True),))
    )
    harness = OperatorHarness(make_window_operator(spec))
    for start in range(0, 60_000, 6000):
        rows = [("xy"[i % 2], None, -((start + i) // 2), None, 1) for i in range(6000)]
        harness.push(batch(rows))
    held = [len(t.data) for t in harness.snapshot().keyed if t.name == "records"]
    assert held == [6]
    harness.watermark(MAX_TIMESTAMP)
    assert [row.b for row in harness.outputs()] == [0, -1, -2, 0, -1, -2]


@pytest.mark.parametrize("kind", ["sessions", "counts"])
def test_windows_without_slices(kind: str) -> None:
    """
    ts         1  3       12 13         gap 5
    sessions   [1    8)   [12    18)
    """
    sessions = kind == "sessions"
    assigner: Any = EventTimeSessionWindows.with_gap(5) if sessions else GlobalWindows()
    trigger = None if sessions else CountTrigger(2)
    function = TopNWindow(1, (OrderColumn("b", True),), "place")
    spec = WindowSpec(ColumnKey(("k",)), assigner, function, trigger)
    harness = OperatorHarness(RowWindowOperator(spec))
    stamped = [(1, 1), (7, 3), (4, 12), (6, 13)]
    harness.push(batch([("x", None, b, None, ts) for b, ts in stamped]))
    harness.watermark(MAX_TIMESTAMP)
    found = [(row.b, row.window_start, row.window_end, row.place) for row in harness.outputs()]
    if sessions:
        assert found == [(7, 1, 8, 1), (6, 12, 18, 1)]
    else:
        assert found == [(7, None, None, 1), (7, None, None, 1)]


def test_the_method_and_its_errors() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = [{"k": i % 2, "v": i, "ts": i} for i in range(6)]
    windows = (
        env.from_collection(rows)
        .with_event_time("ts")
        .key_by("k")
        .window(TumblingEventTimeWindows.of(10))
    )
    best = windows.top_n(2, ("v", "desc"), rank="place")
    found = sorted((r.k, r.v, r.window_end, r.place) for r in best.execute_and_collect())
    assert found == [(0, 2, 10, 2), (0, 4, 10, 1), (1, 3, 10, 2), (1, 5, 10, 1)]
    for bad in ((0, "v"), (True, "v"), (2, ""), (2, []), (2, "v", ""), (2, "v", "window_end")):
        with pytest.raises(ConfigurationError, match="top_n"):
            windows.top_n(*bad)


def test_errors_of_columns() -> None:
    def push(order: str, rank: str) -> None:
        function = TopNWindow(1, (OrderColumn(order),), rank)
        spec = WindowSpec(ColumnKey(("k",)), TumblingEventTimeWindows(10), function)
        OperatorHarness(make_window_operator(spec)).push(batch([("x", 1.0, 1, "", 1)]))

    with pytest.raises(TypeMismatchError, match=r"no column.*'nothing'"):
        push("nothing", "place")
    with pytest.raises(GraphError, match="several columns named"):
        push("a", "b")

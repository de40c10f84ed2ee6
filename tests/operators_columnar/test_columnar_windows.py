"""Columnar windows against a record-by-record model of Flink's semantics, over random streams:
random keys, times, nulls, batch cuts, watermarks, lateness and rescales (p = 2 -> p = 3)."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from amounts import examples
from columns_kit import AGGREGATES as KINDS
from columns_kit import FIELDS, VALUES, stamped
from groups_kit import subtask_for
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_folds import to_function
from strom.api.aggregates import count, max_, min_, sum_
from strom.api.functions.user_functions import AggregateFunction, OutputTag
from strom.api.specs.windows import BuiltinWindow, ExtremeWindow, ReduceWindow, WindowSpec
from strom.api.windows.time_windows import (
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from strom.api.windows.triggers import ProcessingTimeTrigger
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.config import JobConfig
from strom.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from strom.core.errors import GraphError, TypeMismatchError
from strom.core.keys import ColumnKey, ConstantKey, ExpressionKey, FunctionKey
from strom.operators.base import run_to_end
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.window_choice import make_window_operator
from strom.state.key_groups import key_group

AGGREGATES = (*KINDS, ("twice", sum_(pl.col("v") * 2)))
SCHEMA = pa.schema([("k", pa.string()), *FIELDS])
LATE = OutputTag("late")
ASSIGNERS = st.sampled_from(
    [
        TumblingEventTimeWindows(10),
        TumblingEventTimeWindows(10, -3),
        SlidingEventTimeWindows(10, 5),
        SlidingEventTimeWindows(10, 4, 1),
        SlidingEventTimeWindows(10, 3),
        SlidingEventTimeWindows(4, 7, 2),
    ]
)


ROWS = st.tuples(st.sampled_from(["a", "b", "c", "d"]), *VALUES)
RECORD = st.tuples(ROWS, st.integers(-30, 40))
STEP = st.lists(RECORD, max_size=8) | st.integers(-30, 45)
"""A batch, or a watermark."""


@dataclass
class Model:
    """Window contents record by record. Watermarks are kept per key, for subtasks that differ."""

    assigner: Any
    lateness: int
    watermarks: dict[str, int] = field(default_factory=lambda: defaultdict(lambda: MIN_TIMESTAMP))
    contents: dict[tuple[str, int], list[Any]] = field(default_factory=lambda: defaultdict(list))
    late: list[Any] = field(default_factory=list)

    def add(self, row: Any, timestamp: int) -> None:
        now = self.watermarks[row[0]]
        accepted = False
        for window in self.assigner.windows_at(timestamp):
            if window.max_timestamp() + self.lateness > now:
                self.contents[row[0], window.end].append(row)
                accepted = True
        if not accepted and timestamp + self.lateness <= now:
            self.late.append((row, timestamp))

    def aggregates(self) -> dict[tuple[str, int], str]:
        found = {}
        for at, rows in self.contents.items():
            results = []
            for _, aggregate in AGGREGATES:
                function: AggregateFunction = to_function(aggregate)
                accumulator = function.create_accumulator()
                for row in rows:
                    record = dict(zip(SCHEMA.names, row, strict=True))
                    accumulator = function.add(record, accumulator)
                results.append(function.get_result(accumulator))
            found[at] = repr(results)
        return found


def spec_of(assigner: Any, function: Any, lateness: int = 0, key: Any = None) -> WindowSpec:
    return WindowSpec(
        key=key or ColumnKey(("k",)),
        assigner=assigner,
        function=function,
        allowed_lateness_ms=lateness,
        late_tag=LATE,
    )


def subtask_of(key: str, parallelism: int, max_parallelism: int) -> int:
    return subtask_for(key_group(key, max_parallelism), parallelism, max_parallelism)


def drive(bench: Any, tasks: list[Any], model: Model, steps: list[Any], skew: int) -> None:
    """Feed batches by key and watermarks (subtask i is i * skew behind) to tasks and model."""
    size = len(tasks)
    keys = "abcd"
    for step in steps:
        for index, task in enumerate(tasks):
            mine = [k for k in keys if subtask_of(k, size, bench.max_parallelism) == index]
            if isinstance(step, int):
                now = step if step in (MIN_TIMESTAMP, MAX_TIMESTAMP) else step - index * skew
                if now >= getattr(task, "watermark", MIN_TIMESTAMP):
                    task.watermark = now
                    run_to_end(task.operator.process_watermark(now))
                    for key in mine:
                        model.watermarks[key] = max(model.watermarks[key], now)
                continue
            records = [r for r in step if r[0][0] in mine]
            if records:
                run_to_end(task.operator.process(stamped(SCHEMA, records)))
                for row, timestamp in records:
                    model.add(row, timestamp)


def final_results(tasks: list[Any], names: list[str]) -> dict[tuple[str, int], str]:
    """The last result per (key, window)."""
    found = {}
    for task in tasks:
        for batch in task.out.batches:
            for row, ts in zip(batch.rows(), batch.timestamps.tolist(), strict=True):
                assert ts == row.window_end - 1
                found[row.k, row.window_end] = repr([row[name] for name in names])
    return found


def late_records(tasks: list[Any]) -> list[str]:
    return sorted(
        repr((tuple(row), ts))
        for task in tasks
        for batch in task.out.side.get("late", [])
        for row, ts in zip(batch.rows(), batch.timestamps.tolist(), strict=True)
    )


@settings(max_examples=examples(40), deadline=None)
@given(
    ASSIGNERS,
    st.sampled_from([0, 0, 5, 12]),
    st.lists(STEP, max_size=6),
    st.lists(STEP, max_size=6),
    st.sampled_from([0, 0, 7]),
)
def test_aggregates_equal_the_model_across_a_rescale(
    bench: Any, assigner: Any, lateness: int, before: Any, after: Any, skew: int
) -> None:
    spec = spec_of(assigner, BuiltinWindow(AGGREGATES), lateness)
    model = Model(assigner, lateness)
    old = [bench.task(make_window_operator(spec), i, 2) for i in range(2)]
    drive(bench, old, model, before, skew)
    new = bench.rescale(spec_operator(spec), [task.snapshot() for task in old], 3)
    drive(bench, new, model, [*after, MAX_TIMESTAMP], 0)
    tasks = [*old, *new]
    assert final_results(tasks, [name for name, _ in AGGREGATES]) == model.aggregates()
    assert late_records(tasks) == sorted(repr((tuple(r), ts)) for r, ts in model.late)
    if lateness == 0:
        fired = [(r.k, r.window_end) for task in tasks for r in task.out.rows()]
        assert len(fired) == len(set(fired)), "a window fired twice"
    for task in new:
        assert all(t.name != "slices" for t in task.snapshot()), "state left behind"


def spec_operator(spec: WindowSpec) -> Any:
    """What `rescale` makes one operator per subtask from."""
    return lambda: make_window_operator(spec)


@settings(max_examples=examples(40), deadline=None)
@given(
    ASSIGNERS,
    st.sampled_from([0, 8]),
    st.lists(STEP, max_size=6),
    st.lists(STEP, max_size=6),
    st.sampled_from(["v", "f", "s"]),
    st.sampled_from(["min", "max"]),
    st.booleans(),
)
def test_extremes_equal_the_model_across_a_rescale(
    bench: Any,
    assigner: Any,
    lateness: int,
    before: Any,
    after: Any,
    name: str,
    kind: Any,
    ties: bool,
) -> None:
    spec = spec_of(assigner, ExtremeWindow(name, kind, ties), lateness)
    model = Model(assigner, lateness)
    old = [bench.task(make_window_operator(spec), i, 2) for i in range(2)]
    drive(bench, old, model, before, 0)
    new = bench.rescale(spec_operator(spec), [task.snapshot() for task in old], 3)
    drive(bench, new, model, [*after, MAX_TIMESTAMP], 0)
    at = SCHEMA.get_field_index(name)
    want = {}
    for where, rows in model.contents.items():
        function = to_function((min_ if kind == "min" else max_)(name))
        best = function.create_accumulator()
        for row in rows:
            best = function.add(dict(zip(SCHEMA.names, row, strict=True)), best)
        held = [r for r in rows if best[0] is not None and repr(r[at]) == repr(best[0])]
        if held:
            want[where] = sorted(map(repr, held if ties else held[:1]))
    assert last_firing([*old, *new]) == want


def last_firing(tasks: list[Any]) -> dict[tuple[str, int], list[str]]:
    """Per (key, window), the rows of the last batch that holds some."""
    found: dict[tuple[str, int], list[str]] = {}
    for task in tasks:
        for batch in task.out.batches:
            rows: dict[tuple[str, int], list[str]] = defaultdict(list)
            for row in batch.rows():
                assert row.window_start < row.window_end
                rows[row.k, row.window_end].append(repr(tuple(row[: len(SCHEMA)])))
            found.update({at: sorted(held) for at, held in rows.items()})
    return found


def simple(*rows: tuple[int, int, int]) -> ColumnBatch:
    """(key, value, timestamp) each."""
    keys, values, stamps = zip(*rows, strict=True)
    data = pa.record_batch({"k": pa.array(keys), "v": pa.array(values)})
    return ColumnBatch(data, np.array(stamps, dtype=np.int64))


COUNT = BuiltinWindow((("n", count()), ("s", sum_("v"))))


def test_windows_fire_in_order_before_the_watermark(bench: Any) -> None:
    """
    ts      1  4  6     11
    size 10, slide 5
    windows [-5     5)
                [0        10)
                      [5       15)
    """
    task = bench.task(make_window_operator(spec_of(SlidingEventTimeWindows(10, 5), COUNT)))
    run_to_end(task.operator.process(simple((1, 10, 1), (1, 20, 4), (2, 30, 6), (1, 40, 11))))
    run_to_end(task.operator.process_watermark(8))
    assert task.out.dicts() == [{"k": 1, "window_start": -5, "window_end": 5, "n": 2, "s": 30}]
    assert task.out.events[-1] == 8
    run_to_end(task.operator.process_watermark(20))
    ends: list[Any] = []
    for event in task.out.events:
        known = [event] if isinstance(event, int) else [f"-{r.window_end}" for r in event.rows()]
        ends += known
    order = [end for end, _ in groupby(ends)]
    assert order == ["-5", 8, "-10", "-15", "-20", 20]
    assert [(r.k, r.window_end, r.n) for r in task.out.rows()] == [
        (1, 5, 2),
        (1, 10, 2),
        (2, 10, 1),
        (2, 15, 1),
        (1, 15, 1),
        (1, 20, 1),
    ]


def test_a_late_but_allowed_record_fires_again_once_per_batch(bench: Any) -> None:
    spec = spec_of(TumblingEventTimeWindows(10), COUNT, lateness=5)
    task = bench.task(make_window_operator(spec))
    run_to_end(task.operator.process(simple((1, 1, 3), (2, 1, 4))))
    run_to_end(task.operator.process_watermark(12))
    run_to_end(task.operator.process(simple((1, 5, 3), (1, 6, 2))))
    assert [(r.k, r.n, r.s) for r in task.out.rows()] == [(1, 1, 1), (2, 1, 1), (1, 3, 12)]
    run_to_end(task.operator.process_watermark(14))
    assert not [t for t in task.snapshot() if t.name == "slices"], "expired state is dropped"
    run_to_end(task.operator.process(simple((1, 7, 3))))
    assert [tuple(r) for r in task.out.side["late"][0].rows()] == [(1, 7)]


def test_dropped_late_records_are_counted(bench: Any) -> None:
    spec = WindowSpec(key=ColumnKey(("k",)), assigner=TumblingEventTimeWindows(10), function=COUNT)
    task = bench.task(make_window_operator(spec))
    run_to_end(task.operator.process_watermark(30))
    run_to_end(task.operator.process(simple((1, 1, 3), (1, 1, 31))))
    assert task.out.counts == {"numLateRecordsDropped": 1}


def test_constant_and_computed_keys(bench: Any) -> None:
    everything = spec_of(TumblingEventTimeWindows(10), COUNT, key=ConstantKey())
    task = bench.task(make_window_operator(everything))
    run_to_end(task.operator.process(simple((1, 10, 1), (2, 20, 4))))
    run_to_end(task.operator.process_watermark(MAX_TIMESTAMP))
    assert task.out.dicts() == [{"window_start": 0, "window_end": 10, "n": 2, "s": 30}]
    parity = ExpressionKey(((pl.col("k") % 2).alias("odd"),))
    task = bench.task(
        make_window_operator(spec_of(TumblingEventTimeWindows(10), COUNT, key=parity))
    )
    run_to_end(task.operator.process(simple((1, 10, 1), (3, 20, 4), (2, 5, 5))))
    run_to_end(task.operator.process_watermark(MAX_TIMESTAMP))
    assert [(r.odd, r.s) for r in task.out.rows()] == [(1, 30), (0, 5)]


def test_object_records_become_columns(bench: Any) -> None:
    task = bench.task(make_window_operator(spec_of(TumblingEventTimeWindows(10), COUNT)))
    values = [{"k": 1, "v": 2}, {"k": 1, "v": 3}]
    run_to_end(task.operator.process(ObjectBatch(values, np.array([1, 2], dtype=np.int64))))
    run_to_end(task.operator.process_watermark(MAX_TIMESTAMP))
    assert [(r.k, r.s) for r in task.out.rows()] == [(1, 5)]


def test_result_types(bench: Any) -> None:
    task = bench.task(
        make_window_operator(spec_of(TumblingEventTimeWindows(10), BuiltinWindow(AGGREGATES)))
    )
    run_to_end(
        task.operator.process(stamped(SCHEMA, [(("a", 1, 1.0, dt.date(1970, 1, 2), True, "x"), 1)]))
    )
    run_to_end(task.operator.process_watermark(MAX_TIMESTAMP))
    schema = task.out.batches[0].data.schema
    types = {name: str(schema.field(name).type) for name in schema.names}
    assert types["total"] == types["n"] == types["low"] == "int64"
    assert types["avg"] == types["fsum"] == "double"
    assert (types["day"], types["flag"], types["word"], types["k"]) == (
        "date32[day]",
        "bool",
        "string",
        "string",
    )


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(10), SlidingEventTimeWindows(10, 5)])
@pytest.mark.parametrize("kind", ["min", "max"])
def test_buffers_are_compacted(bench: Any, assigner: Any, kind: Any) -> None:
    """Steadily rising (or falling) values make every record a candidate for a while."""
    words = [f"{n:05d}" for n in range(15000)]
    aggregate = (min_ if kind == "min" else max_)("s")
    functions = (
        ExtremeWindow("v", kind, False),
        ExtremeWindow("s", kind, True),
        BuiltinWindow((("s", aggregate),)),
    )
    for function in functions:
        task = bench.task(make_window_operator(spec_of(assigner, function)))
        for start in range(0, 15000, 1000):
            values = range(start, start + 1000)
            values = values if kind == "max" else range(14999 - start, 13999 - start, -1)
            data = {"k": [v % 400 for v in values], "v": values, "s": [words[v] for v in values]}
            stamps = np.array([1 + 5 * (v % 2) for v in values], dtype=np.int64)
            run_to_end(task.operator.process(ColumnBatch(pa.record_batch(data), stamps)))
        held = sum(len(t.data) for t in task.snapshot() if t.kind == "buffer")
        assert held < 12000
        run_to_end(task.operator.process_watermark(MAX_TIMESTAMP))
        whole = [row for row in task.out.rows() if row.window_end == 10]
        extremes = range(14600, 15000) if kind == "max" else range(400)
        assert sorted(row.s for row in whole) == [words[v] for v in extremes]


def test_large_firings_are_chunked(bench: Any) -> None:
    spec = spec_of(TumblingEventTimeWindows(10), COUNT)
    task = bench.task(make_window_operator(spec), config=JobConfig(batch_size=2))
    run_to_end(task.operator.process(simple(*[(k, 1, 1) for k in range(20)])))
    run_to_end(task.operator.process_watermark(MAX_TIMESTAMP))
    assert [len(b) for b in task.out.batches] == [8, 8, 4]


def test_what_needs_the_row_path() -> None:
    tumbling = TumblingEventTimeWindows(10)
    by_function = spec_of(tumbling, COUNT, key=FunctionKey(str))
    assert not isinstance(make_window_operator(by_function), RowWindowOperator)
    assert isinstance(make_window_operator(spec_of(tumbling, ReduceWindow(max))), RowWindowOperator)
    assert isinstance(make_window_operator(spec_of(GlobalWindows(), COUNT)), RowWindowOperator)
    trigger = WindowSpec(
        key=ColumnKey(("k",)), assigner=tumbling, function=COUNT, trigger=ProcessingTimeTrigger()
    )
    assert isinstance(make_window_operator(trigger), RowWindowOperator)


def test_errors_say_what_is_wrong(bench: Any) -> None:
    spec = spec_of(TumblingEventTimeWindows(10), COUNT)
    task = bench.task(make_window_operator(spec))
    with pytest.raises(TypeMismatchError, match="without timestamp"):
        run_to_end(task.operator.process(simple((1, 1, 1)).with_timestamps(None)))
    words = BuiltinWindow((("s", sum_("k")),))
    task = bench.task(make_window_operator(spec_of(TumblingEventTimeWindows(10), words)))
    with pytest.raises(TypeMismatchError, match=r"sum\(k\).*string cannot be added"):
        run_to_end(task.operator.process(stamped(SCHEMA, [(("a", 1, 1.0, None, True, "x"), 1)])))
    twice = BuiltinWindow((("k", count()),))
    task = bench.task(make_window_operator(spec_of(TumblingEventTimeWindows(10), twice)))
    with pytest.raises(GraphError, match=r"'the operator'.*'k'"):
        run_to_end(task.operator.process(simple((1, 1, 1))))
    task = bench.task(make_window_operator(spec))
    run_to_end(task.operator.process(simple((1, 2**62, 1))))
    with pytest.raises(TypeMismatchError, match="int64"):
        run_to_end(task.operator.process(simple((1, 2**62, 1))))

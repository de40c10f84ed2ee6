"""Local combining against the same windows without it: two senders, real routing, several window
subtasks, and what may happen between two records: watermarks, barriers, idleness, restarts at
another parallelism. Both must give the same results and count the same late records."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.aggregates import count, first, max_, mean, min_, sum_
from strom.api.functions.user_functions import OutputTag
from strom.api.specs.windows import BuiltinWindow, ExtremeWindow, WindowSpec
from strom.api.windows.time_windows import (
    CumulateEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from strom.core.batch import ColumnBatch
from strom.core.config import ExchangeConfig, JobConfig
from strom.core.elements import MAX_TIMESTAMP, Watermark
from strom.core.keys import ColumnKey, ConstantKey, ExpressionKey
from strom.core.partials import PartialKey, layout_of
from strom.engine.exchange.partitioners import make_selector
from strom.engine.graph.model import KeyGroups
from strom.operators.base import run_to_end
from strom.operators.combining import worth as combining_worth
from strom.operators.registry import build_operator
from strom.operators.time.valve import WatermarkValve
from strom.plan.local_combining import LocalCombineSpec, combinable

SENDERS = 2
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("j", pa.int64()),
        ("v", pa.int32()),
        ("f", pa.float64()),
        ("d", pa.date32()),
        ("w", pa.string_view()),
    ]
)
AGGREGATES = BuiltinWindow(
    (
        ("rows", count()),
        ("n", count("v")),
        ("total", sum_("v")),
        ("low", min_("v")),
        ("high", max_("f")),
        ("sum_f", sum_("f")),
        ("avg", mean("v")),
        ("day", max_("d")),
        ("twice", sum_(pl.col("v") * 2)),
    )
)
FUNCTIONS = [
    AGGREGATES,
    BuiltinWindow((("n", count()),)),
    ExtremeWindow("v", "max", True),
    ExtremeWindow("f", "min", False),
    ExtremeWindow("k", "max", True),
]
KEYS = [
    ColumnKey(("k",)),
    ColumnKey(("k", "j")),
    ColumnKey(("w",)),
    ExpressionKey((pl.col("j") % 3,)),
    ConstantKey(),
]
ASSIGNERS = [
    TumblingEventTimeWindows(10),
    SlidingEventTimeWindows(10, 4, 1),
    SlidingEventTimeWindows(10, 5),
    CumulateEventTimeWindows(12, 4),
]
NOW = JobConfig(exchange=ExchangeConfig(buffer_timeout=dt.timedelta(0)))
"""After an idle time, records are not held at all."""


class Pipeline:
    """Senders, valves and window subtasks; what a sender emits arrives at once."""

    def __init__(self, bench: Any, spec: WindowSpec, combining: bool) -> None:
        self._bench, self._spec, self._combining = bench, spec, combining
        self._key = spec.key
        if combining and isinstance(spec.key, ExpressionKey):
            self._key = PartialKey(spec.key)
        self._active = [True] * SENDERS
        self.rows: list[Any] = []
        self.late = 0
        self._start([[]], 2)

    def _start(self, snapshots: list[Any], parallelism: int) -> None:
        locals_ = [LocalCombineSpec(self._spec)] * SENDERS if self._combining else []
        self._locals = [
            self._bench.task(one, i, SENDERS, config=NOW, restored=bool(snapshots[0]))
            for i, one in enumerate(locals_)
        ]
        self._windows = self._bench.rescale(
            lambda: build_operator(self._spec), snapshots, parallelism
        )
        self._valves = [WatermarkValve(SENDERS) for _ in self._windows]
        self._selectors = [
            make_selector(
                KeyGroups(self._key),
                parallelism,
                subtask=i,
                max_parallelism=self._bench.max_parallelism,
            )
            for i in range(SENDERS)
        ]

    def push(self, sender: int, batch: ColumnBatch) -> None:
        if not self._active[sender]:
            self.status(sender, True)
        self._send(sender, batch, lambda operator: operator.process(batch))

    def watermark(self, sender: int, time: int) -> None:
        if self._active[sender]:
            self._send(sender, time, lambda operator: operator.process_watermark(time))

    def status(self, sender: int, active: bool) -> None:
        self._active[sender] = active
        self._send(sender, active, lambda operator: operator.process_status(active))

    def barrier(self, sender: int) -> None:
        self._send(sender, None, lambda operator: operator.prepare_snapshot(1))

    def restart(self, parallelism: int) -> None:
        """A checkpoint, and on from it."""
        for sender in range(SENDERS):
            self.barrier(sender)
        snapshots = [window.snapshot() for window in self._windows]
        self._collect()
        self._active = [True] * SENDERS
        self._start(snapshots, parallelism)

    def finish(self) -> None:
        for sender in range(SENDERS):
            self.status(sender, True)
            self.watermark(sender, MAX_TIMESTAMP)
        self._collect()

    def _send(self, sender: int, element: Any, run: Any) -> None:
        events = [element]
        if self._combining:
            task = self._locals[sender]
            run_to_end(run(task.operator))
            events = list(task.out.events)
            task.out.events.clear()
        for event in events:
            self._deliver(sender, event)

    def _deliver(self, sender: int, event: Any) -> None:
        if isinstance(event, ColumnBatch):
            for target, part in self._selectors[sender].split(event):
                run_to_end(self._windows[target].operator.process(part))
            return
        for window, valve in zip(self._windows, self._valves, strict=True):
            if isinstance(event, bool):
                actions = valve.on_status(sender, event)
            else:
                actions = [] if event is None else valve.on_watermark(sender, event)
            for action in actions:
                if isinstance(action, Watermark):
                    run_to_end(window.operator.process_watermark(action.timestamp))

    def _collect(self) -> None:
        for window in self._windows:
            self.rows += [repr(row) for row in window.out.rows()]
            self.late += window.out.counts.get("numLateRecordsDropped", 0)


ROW = st.tuples(
    st.sampled_from(["a", "b", "c", "d", None]),
    st.integers(0, 4),
    st.none() | st.integers(-3, 3),
    st.none() | st.integers(-2, 2).map(lambda n: n / 4) | st.just(float("nan")),
    st.none() | st.integers(-2, 2).map(lambda n: dt.date(1970, 1, 1) + dt.timedelta(n)),
)
SENDER = st.integers(0, SENDERS - 1)
PUSH = st.tuples(
    st.just("push"),
    SENDER,
    st.lists(st.tuples(ROW, st.integers(-20, 40)), min_size=1, max_size=8),
)
WATERMARK = st.tuples(st.just("watermark"), SENDER, st.integers(-20, 45))
BARRIER = st.tuples(st.just("barrier"), SENDER)
IDLE = st.tuples(st.just("idle"), SENDER)
RESTART = st.tuples(st.just("restart"), st.integers(1, 3))


def batch_of(rows: list[Any]) -> ColumnBatch:
    columns = zip(*((*row, row[0]) for row, _ in rows), strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    stamps = np.array([time for _, time in rows], dtype=np.int64)
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), stamps)


def run(pipeline: Pipeline, steps: list[Any]) -> Pipeline:
    times = [-100] * SENDERS
    for step in steps:
        match step:
            case ("push", sender, rows):
                pipeline.push(sender, batch_of(rows))
            case ("watermark", sender, time):
                times[sender] = max(times[sender], time)
                pipeline.watermark(sender, times[sender])
            case ("barrier", sender):
                pipeline.barrier(sender)
            case ("idle", sender):
                pipeline.status(sender, False)
            case ("restart", parallelism):
                pipeline.restart(parallelism)
    pipeline.finish()
    return pipeline


def both(bench: Any, spec: WindowSpec, steps: list[Any]) -> tuple[Pipeline, Pipeline]:
    return run(Pipeline(bench, spec, True), steps), run(Pipeline(bench, spec, False), steps)


@settings(deadline=None, max_examples=examples(150))
@given(
    st.sampled_from(KEYS),
    st.sampled_from(ASSIGNERS),
    st.sampled_from(FUNCTIONS),
    st.lists(PUSH | PUSH | WATERMARK | BARRIER | RESTART, max_size=14),
)
def test_the_same_windows(
    bench: Any, key: Any, assigner: Any, function: Any, steps: list[Any]
) -> None:
    spec = WindowSpec(key, assigner, function)
    assert combinable(spec)
    combined, plain = both(bench, spec, steps)
    assert Counter(combined.rows) == Counter(plain.rows)
    assert combined.late == plain.late


@settings(deadline=None, max_examples=examples(100))
@given(
    st.sampled_from(ASSIGNERS),
    st.sampled_from(FUNCTIONS),
    st.lists(PUSH | PUSH | WATERMARK | WATERMARK | IDLE | RESTART, max_size=16),
)
def test_the_same_windows_with_idle_inputs(
    bench: Any, assigner: Any, function: Any, steps: list[Any]
) -> None:
    spec = WindowSpec(ColumnKey(("k",)), assigner, function)
    combined, plain = both(bench, spec, steps)
    assert Counter(combined.rows) == Counter(plain.rows)
    if isinstance(function, BuiltinWindow):
        assert combined.late == plain.late
    else:
        assert combined.late <= plain.late


def local(bench: Any, function: Any, assigner: Any = None, **settings: Any) -> Any:
    spec = WindowSpec(ColumnKey(("k",)), assigner or TumblingEventTimeWindows(10), function)
    return bench.task(LocalCombineSpec(spec), **settings)


def push(task: Any, *records: tuple[str, int, int]) -> None:
    """(key, value, time)"""
    rows = [((k, 0, v, None, None), time) for k, v, time in records]
    run_to_end(task.operator.process(batch_of(rows)))


def sent(task: Any) -> list[Any]:
    """What came out since the last look: watermarks, statuses, and partials as (key, time, rows) or
    records as (key, time)."""
    found: list[Any] = []
    for event in task.out.events:
        if not isinstance(event, ColumnBatch):
            found.append(event)
            continue
        keys, times = event.data.column(0).to_pylist(), event.timestamps.tolist()
        if layout_of(event.data.schema) is None:
            found += zip(keys, times, strict=True)
        else:
            found += zip(keys, times, event.data.column("__rows").to_pylist(), strict=True)
    task.out.events.clear()
    return found


COUNT = BuiltinWindow((("n", count()),))


def test_partials_leave_before_the_watermark_that_completes_a_window(bench: Any) -> None:
    """
    time      0         10        20
    slices    |---------|---------|
    records    a a b     a
    watermark        7 ^        ^ 12         7: nothing is complete; 12: the first slice
    """
    task = local(bench, COUNT)
    push(task, ("a", 1, 1), ("a", 1, 3), ("b", 1, 5), ("a", 1, 11))
    run_to_end(task.operator.process_watermark(7))
    assert sent(task) == [7]
    run_to_end(task.operator.process_watermark(12))
    assert sent(task) == [("a", 9, 2), ("b", 9, 1), 12]
    run_to_end(task.operator.process_watermark(MAX_TIMESTAMP))
    assert sent(task) == [("a", 19, 1), MAX_TIMESTAMP]


def test_a_slice_leaves_with_the_first_of_its_windows(bench: Any) -> None:
    """
    time      0    5    10   15
    windows   [0        10)
                   [5        15)
    records           x                  slice [5, 10) is part of both
    watermark              ^ 9           it leaves with the first; the second waits for it elsewhere
    """
    task = local(bench, COUNT, SlidingEventTimeWindows(10, 5))
    push(task, ("x", 1, 7))
    run_to_end(task.operator.process_watermark(8))
    assert sent(task) == [8]
    run_to_end(task.operator.process_watermark(9))
    assert sent(task) == [("x", 9, 1), 9]


def test_late_records_are_not_held(bench: Any) -> None:
    """
    time      0         10        20
    watermark            ^ 12
    records      x x          y           the two x come after the watermark: late here, and perhaps
                                          not yet for the window operator, which is told of both
    """
    task = local(bench, COUNT)
    run_to_end(task.operator.process_watermark(12))
    push(task, ("x", 1, 4), ("y", 1, 15), ("x", 1, 5))
    assert sent(task) == [12, ("x", 9, 2)]
    run_to_end(task.operator.finish())
    assert sent(task) == [("y", 19, 1)]


def test_late_records_are_counted_once_each(bench: Any) -> None:
    steps = [
        ("watermark", 0, 30),
        ("watermark", 1, 30),
        ("push", 0, [((k, 0, 1, None, None), 5) for k in "aabba"]),
        ("push", 1, [(("a", 0, 1, None, None), 35)]),
    ]
    for function in FUNCTIONS:
        spec = WindowSpec(ColumnKey(("k",)), TumblingEventTimeWindows(10), function)
        combined, plain = both(bench, spec, steps)
        assert combined.late == plain.late == 5
        assert combined.rows == plain.rows


def test_nothing_is_held_at_a_barrier(bench: Any) -> None:
    task = local(bench, COUNT)
    push(task, ("a", 1, 1))
    assert task.snapshot() == []
    assert sent(task) == [("a", 9, 1)]


def test_an_idle_input_holds_nothing_and_little_afterwards(bench: Any) -> None:
    """
    clock   0                 10 ms               buffer timeout: 10 ms
    input   a  idle  active b  .
    output     a            .  b                  others' watermarks may be beyond b's window soon
    """
    task = local(bench, COUNT)
    push(task, ("a", 1, 1))
    task.operator.process_status(False)
    assert sent(task) == [("a", 9, 1), False]
    task.operator.process_status(True)
    push(task, ("b", 1, 2))
    start = task.ctx.clock.now_ms()
    run_to_end(task.operator.on_processing_time(start + 9))
    assert sent(task) == [True]
    run_to_end(task.operator.on_processing_time(start + 10))
    assert sent(task) == [("b", 9, 1)]


def test_beaten_records_are_left_out(bench: Any) -> None:
    """
    time      0         10        20
    records   5 3 7 7 6  2
    sent      7 7        2     5 and 3 are beaten within the batch, 6 by what was sent before
    """
    task = local(bench, ExtremeWindow("v", "max", True))
    push(task, ("a", 5, 0), ("a", 3, 1), ("a", 7, 2), ("a", 7, 3))
    assert sent(task) == [("a", 2), ("a", 3)]
    push(task, ("a", 6, 4), ("a", 2, 12))
    assert sent(task) == [("a", 12)]
    run_to_end(task.operator.process_watermark(9))
    push(task, ("a", 1, 5))
    assert sent(task) == [9, ("a", 5)], "late here: the window operator counts it"


def test_types_without_flat_accumulators_go_by(bench: Any) -> None:
    task = local(bench, BuiltinWindow((("least", min_("k")),)))
    push(task, ("a", 1, 1), ("a", 1, 2))
    assert sent(task) == [("a", 1), ("a", 2)]


def test_a_key_called_as_an_accumulator_goes_by(bench: Any) -> None:
    spec = WindowSpec(ColumnKey(("__rows",)), TumblingEventTimeWindows(10), COUNT)
    task = bench.task(LocalCombineSpec(spec))
    run_to_end(
        task.operator.process(
            ColumnBatch(pa.record_batch({"__rows": ["a", "a"]}), np.array([1, 2]))
        )
    )
    assert sent(task) == [("a", 1), ("a", 2)]


def test_sums_of_floats_keep_their_order_where_there_is_one(bench: Any) -> None:
    function = BuiltinWindow((("total", sum_("f")),))
    for parallelism, partials in ((1, False), (2, True)):
        task = local(bench, function, parallelism=parallelism)
        run_to_end(task.operator.process(batch_of([(("a", 0, 1, 0.1, None), 1)])))
        run_to_end(task.operator.finish())
        (batch,) = task.out.batches
        assert (layout_of(batch.data.schema) is not None) is partials


def test_errors_are_the_window_operators(bench: Any) -> None:
    """Records without the columns that are asked for go by, to be rejected behind the exchange."""
    for function in (BuiltinWindow((("n", sum_("nope")),)), ExtremeWindow("nope", "max", True)):
        task = local(bench, function)
        push(task, ("a", 1, 1))
        assert sent(task) == [("a", 1)]


def test_no_more_pairs_are_held_than_allowed(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combining_worth, "MOST_HELD", 3)
    task = local(bench, COUNT)
    push(task, ("a", 1, 1), ("b", 1, 1), ("c", 1, 1))
    assert sent(task) == []
    push(task, ("d", 1, 1))
    assert sorted(sent(task)) == [(k, 9, 1) for k in "abcd"]


def test_a_layout_that_does_not_fit_is_refused(bench: Any) -> None:
    """Dates and times are both numbers in a partial; they are not the same."""
    spec = WindowSpec(ColumnKey(("k",)), TumblingEventTimeWindows(10), AGGREGATES)
    window = bench.task(spec)
    other = SCHEMA.set(4, pa.field("d", pa.timestamp("ms")))
    for schema in (SCHEMA, other):
        task = local(bench, AGGREGATES, parallelism=2)
        values = [["a"], [1], [1], [1.0], [None], ["a"]]
        arrays = [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)]
        data = pa.RecordBatch.from_arrays(arrays, schema=schema)
        run_to_end(task.operator.process(ColumnBatch(data, np.array([1]))))
        run_to_end(task.operator.finish())
        (partials,) = task.out.batches
        if schema is SCHEMA:
            run_to_end(window.operator.process(partials))
        else:
            with pytest.raises(Exception, match="declare a schema upstream"):
                run_to_end(window.operator.process(partials))


def test_what_is_not_combined() -> None:
    key, tumbling = ColumnKey(("k",)), TumblingEventTimeWindows(10)
    assert combinable(WindowSpec(key, tumbling, COUNT))
    assert not combinable(WindowSpec(key, SlidingEventTimeWindows(4, 7), COUNT))
    assert not combinable(WindowSpec(key, tumbling, COUNT, allowed_lateness_ms=1))
    assert not combinable(WindowSpec(key, tumbling, COUNT, late_tag=OutputTag("late")))
    assert not combinable(WindowSpec(key, tumbling, BuiltinWindow((("a", first("v")),))))

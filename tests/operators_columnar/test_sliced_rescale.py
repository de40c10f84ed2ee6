"""Subtasks that have come to different times are merged and split: each key's windows fire as if it
had been alone. Two subtasks, at two times, are restored as three; the row path, key by key, says
what must come out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from groups_kit import subtask_for
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.aggregates import count, sum_
from strom.api.specs.columns import OrderColumn
from strom.api.specs.windows import BuiltinWindow, TopNWindow, WindowSpec
from strom.api.windows.continuous_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
)
from strom.api.windows.time_windows import (
    CumulateEventTimeWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingProcessingTimeWindows,
)
from strom.core.batch import ColumnBatch
from strom.core.clock import VirtualClock
from strom.core.keys import ColumnKey
from strom.operators.base import run_to_end
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.window_choice import make_window_operator
from strom.state.key_groups import key_group
from strom.testing.operator_harness import OperatorHarness

KEYS = "abcdefgh"
AGGREGATES = BuiltinWindow((("n", count()), ("t", sum_("v"))))
BEST = TopNWindow(2, (OrderColumn("v", True),), "place")
SPECS = {
    "cumulating": (CumulateEventTimeWindows(12, 4), None, AGGREGATES),
    "top-n": (SlidingEventTimeWindows(10, 4), None, BEST),
    "ticks": (SlidingEventTimeWindows(10, 4), ContinuousEventTimeTrigger(3), AGGREGATES),
    "clock": (SlidingProcessingTimeWindows(10, 4), None, AGGREGATES),
    "clock, ticks": (
        TumblingProcessingTimeWindows(10),
        ContinuousProcessingTimeTrigger(3),
        AGGREGATES,
    ),
}
RECORDS = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-5, 5), st.integers(0, 20)))


def batch(records: list[Any]) -> ColumnBatch:
    keys, values, stamps = zip(*records, strict=True)
    data = pa.record_batch({"k": pa.array(keys), "v": pa.array(values, pa.int64())})
    return ColumnBatch(data, np.array(stamps, dtype=np.int64))


def index(bench: Any, key: str, parallelism: int) -> int:
    return subtask_for(key_group(key, bench.max_parallelism), parallelism, bench.max_parallelism)


def push(bench: Any, tasks: list[Any], records: list[Any]) -> None:
    for number, task in enumerate(tasks):
        mine = [r for r in records if index(bench, r[0], len(tasks)) == number]
        if mine:
            run_to_end(task.operator.process(batch(mine)))


def advance(task: Any, base: int, by: int, clock: bool) -> None:
    if not clock:
        run_to_end(task.operator.process_watermark(by))
        return
    for now in range(task.ctx.clock.now_ms(), base + by + 1):
        task.ctx.clock.advance_to(now)
        run_to_end(task.operator.on_processing_time(now))


def alone(spec: WindowSpec, before: list[Any], after: list[Any], times: Any, clock: bool) -> Any:
    """One key through the row path: records, the time of its old subtask, more records, the end."""
    base = VirtualClock().now_ms()
    harness = OperatorHarness(RowWindowOperator(spec), start_ms=base)
    for records, time in zip((before, after), times, strict=True):
        if records:
            harness.push(batch(records))
        if clock:
            harness.advance_processing_time(base + time)
        else:
            harness.watermark(time)
    return Counter(map(repr, map(tuple, harness.outputs())))


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=examples(20), deadline=None)
@given(RECORDS, RECORDS, st.integers(0, 20), st.integers(0, 20))
def test_each_key_fires_as_if_alone(
    bench: Any, name: str, before: Any, after: Any, first: int, second: int
) -> None:
    assigner, trigger, function = SPECS[name]
    clock = not assigner.is_event_time()
    spec = WindowSpec(ColumnKey(("k",)), assigner, function, trigger)
    old = [bench.task(make_window_operator(spec), i, 2) for i in range(2)]
    base = VirtualClock().now_ms()
    push(bench, old, before)
    for task, time in zip(old, (first, second), strict=True):
        advance(task, base, time, clock)
    new = bench.rescale(lambda: make_window_operator(spec), [t.snapshot() for t in old], 3)
    if clock:  # there is one clock: keys go on at the later time
        for task in new:
            task.ctx.clock.advance_to(base + max(first, second))
            run_to_end(task.operator.on_processing_time(task.ctx.clock.now_ms()))
    push(bench, new, after)
    for task in new:
        advance(task, base, 60, clock)
    found = Counter(repr(tuple(row)) for task in (*old, *new) for row in task.out.rows())
    expected: Counter[str] = Counter()
    for key in KEYS:
        mine = [[r for r in records if r[0] == key] for records in (before, after)]
        time = max(first, second) if clock else (first, second)[index(bench, key, 2)]
        expected += alone(spec, mine[0], mine[1], (time, 60), clock)
    assert found == expected
    for task in new:
        assert not [t.name for t in task.snapshot() if t.name != "progress"], "state left behind"

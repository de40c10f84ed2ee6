"""Windows with triggers of ours whose panes and ticks lie in RocksDB between two batches, against
the same in memory."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import CumulateEventTimeWindows
from strom.api.aggregates import collect, count, last, max_, mean, sum_
from strom.api.functions.user_functions import OutputTag
from strom.api.specs.windows import BuiltinWindow, WindowSpec
from strom.api.windows.continuous_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
)
from strom.api.windows.time_windows import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from strom.api.windows.triggers import CountTrigger, EventTimeTrigger, PurgingTrigger
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.keys import ColumnKey
from strom.core.state_config import StateConfig
from strom.operators.window_choice import make_window_operator
from strom.testing.backends import spilling
from strom.testing.operator_harness import OperatorHarness
from window_scripts import run, scripts

SCHEMA = pa.schema([("k", pa.string()), ("j", pa.int64()), ("v", pa.int32()), ("s", pa.string())])
FUNCTION = BuiltinWindow(
    (
        *(("n", count()), ("t", sum_("v")), ("l", last("v")), ("m", mean("v"))),
        *(("x", max_("s")), ("c", collect("v"))),
    )
)
WINDOWS = st.sampled_from(
    [
        TumblingEventTimeWindows(10, -3),
        SlidingEventTimeWindows(10, 4, 1),
        CumulateEventTimeWindows(9, 3, -2),
        TumblingProcessingTimeWindows(10, 3),
    ]
)
TIMES = st.builds(ContinuousEventTimeTrigger, st.integers(1, 12)) | st.builds(
    ContinuousProcessingTimeTrigger, st.integers(1, 12)
)
TRIGGERS: dict[str, Any] = {
    "counting": st.sampled_from([1, 2, 3]).map(CountTrigger.of),
    "counting and purging": st.sampled_from([1, 2, 3]).map(CountTrigger.of).map(PurgingTrigger.of),
    "by time": TIMES,
    "by time and purging": TIMES.map(PurgingTrigger.of),
    "purging at the end": st.just(PurgingTrigger.of(EventTimeTrigger.create())),
}
ROW = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.integers(0, 1),
    st.none() | st.integers(-3, 3),
    st.none() | st.sampled_from(["", "x", "yy"]),
    st.integers(-20, 40),
)
TINY = spilling(8)
AWAY = st.sampled_from([[TINY], [StateConfig(), TINY], [TINY, StateConfig()], [spilling(1 << 20)]])


def batch(rows: Any) -> ColumnBatch:
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=False)]
    data = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return ColumnBatch(data, np.array(columns[4], dtype=np.int64))


@pytest.mark.parametrize("trigger", TRIGGERS)
@settings(max_examples=15, deadline=None)
@given(st.data(), WINDOWS, st.sampled_from([0, 0, 7]), scripts(ROW), AWAY)
def test_what_comes_out_is_what_comes_out_of_memory(
    trigger: str, data: Any, assigner: Any, lateness: int, script: Any, states: Any
) -> None:
    made = data.draw(TRIGGERS[trigger])
    key, late = ColumnKey(("k", "j")), OutputTag("late")
    spec = WindowSpec(key, assigner, FUNCTION, made, lateness, late)
    if trigger == "purging at the end" and (lateness == 0 or not assigner.is_event_time()):
        return
    make = lambda: make_window_operator(spec)
    found, left = run(make, batch, script, states=states)
    expected, _ = run(make, batch, script)
    assert sorted_by_step(found) == sorted_by_step(expected)
    assert not [name for name in left if not name.endswith("progress")]


def sorted_by_step(found: Any) -> Any:
    """Which of the keys that fire at one time comes first is of no account."""
    return [(one.step, sorted(one.results), one.schemas, sorted(one.late)) for one in found]


def test_the_first_record_of_a_key_sets_its_tick() -> None:
    """Also where a later one of the batch would set an earlier tick."""
    trigger, windows = ContinuousEventTimeTrigger(1), TumblingEventTimeWindows(10)
    spec = WindowSpec(ColumnKey(("k", "j")), windows, FUNCTION, trigger)
    harness = OperatorHarness(make_window_operator(spec))
    harness.push(batch([("a", 0, 1, "", 6), ("a", 0, 2, "", 4)]))
    cast(Any, harness.operator).validate()
    harness.watermark(8)
    assert [row.n for row in harness.outputs()] == [2, 2]
    harness.close()


@pytest.mark.parametrize("trigger", [CountTrigger.of(3), ContinuousEventTimeTrigger(40)])
def test_few_are_in_memory(trigger: Any) -> None:
    kept = 1 << 20
    spec = WindowSpec(ColumnKey(("j",)), TumblingEventTimeWindows(100), FUNCTION, trigger)
    harness = OperatorHarness(make_window_operator(spec), config=JobConfig(state=spilling(kept)))
    rng = np.random.default_rng(1)
    for turn in range(30):
        keys = rng.integers(0, 40_000, 2000).tolist()
        harness.push(batch([("a", key, 1, "text", turn) for key in keys]))
        harness.keyed_state.time.begin(1)
        tables = {state._name: state for state in cast(Any, harness.keyed_state)._cold}
        assert sum(state.used for state in tables.values()) < 2 * kept
    rows = [table.live for state in tables.values() for table in state._cold.values()]
    assert sum(rows) < 25_000
    harness.watermark(40)
    total = sum(row.n for row in harness.outputs())
    assert total == 60_000 if isinstance(trigger, ContinuousEventTimeTrigger) else total > 20_000
    harness.watermark(99)
    assert not any(len(t.data) for t in harness.snapshot().keyed if t.name in tables)
    harness.close()

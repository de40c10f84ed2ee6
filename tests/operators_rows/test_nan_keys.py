"""NaN is one key on the row path, as on columns: whatever object it is, also after a restore."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from strom.api.aggregates import count
from strom.api.functions.user_functions import KeyedProcessFunction
from strom.api.specs.records import KeyedProcessSpec
from strom.api.specs.windows import BuiltinWindow, WindowSpec
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.core.batch import ColumnBatch
from strom.core.keys import ColumnKey, FunctionKey, findable
from strom.core.row import Row
from strom.operators.row_windows.operator import RowWindowOperator
from strom.state.descriptors import ValueStateDescriptor
from strom.testing.operator_harness import OperatorHarness


def nan() -> float:
    """A new one each time."""
    return float("nan")


class Counting(KeyedProcessFunction):
    """The count of the key's records so far; at a timer, the count then."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(100)
        yield self.count.value()

    def on_timer(self, timestamp, ctx):
        yield ("timer", self.count.value())


@pytest.mark.parametrize(
    "make", [nan, lambda: (nan(), "a"), lambda: ("a", (1, nan()))], ids=["one", "tuple", "nested"]
)
def test_state_and_timers(make):
    spec = KeyedProcessSpec(FunctionKey(lambda record: record), Counting())
    harness = OperatorHarness(spec)
    harness.push([make(), make()], timestamps=[1, 2])
    harness.push([make()], timestamps=[3])
    restored = OperatorHarness(spec, restored=harness.snapshot())
    restored.push([make()], timestamps=[4])
    restored.watermark(100)
    assert harness.outputs() == [1, 2, 3]
    assert restored.outputs() == [4, ("timer", 4)]


@pytest.mark.parametrize("keys", [("x",), ("x", "k")])
def test_windows(keys):
    spec = WindowSpec(
        ColumnKey(keys), EventTimeSessionWindows.with_gap(5), BuiltinWindow((("n", count()),))
    )
    harness = OperatorHarness(RowWindowOperator(spec))
    for at in range(4):
        data = pa.RecordBatch.from_pydict({"x": [math.nan, 1.0], "k": ["a", "a"]})
        harness.push(ColumnBatch(data, np.array([at, at])))
        if at == 1:
            harness = OperatorHarness(RowWindowOperator(spec), restored=harness.snapshot())
    harness.finish()
    assert sorted(row.n for row in harness.outputs()) == [4, 4]


def test_other_keys_are_left_alone():
    keys = [1, "a", None, (1, 2), Row(a=1.0, b=nan())]
    found = findable(keys)
    assert all(one is other for one, other in zip(found[:4], keys[:4], strict=True))
    assert type(found[4]) is type(keys[4])
    assert findable([Row(a=1.0, b=nan())]) == found[4:]

"""Map, flat-map, filter, process and reduce."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from strom.api.functions.user_functions import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
)
from strom.api.specs.records import FilterSpec, FlatMapSpec, MapSpec, ProcessSpec, ReduceSpec
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.errors import StateError, TypeMismatchError
from strom.core.keys import FunctionKey
from strom.state.descriptors import ValueStateDescriptor
from strom.testing.operator_harness import OperatorHarness


def columns(values, stamps):
    data = pa.RecordBatch.from_pydict({"v": values})
    return ColumnBatch(data, np.array(stamps, dtype=np.int64))


def test_map_keeps_timestamps():
    harness = OperatorHarness(MapSpec(lambda v: v * 2))
    harness.push([1, 2], timestamps=[5, 6])
    assert harness.stamped_outputs() == [(2, 5), (4, 6)]


def test_map_to_columns():
    schema = pa.schema([("double", pa.int32())])
    harness = OperatorHarness(MapSpec(lambda row: (row.v * 2,), schema))
    harness.push(columns([1, 2], [5, 6]))
    (batch,) = harness.batches()
    assert batch.data.schema == schema
    assert batch.timestamps.tolist() == [5, 6]


class Life(MapFunction):
    """Records its own lifecycle."""

    def __init__(self):
        self.calls = []

    def open(self, runtime_context):
        index = runtime_context.get_index_of_this_subtask()
        self.calls.append(("open", runtime_context.get_task_name(), index))
        runtime_context.get_metrics_group().counter("opened").inc(2)

    def map(self, value):
        return -value

    def close(self):
        self.calls.append("close")
        raise RuntimeError("too late to matter")


def test_lifecycle(caplog):
    function = Life()
    harness = OperatorHarness(MapSpec(function))
    harness.push([1])
    harness.close()
    harness.close()
    assert harness.outputs() == [-1]
    assert function.calls == [("open", "operator", 0), "close"]
    assert harness.metrics.get_count("opened") == 2
    assert "operator 'operator': closing its function failed" in caplog.text


def test_keyed_state_without_key_is_refused():
    class Stateful(Life):
        def open(self, runtime_context):
            runtime_context.get_state(ValueStateDescriptor("sum"))

    with pytest.raises(StateError, match=r"'operator' asks for keyed state 'sum'.*key_by"):
        OperatorHarness(MapSpec(Stateful()))


@pytest.mark.parametrize("function", [Life, 3])
def test_what_is_no_function_is_named(function):
    with pytest.raises(TypeMismatchError, match=r"instance|not callable"):
        OperatorHarness(MapSpec(function))


class Words(FlatMapFunction):
    def flat_map(self, value):
        yield from value.split()


def test_flat_map():
    harness = OperatorHarness(FlatMapSpec(Words()))
    harness.push(["a b", "", "c"], timestamps=[1, 2, 3])
    assert harness.stamped_outputs() == [("a", 1), ("b", 1), ("c", 3)]


def test_flat_map_sends_a_batch_whenever_there_is_enough():
    harness = OperatorHarness(FlatMapSpec(range), config=JobConfig(batch_size=4))
    harness.push([3, 2, 0, 1], timestamps=[1, 2, 3, 4])
    assert [len(batch) for batch in harness.batches()] == [5, 1]
    assert [ts for _, ts in harness.stamped_outputs()] == [1, 1, 1, 2, 2, 4]


@pytest.mark.parametrize("bad", [7, None])
def test_flat_map_must_return_an_iterable(bad):
    harness = OperatorHarness(FlatMapSpec(lambda v: bad))
    with pytest.raises(TypeMismatchError, match=f"flat_map function returned {bad}"):
        harness.push([1])


def test_type_errors_of_the_function_itself_stay_what_they_are():
    harness = OperatorHarness(FlatMapSpec(lambda v: [v + 1]))
    with pytest.raises(TypeError, match="can only concatenate") as caught:
        harness.push([1, "x"])
    assert not isinstance(caught.value, TypeMismatchError)


class Even(FilterFunction):
    def filter(self, value):
        return value % 2 == 0


def test_filter_objects_and_columns():
    harness = OperatorHarness(FilterSpec(Even()))
    harness.push([1, 2, 3, 4], timestamps=[1, 2, 3, 4])
    assert harness.stamped_outputs() == [(2, 2), (4, 4)]
    harness = OperatorHarness(FilterSpec(lambda row: row.v > 1))
    harness.push(columns([1, 2, 3], [7, 8, 9]))
    harness.push(columns([0], [1]))
    (batch,) = harness.batches()
    assert batch.data.to_pydict() == {"v": [2, 3]}
    assert batch.timestamps.tolist() == [8, 9]


def test_filter_passes_an_unchanged_batch_on_as_it_is():
    harness = OperatorHarness(FilterSpec(lambda row: "yes"))
    batch = columns([1], [1])
    harness.push(batch)
    assert harness.batches()[0] is batch


def test_filter_must_return_something_true_or_false():
    harness = OperatorHarness(FilterSpec(lambda v: np.array([v, v])))
    with pytest.raises(TypeMismatchError, match=r"filter function returned array\(\[1, 1\]\)"):
        harness.push([1])


SIDE = OutputTag("side")


class Split(ProcessFunction):
    def process_element(self, value, ctx):
        if value < 0:
            yield SIDE, (value, ctx.timestamp())
            return
        for _ in range(value):
            yield value, ctx.timer_service().current_watermark()


def test_process_with_side_output():
    harness = OperatorHarness(ProcessSpec(Split()))
    harness.watermark(3)
    harness.push([2, -1, 0, 1, -5], timestamps=[10, 20, 30, 40, 50])
    assert harness.stamped_outputs() == [((2, 3), 10), ((2, 3), 10), ((1, 3), 40)]
    assert harness.side_outputs("side") == [(-1, 20), (-5, 50)]
    assert harness.output.side["side"][0].timestamps.tolist() == [20, 50]


def test_process_without_timestamps():
    harness = OperatorHarness(ProcessSpec(Split()))
    harness.push([1, -1])
    assert harness.batches()[0].timestamps is None
    assert harness.side_outputs("side") == [(-1, None)]


class SetsTimer(ProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(5)


def test_timers_need_a_key():
    harness = OperatorHarness(ProcessSpec(SetsTimer()))
    with pytest.raises(StateError, match="key_by"):
        harness.push([1])


KEY = FunctionKey(lambda record: record[0])


class Add(ReduceFunction):
    def reduce(self, value1, value2):
        return (value1[0], value1[1] + value2[1])


def test_reduce_gives_the_running_reduction_also_after_a_restore():
    spec = ReduceSpec(KEY, Add())
    harness = OperatorHarness(spec)
    harness.push([("a", 1), ("b", 5), ("a", 2)], timestamps=[1, 2, 3])
    assert harness.stamped_outputs() == [(("a", 1), 1), (("b", 5), 2), (("a", 3), 3)]
    restored = OperatorHarness(spec, restored=harness.snapshot())
    restored.push([("a", 10), ("c", 1)])
    assert restored.outputs() == [("a", 13), ("c", 1)]


def test_reduce_to_none_is_an_error():
    harness = OperatorHarness(ReduceSpec(KEY, lambda a, b: None))
    with pytest.raises(TypeMismatchError, match="returned None for key 'a'"):
        harness.push([("a", 1), ("a", 2)])

"""Windowed streams record one WindowSpec."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from strom.api.aggregates import Aggregate, count, max_
from strom.api.functions.user_functions import (
    AggregateFunction,
    AllWindowFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from strom.api.specs.windows import (
    AggregateWindow,
    BuiltinWindow,
    ExtremeWindow,
    ProcessWindow,
    ReduceWindow,
    WindowSpec,
)
from strom.api.streams.data_stream import StreamExecutionEnvironment as Env
from strom.api.windows.count_windows import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from strom.api.windows.time_windows import TumblingEventTimeWindows
from strom.api.windows.triggers import CountTrigger
from strom.core.errors import ConfigurationError, GraphError
from strom.core.keys import ColumnKey, ConstantKey
from strom.engine.graph.model import Forward, Rebalance, StreamNode

HOURLY = TumblingEventTimeWindows.of(timedelta(hours=1))


class Sum(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator + value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


class Apply(WindowFunction):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return inputs


class Process(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return elements


class ApplyAll(AllWindowFunction):
    def apply(self, window: Any, inputs: Any) -> Any:
        return inputs


class ProcessAll(ProcessAllWindowFunction):
    def process(self, context: Any, elements: Any) -> Any:
        return elements


def windows(env: Env) -> Any:
    return env.from_collection([{"k": 1, "v": 2}]).key_by("k").window(HOURLY)


def operator(stream: Any) -> StreamNode:
    stream.print()
    return stream.get_execution_environment().get_stream_graph().nodes[-2]  # type: ignore[no-any-return]


def function_of(stream: Any) -> Any:
    return operator(stream).spec.function


def test_everything_set_is_in_the_spec(env: Env) -> None:
    late, trigger, total = OutputTag("late"), CountTrigger.of(3), Sum()
    stream = (
        windows(env)
        .trigger(trigger)
        .allowed_lateness(timedelta(seconds=2))
        .side_output_late_data(late)
        .aggregate(total, output_type={"n": int})
    )
    node = operator(stream)
    assert node.spec == WindowSpec(
        key=ColumnKey(("k",)),
        assigner=HOURLY,
        function=AggregateWindow(total),
        trigger=trigger,
        allowed_lateness_ms=2000,
        late_tag=late,
        schema=pa.schema({"n": pa.int64()}),
    )
    assert node.name == "TumblingEventTimeWindows(aggregate)"


def test_functions(env: Env) -> None:
    apply, process = Apply(), Process()
    assert function_of(windows(env).reduce(max)) == ReduceWindow(max)
    assert function_of(windows(env).reduce(max, apply)) == ReduceWindow(max, apply)
    assert function_of(windows(env).process(process)) == ProcessWindow(process)
    assert function_of(windows(env).apply(apply)) == ProcessWindow(apply)


def test_builtin_aggregates(env: Env) -> None:
    found = function_of(windows(env).aggregate(n=count(), top=max_("v")))
    assert found == BuiltinWindow((("n", count()), ("top", max_("v"))))
    assert function_of(windows(env).sum("v")) == BuiltinWindow((("v", Aggregate("sum", "v")),))
    assert function_of(windows(env).min("v")) == BuiltinWindow((("v", Aggregate("min", "v")),))
    assert function_of(windows(env).max("v")) == BuiltinWindow((("v", Aggregate("max", "v")),))


def test_extremes(env: Env) -> None:
    assert function_of(windows(env).max_by("v", ties=True)) == ExtremeWindow("v", "max", True)
    assert function_of(windows(env).min_by("v")) == ExtremeWindow("v", "min", False)


def test_window_all_runs_in_one_subtask(env: Env) -> None:
    process = ProcessAll()
    numbers = env.from_collection([1]).set_parallelism(3)
    stream = numbers.window_all(HOURLY).process(process)
    node = operator(stream)
    assert node.spec.key == ConstantKey()
    assert not node.spec.keyed
    assert node.parallelism == 1
    assert env.get_stream_graph().edges[0].partitioner == Rebalance()
    with pytest.raises(GraphError, match="works only with parallelism 1"):
        stream.set_parallelism(2)


def test_window_all_behind_one_subtask_may_chain(env: Env) -> None:
    operator(env.from_collection([1]).window_all(HOURLY).apply(ApplyAll()))
    assert env.get_stream_graph().edges[0].partitioner == Forward()


def test_count_windows(env: Env) -> None:
    keyed = env.from_collection([1]).key_by(abs)
    assert operator(keyed.count_window(3).reduce(max)).spec.assigner == (
        CountTumblingWindowAssigner.of(3)
    )
    assert operator(keyed.count_window(3, 2).reduce(max)).spec.assigner == (
        CountSlidingWindowAssigner.of(3, 2)
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: w.trigger(3), "trigger: expected a Trigger, got 3"),
        (lambda w: w.allowed_lateness(-1), "allowed_lateness must be at least"),
        (lambda w: w.side_output_late_data("late"), "expected an OutputTag"),
        (lambda w: w.reduce(3), "reduce: expected"),
        (lambda w: w.reduce(max, ProcessAll()), "window_function: expected a ProcessWindowFunc"),
        (lambda w: w.aggregate(abs), "aggregate: expected a AggregateFunction"),
        (lambda w: w.aggregate(), "built-in aggregates by output column"),
        (lambda w: w.aggregate(n=3), "n must be a built-in aggregate"),
        (lambda w: w.aggregate(Sum(), n=count()), "either an AggregateFunction or built-in"),
        (lambda w: w.aggregate(k=count()), r"output columns \['k'\] already exist"),
        (lambda w: w.aggregate(window_end=count()), "window_end"),
        (lambda w: w.process(ProcessAll()), "process: expected a ProcessWindowFunction"),
        (lambda w: w.apply(Process()), "apply: expected a WindowFunction"),
        (lambda w: w.max_by(0), "max_by: the field must be a column name, is 0"),
        (lambda w: w.sum(0), "sum: the field must be a column name, is 0"),
    ],
)
def test_mistakes(env: Env, call: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        call(windows(env))


def test_bad_assigner_and_count(env: Env) -> None:
    keyed = env.from_collection([1]).key_by(abs)
    wrong: Any = timedelta(hours=1)
    with pytest.raises(ConfigurationError, match="expected a window assigner"):
        keyed.window(wrong)
    with pytest.raises(ConfigurationError, match="count_window: size"):
        keyed.count_window(0)

"""Times at the ends of int64: refused where they come in, in one sentence, and never lost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
import strom
from strom.api.specs.records import KeyedProcessSpec, WatermarkSpec
from strom.api.specs.windows import BuiltinWindow, ReduceWindow, WindowSpec
from strom.connectors.datagen import DataGenSource
from strom.core.batch import ColumnBatch
from strom.core.elements import GREATEST_EVENT_TIME, LEAST_EVENT_TIME, MAX_TIMESTAMP, MIN_TIMESTAMP
from strom.core.errors import JobFailedError, TypeMismatchError
from strom.core.keys import ColumnKey, FunctionKey
from strom.operators.row_windows.operator import RowWindowOperator
from strom.testing.operator_harness import OperatorHarness

BEYOND = (
    MIN_TIMESTAMP,
    MIN_TIMESTAMP + 1,
    LEAST_EVENT_TIME - 1,
    GREATEST_EVENT_TIME + 1,
    MAX_TIMESTAMP - 1,
    MAX_TIMESTAMP,
)
WITHIN = (LEAST_EVENT_TIME, 0, GREATEST_EVENT_TIME)


class Assigner(strom.TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value["ts"]


def strategy(assigner):
    bounded = strom.WatermarkStrategy.for_monotonous_timestamps()
    return bounded.with_timestamp_assigner(assigner)


def expression():
    import polars as pl

    return pl.col("ts") + 0


ASSIGNERS = {
    "column": lambda: "ts",
    "expression": expression,
    "assigner": Assigner,
    "function": lambda: lambda row, _: row["ts"],
}


def columns(*times):
    return ColumnBatch(pa.RecordBatch.from_pydict({"ts": pa.array(times, pa.int64())}))


@pytest.mark.parametrize("assigner", ASSIGNERS)
@pytest.mark.parametrize("time", BEYOND)
def test_a_record_is_refused_where_its_time_is_assigned(assigner, time):
    harness = OperatorHarness(WatermarkSpec(strategy(ASSIGNERS[assigner]())))
    harness.push(columns(*WITHIN))
    expected = rf"^timestamp .*: record 1 of the batch has the timestamp {time}, which is no event"
    with pytest.raises(TypeMismatchError, match=expected):
        harness.push(columns(0, time))
    assert len(harness.outputs()) == len(WITHIN)


@pytest.mark.parametrize("with_strategy", [True, False])
@pytest.mark.parametrize("time", [MIN_TIMESTAMP, MAX_TIMESTAMP])
def test_a_record_is_refused_where_a_source_gives_it_its_time(with_strategy, time):
    class Timed(DataGenSource):
        def _batch(self, runs):
            batch = super()._batch(runs)
            return batch.with_timestamps(np.full(len(batch), time, dtype=np.int64))

    env = strom.StreamExecutionEnvironment.get_execution_environment(host="local")
    source = Timed(lambda start, count: list(range(start, start + count)), 3)
    kept = strom.WatermarkStrategy.no_watermarks() if with_strategy else None
    stream = env.from_source(source, kept, source_name="it").map(lambda n: n)
    with pytest.raises(JobFailedError, match=rf"'it', subtask 0.*split.*timestamp {time}"):
        list(stream.execute_and_collect())


WINDOWS = {
    "tumbling": strom.TumblingEventTimeWindows.of(10),
    "sliding": strom.SlidingEventTimeWindows.of(10, 5),
    "sessions": strom.EventTimeSessionWindows.with_gap(10),
}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("time", [MIN_TIMESTAMP + 1, MAX_TIMESTAMP - 1, MAX_TIMESTAMP])
def test_no_window_loses_a_record_at_the_end_of_time(window, time):
    """Such a time can be a timer's, or a count window's."""
    reduce = ReduceWindow(lambda a, b: a)
    for function in (reduce, BuiltinWindow((("n", strom.count()),))):
        spec = WindowSpec(ColumnKey(("k",)), WINDOWS[window], function)
        operators = [spec] if function is not reduce else [spec, RowWindowOperator(spec)]
        for operator in operators:
            harness = OperatorHarness(operator)
            batch = ColumnBatch(pa.RecordBatch.from_pydict({"k": [1]}), np.array([time]))
            if window == "sessions" and time < 0:
                harness.push(batch)
                harness.finish()
                assert len(harness.outputs()) == 1
                continue
            with pytest.raises(TypeMismatchError, match=r"window|session"):
                harness.push(batch)


def test_the_last_windows_there_are_fire():
    spec = WindowSpec(
        FunctionKey(lambda n: 0),
        strom.TumblingEventTimeWindows.of(10, MAX_TIMESTAMP % 10),
        ReduceWindow(lambda a, b: a + b),
    )
    harness = OperatorHarness(spec)
    last = MAX_TIMESTAMP - 10
    harness.push([1, 2], timestamps=[last, MAX_TIMESTAMP - 1])
    assert harness.outputs() == []
    harness.finish()
    assert harness.stamped_outputs() == [(3, MAX_TIMESTAMP - 1)]


@dataclass(frozen=True)
class Endless(strom.api.windows.base.Window):
    """A window of a user's own, which ends behind the last watermark."""

    def max_timestamp(self):
        return MAX_TIMESTAMP + 1


class EndlessWindows(strom.WindowAssigner):
    def assign_windows(self, element, timestamp, context):
        return [Endless()]

    def get_default_trigger(self, env=None):
        return strom.EventTimeTrigger()

    def is_event_time(self):
        return True


def test_a_window_that_would_never_end():
    spec = WindowSpec(FunctionKey(lambda n: 0), EndlessWindows(), ReduceWindow(lambda a, b: a))
    with pytest.raises(TypeMismatchError, match=r"'operator': .*Endless\(\) begins or ends beyond"):
        OperatorHarness(spec).push([1], timestamps=[1])


def test_a_join_in_windows_and_in_intervals():
    def stream(env, rows):
        collected = env.from_collection(rows)
        return collected.with_event_time("ts").key_by("k")

    env = strom.StreamExecutionEnvironment.get_execution_environment(host="local")
    late = pa.table({"k": [1], "ts": [MAX_TIMESTAMP - 1], "l": [1]})
    right = pa.table({"k": [1], "ts": [0], "r": [1]})
    window = strom.TumblingEventTimeWindows.of(timedelta(seconds=1))
    joined = stream(env, late).window_join(stream(env, right), window)
    with pytest.raises(JobFailedError, match="timestamp column 'ts': record 0 of the batch has"):
        list(joined.execute_and_collect())


class Setting(strom.KeyedProcessFunction):
    """Sets and deletes timers at the times it gets."""

    def __init__(self, method):
        self.method = method

    def process_element(self, value, ctx):
        getattr(ctx.timer_service(), self.method)(value)
        return ()

    def on_timer(self, timestamp, ctx):
        yield timestamp


METHODS = [
    f"{verb}_{kind}_time_timer"
    for verb in ("register", "delete")
    for kind in ("event", "processing")
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("time", [2**63, -(2**63) - 1, 1.5, None, "1", timedelta(1)], ids=repr)
def test_a_timer_that_would_never_fire_is_refused_by_name(method, time):
    harness = OperatorHarness(KeyedProcessSpec(FunctionKey(lambda n: 0), Setting(method)))
    with pytest.raises(TypeMismatchError, match=rf"^{method}\(.*\): a timer's time is an int"):
        harness.push([time])
    harness.snapshot()


def test_timers_at_the_ends_of_time_fire_and_survive_a_checkpoint():
    spec = KeyedProcessSpec(FunctionKey(lambda n: 0), Setting("register_event_time_timer"))
    harness = OperatorHarness(spec)
    harness.push([MAX_TIMESTAMP, MIN_TIMESTAMP, np.int64(5)])
    restored = OperatorHarness(spec, restored=harness.snapshot())
    restored.watermark(4)
    assert restored.take_outputs() == [MIN_TIMESTAMP]
    restored.finish()
    assert restored.outputs() == [5, MAX_TIMESTAMP]


class Distant(strom.Trigger):
    """Sets a timer beyond all times."""

    def on_element(self, element, timestamp, window, ctx):
        ctx.register_event_time_timer(2**63)
        return strom.TriggerResult.CONTINUE

    def on_processing_time(self, time, window, ctx):
        return strom.TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return strom.TriggerResult.CONTINUE

    def clear(self, window, ctx):
        """Nothing is kept."""


def test_a_trigger_may_not_either():
    window = strom.TumblingEventTimeWindows.of(10)
    reduce = ReduceWindow(lambda a, b: a)
    spec = WindowSpec(FunctionKey(lambda n: 0), window, reduce, trigger=Distant())
    with pytest.raises(TypeMismatchError, match=r"^register_event_time_timer\(9223372036854775808"):
        OperatorHarness(spec).push([1], timestamps=[1])


class Generating(strom.WatermarkGenerator):
    def __init__(self, watermark):
        self.watermark = watermark

    def on_event(self, value, timestamp):
        return self.watermark


@pytest.mark.parametrize("watermark", [2**63, 1.5, "1", True])
def test_a_watermark_that_is_none(watermark):
    generating = strom.WatermarkStrategy.for_generator(lambda: Generating(watermark))
    harness = OperatorHarness(WatermarkSpec(generating))
    with pytest.raises(TypeMismatchError, match=r"^Generating.on_event returned .* no watermark"):
        harness.push([1], timestamps=[1])

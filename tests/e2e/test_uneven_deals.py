"""Key groups are dealt unevenly, anew and anew, while jobs run, crash, and go on from checkpoints
of other deals at other parallelisms: state, timers and records in flight are where their keys
are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from backends import TINY
from drawn_ways import assert_equivalent
from strom import (
    DiscardSink,
    EventTimeSessionWindows,
    JobConfig,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    count,
    sum_,
)
from strom.core.keys import ColumnKey
from strom.core.state_config import StateConfig
from strom.engine.graph.model import Forward
from strom.testing.equivalence import Ways

DEALT = Ways(seeds=range(3), spare=9, deals=3, crash_window=120, batch_size=2, local=False)

BACKENDS = pytest.mark.parametrize("state", [StateConfig(), TINY], ids=["memory", "rocksdb"])


class CountsUntilItsTimer(KeyedProcessFunction):
    """How many records a key has had so far, and, some time behind each, how many by then."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10_000)
        yield value.k, seen

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), timestamp, self.seen.value()


@BACKENDS
def test_state_and_timers_of_keys(readings: Any, state: StateConfig) -> None:
    def build(env: Any) -> Any:
        keyed = readings.rows(env).key_by(lambda r: r.k)
        return keyed.process(CountsUntilItsTimer())

    assert_equivalent(build, ways=replace(DEALT, state=state))


@BACKENDS
def test_windows_of_columns(readings: Any, state: StateConfig) -> None:
    def build(env: Any) -> Any:
        by_key = readings.columns(env).key_by("k")
        hundreds = by_key.window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
        pauses = by_key.window(EventTimeSessionWindows.with_gap(Time.milliseconds(50)))
        return {
            "windows": hundreds.aggregate(n=count(), total=sum_("v")),
            "sessions": pauses.aggregate(n=count(), total=sum_("v")),
        }

    assert_equivalent(build, ways=replace(DEALT, state=state))


@BACKENDS
def test_operators_that_share_the_deal(readings: Any, state: StateConfig) -> None:
    """What is partitioned by the right key already is not partitioned again: the second operator
    has its keys where the first one has them, in a task of its own."""

    def build(env: Any) -> Any:
        by_key = readings.columns(env).key_by("k")
        hundreds = by_key.window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
        counts = hundreds.aggregate(n=count()).disable_chaining()
        longer = TumblingEventTimeWindows.of(Time.milliseconds(300))
        return counts.key_by("k").window(longer).aggregate(total=sum_("n"))

    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(parallelism=2))
    build(env).sink_to(DiscardSink())
    assert Forward(ColumnKey(("k",))) in [e.partitioner for e in env.get_job_graph().edges]
    assert_equivalent(build, ways=replace(DEALT, state=state))

"""Watermark strategies over records that have no timestamps: they run, event time stays where it
is until the end, and what needs the records' event time says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from strom import (
    DataStream,
    Duration,
    EventTimeSessionWindows,
    JobFailedError,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
    max_,
)
from strom.datastream.connectors.number_seq import NumberSequenceSource

SECOND = Time.seconds(1)
STRATEGIES = {
    "monotonous": WatermarkStrategy.for_monotonous_timestamps(),
    "out of order": WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1)),
}


@pytest.fixture
def env() -> Any:
    return StreamExecutionEnvironment.get_execution_environment()


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_source_whose_records_have_no_timestamps(env: Any, name: str) -> None:
    """The example of PyFlink's introduction."""
    stream = env.from_source(
        source=NumberSequenceSource(1, 10),
        watermark_strategy=STRATEGIES[name],
        source_name="seq_num_source",
        type_info=Types.LONG(),
    )
    assert sorted(stream.execute_and_collect()) == list(range(1, 11))


class Timed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        timers = ctx.timer_service()
        timers.register_event_time_timer(10)
        yield ctx.timestamp(), timers.current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", timestamp


@pytest.mark.parametrize("name", STRATEGIES)
def test_event_time_stays_until_the_end(env: Any, name: str) -> None:
    stream = env.from_collection([1, 2]).assign_timestamps_and_watermarks(STRATEGIES[name])
    timed = stream.key_by(lambda n: 0).process(Timed())
    none = (None, -(2**63))
    assert list(timed.execute_and_collect()) == [none, none, ("timer", 10)]


NEED_EVENT_TIME: dict[str, Callable[[DataStream], DataStream]] = {
    "window": lambda s: (
        s.key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(SECOND)).reduce(max)
    ),
    "window of all": lambda s: s.window_all(TumblingEventTimeWindows.of(SECOND)).reduce(max),
    "sessions": lambda s: (
        s.key_by(lambda r: r[0]).window(EventTimeSessionWindows.with_gap(SECOND)).reduce(max)
    ),
    "interval join": lambda s: s.key_by("f0").interval_join(s.key_by("f0"), SECOND, SECOND),
    "over": lambda s: s.key_by("f0").over(rows=2).aggregate(most=max_("f1")),
}


@pytest.mark.parametrize("name", NEED_EVENT_TIME)
def test_what_needs_event_time_says_that_there_is_none(env: Any, name: str) -> None:
    pairs = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()]))
    stream = NEED_EVENT_TIME[name](pairs.assign_timestamps_and_watermarks(STRATEGIES["monotonous"]))
    with pytest.raises(JobFailedError, match=r"without (timestamp|event time).*assign"):
        list(stream.execute_and_collect())

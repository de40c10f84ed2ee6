"""Every Nexmark query whole, checkpointed, crashed and rescaled: what its reference says."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from drawn_ways import assert_equivalent, assert_files_equivalent
from strom import (
    KeyedProcessFunction,
    RuntimeContext,
    TumblingProcessingTimeWindows,
    ValueStateDescriptor,
    sum_,
)
from strom.benchmarks.nexmark import events as streams
from strom.benchmarks.nexmark.query import TAKEN, Query
from strom.benchmarks.nexmark.registry import NEXMARK, NEXMARK_ROWS
from strom.testing.equivalence import Ways

EVENTS = 1_600
SHAPE = streams.Shape(rate=25, out_of_order_group=50, block=100)
"""64 s of event time; shuffled within 2 s, half of what the watermark allows. No two events have
the same time, so that queries which leave ties open have one right answer."""

WAYS = Ways(seeds=range(1), batch_size=40)
"""One seed: of many queries, that is every kind of interruption, on both backends."""
BRIEF_WAYS = Ways(seeds=range(1), batch_size=8)
"""For queries in one task, which are over after few steps."""
BRIEF = ("q0", "q1", "q2", "q14", "q21", "q22")

MORE = dict.fromkeys(("q2", "q2_rows"), 3_000)
"""The first auction that can be divided by 123 opens late."""

RARE = 8_000
RARE_WAYS = Ways(seeds=range(1), batch_size=20)
"""For queries over persons and auctions only, which are one event in 13."""

END = 2**60

WITHOUT = {"q10", "q12"}
"""Tested apart below."""

QUERIES = {**NEXMARK, **NEXMARK_ROWS}


@pytest.fixture(autouse=True)
def _few_events_over_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """For workloads and references alike."""
    monkeypatch.setattr(streams, "SHAPE", SHAPE)


class Net(KeyedProcessFunction):
    """The table that a changelog comes to: rows as keys, given out when event time ends."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.held = runtime_context.get_state(ValueStateDescriptor("held"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        taken = value[-1] in TAKEN
        self.held.update((self.held.value() or 0) + (-1 if taken else 1))
        ctx.timer_service().register_event_time_timer(END)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        n = self.held.value()
        assert n >= 0, f"{ctx.get_current_key()} was taken away {-n} times more than added"
        yield from [ctx.get_current_key()] * n


def outcome(query: Query, env: Any, events: int) -> Any:
    """The stream whose records are the same in every run."""
    stream = query.build(env, events)
    if query.changelog:
        return stream.key_by(lambda row: tuple(row[:-1])).process(Net())
    return stream


TESTED = [name for name in QUERIES if name not in WITHOUT]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.soak] if place % 4 else [])
        for place, name in enumerate(TESTED)
    ],
)
def test_every_way(name: str) -> None:
    query = QUERIES[name]
    ways = BRIEF_WAYS if name.removesuffix("_rows") in BRIEF else WAYS
    events = MORE.get(name, EVENTS)
    if "bid" not in query.kinds:
        events, ways = RARE, RARE_WAYS
    expected = list(query.reference(events))
    assert expected
    assert_equivalent(lambda env: outcome(query, env, events), expected, ways)


@pytest.mark.parametrize("name", ["q2", "q3", "q8"])
def test_one_source_of_all_kinds_every_way(name: str) -> None:
    query = QUERIES[name]
    expected = list(query.reference(RARE))
    assert expected

    def build(env: Any) -> Any:
        with streams.whole_stream():
            return outcome(query, env, RARE)

    assert_equivalent(build, expected, Ways(seeds=range(1), batch_size=50 if name == "q2" else 200))


def test_processing_time_windows_every_way() -> None:
    """Which window a bid falls into is another in each run; that each is counted once is not."""
    query = NEXMARK["q12"]
    ages = TumblingProcessingTimeWindows.of(timedelta(days=1_000_000))

    def build(env: Any) -> Any:
        counted = query.build(env, EVENTS).key_by("bidder").window(ages)
        return counted.aggregate(n=sum_("bid_count")).select("bidder", "n")

    assert_equivalent(build, list(query.expected(EVENTS)), WAYS)


@pytest.mark.parametrize("whole", [False, True])
def test_files_every_way(whole: bool) -> None:
    query = NEXMARK["q10"]
    assert query.sink is not None
    assert query.read is not None

    def build(env: Any, folder: Path) -> None:
        with streams.whole_stream(whole):
            query.build(env, EVENTS).sink_to(query.sink(str(folder)))

    def read(folder: Path) -> list[Any]:
        return list(query.read(str(folder)))

    expected = list(query.reference(EVENTS))
    assert len({row[-1] for row in expected}) == 2
    assert_files_equivalent(build, read, expected, BRIEF_WAYS)

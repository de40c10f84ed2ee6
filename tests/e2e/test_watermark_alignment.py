"""Two sources in one job, one five times as fast: with alignment it waits for the other."""

from __future__ import annotations

import statistics
from datetime import timedelta
from typing import Any

import pytest
from chaos_kit import config, environment, gather
from strom import WatermarkStrategy
from strom.connectors.datagen import DataGenSource


@pytest.mark.parametrize(
    ("host", "aligned"),
    [("local", True), ("local", False), pytest.param("ray", True, marks=pytest.mark.ray)],
)
def test_the_fast_source_waits(host: str, aligned: bool) -> None:
    """Both streams have event times 0..99,999 ms. How far the fast one is ahead is told by the
    order in which the sink sees them: of most records, since tasks do not begin in the same moment,
    and a report may be on its way for long."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, _: value[1] * 100
    )
    if aligned:
        strategy = strategy.with_watermark_alignment(
            "both", timedelta(seconds=10), timedelta(milliseconds=10)
        )
    env = environment(
        config(parallelism=1, batch_size=10, auto_watermark_interval=timedelta(milliseconds=5)),
        host,
    )

    def stream(name: str, rate: float) -> Any:
        numbers = DataGenSource(
            lambda start, n: [(name, k) for k in range(start, start + n)], 1000, rate=rate
        )
        return env.from_source(numbers, strategy, name)

    seen = gather(stream("fast", 2000.0).union(stream("slow", 400.0)), 60.0)
    assert len(seen) == 2000
    slow = 0
    ahead = []
    for name, number in seen:
        if name == "slow":
            slow = number
        else:
            ahead.append(number - slow)
    middle = statistics.median(ahead)
    assert (middle < 250) == aligned, f"the fast one was {middle} records ahead"

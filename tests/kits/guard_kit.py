"""The jobs that the guards run, over batches that are there already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import polars as pl
from strom import (
    ColumnBatch,
    DataStream,
    DiscardSink,
    Emit,
    NeedSplit,
    SlidingEventTimeWindows,
    Source,
    SourceReader,
    SplitEnumerator,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    count,
)
from strom.benchmarks import streams
from strom.connectors.datagen import NexmarkSource

Batches = Sequence[ColumnBatch]

BATCH = 16_384
TEN_SECONDS = 10_000
SLICE = 2_000


class Replay(Source):
    """Gives batches that are there already."""

    bounded = True

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def create_enumerator(self, context: Any, restored: Any) -> SplitEnumerator:
        return OneSplit()

    def create_reader(self, context: Any) -> SourceReader:
        return Replayer(self.batches)


class OneSplit(SplitEnumerator):
    def __init__(self) -> None:
        self.left = [SimpleNamespace(split_id="all")]

    def next_splits(self, subtask: int) -> Any:
        return [self.left.pop()] if self.left else None

    def snapshot(self) -> Any:
        return self.left


class Replayer(SourceReader):
    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self.at = len(batches)

    def add_splits(self, splits: Sequence[Any]) -> None:
        self.at = 0

    def poll(self) -> Emit | NeedSplit:
        if self.at == len(self.batches):
            return NeedSplit()
        self.at += 1
        return Emit(self.batches[self.at - 1], "all", self.at == len(self.batches))

    def snapshot(self) -> Sequence[Any]:
        return []


@cache
def bids(events: int, rows: int = BATCH) -> Batches:
    """So many bids or a few more, in batches of `rows`."""
    generate = NexmarkSource(2 * events, columns=("auction", "price", "dateTime")).generator()
    return [generate([(n, rows)]) for n in range(0, events, rows)]


@cache
def pairs(events: int, rows: int = BATCH) -> Batches:
    """Keys and values, of so many records or a few more."""
    return [ColumnBatch(streams.key_values(n, rows)) for n in range(0, events, rows)]


HOT = pl.col("auction") % 123 == 0


def filtered(stream: DataStream) -> DataStream:
    return stream.filter(HOT).select("auction", "price")


def kstate(stream: DataStream) -> DataStream:
    return stream.key_by("k").sum("v")


def q7c(stream: DataStream) -> DataStream:
    windows = stream.key_by("auction").window(TumblingEventTimeWindows.of(TEN_SECONDS))
    return windows.aggregate(num=count())


def q5(stream: DataStream) -> DataStream:
    windows = stream.key_by("auction").window(SlidingEventTimeWindows.of(TEN_SECONDS, SLICE))
    counted = windows.aggregate(num=count()).select("auction", "num", end="window_end")
    return counted.key_by("end").window(TumblingEventTimeWindows.of(SLICE)).max_by("num", ties=True)


Job = Callable[[DataStream], DataStream]

JOBS: dict[str, tuple[Job, Callable[..., Batches]]] = {
    "filter": (filtered, bids),
    "kstate": (kstate, pairs),
    "q7c": (q7c, bids),
    "q5": (q5, bids),
}
"""By name: the job, and what makes its input."""


def run(job: Job, batches: Batches) -> int:
    """The whole job in this process: source, operators, exchange, sink. How many records came."""
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(0)
    if batches[0].timestamps is not None:
        strategy = strategy.with_timestamp_assigner("dateTime")
        stream = env.from_source(Replay(batches), strategy)
    else:
        stream = env.from_source(Replay(batches))
    job(stream).sink_to(DiscardSink())
    rows: int = env.execute().metrics["operators"][-1]["records_in"]
    return rows

"""Sources leave out what nobody reads, only where that is certain, and no result changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from drawn_ways import assert_equivalent
from strom import (
    DataStream,
    DiscardSink,
    OutputTag,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    count,
    max_,
)
from strom.api.connectors.reads import ColumnReads
from strom.connectors.datagen import NexmarkSource
from strom.core.config import CheckpointConfig, JobConfig
from strom.core.union_type import UnionType
from strom.testing import Ways

SECOND = TumblingEventTimeWindows.of(timedelta(seconds=1))
TIME = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("dateTime")
NO_TIME = WatermarkStrategy.for_monotonous_timestamps()

Build = Callable[[DataStream], DataStream]


def made(build: Build, source: NexmarkSource, times: Any = NO_TIME, **settings: Any) -> Any:
    """The source that runs."""
    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(**settings))
    build(env.from_source(source, times)).sink_to(DiscardSink())
    graph = env.get_stream_graph()
    return next(node.spec.source for node in graph.nodes if node.is_source)


PRICE = pl.col("price")

OF_BIDS: dict[str, tuple[Build, set[str]]] = {
    "select": (lambda s: s.select("price", "url"), {"price", "url"}),
    "an alias": (lambda s: s.select(cost="price"), {"price"}),
    "expressions": (lambda s: s.select(x=PRICE + pl.col("bidder")), {"price", "bidder"}),
    "named and not read": (lambda s: s.select("price", "url").select("url"), {"price", "url"}),
    "filter": (lambda s: s.filter(pl.col("auction") > 3).select("price"), {"auction", "price"}),
    "with_columns": (
        lambda s: s.with_columns(x=PRICE * 2).select("x", "auction"),
        {"auction", "price"},
    ),
    "event time": (lambda s: s.with_event_time("dateTime").select("url"), {"dateTime", "url"}),
    "windows": (
        lambda s: s.key_by("bidder").window(SECOND).aggregate(n=count(), top=max_("price")),
        {"bidder", "price"},
    ),
    "a key by an expression": (
        lambda s: s.key_by(pl.col("auction") % 7).window(SECOND).aggregate(n=count()),
        {"auction"},
    ),
    "aggregates by expressions and conditions": (
        lambda s: s.window_all(SECOND).aggregate(n=max_(PRICE).where(pl.col("url") != "")),
        {"price", "url"},
    ),
    "a partition by a column": (
        lambda s: s.partition_custom(lambda key, n: 0, "bidder").select("url"),
        {"bidder", "url"},
    ),
}


@pytest.mark.parametrize("name", OF_BIDS)
def test_what_is_read(name: str) -> None:
    build, wanted = OF_BIDS[name]
    source = made(build, NexmarkSource(10))
    assert set(source.columns) == wanted
    assert source.pruned
    assert set(made(build, NexmarkSource(10), TIME).columns) == wanted | {"dateTime"}
    assert not made(build, NexmarkSource(10), column_pruning=False).pruned


LATE = OutputTag("late")

ALL: dict[str, Build] = {
    "a sink": lambda s: s,
    "filtered only": lambda s: s.filter(PRICE > 3),
    "a function": lambda s: s.map(lambda row: row.price),
    "a predicate": lambda s: s.filter(lambda row: True).select("price"),
    "batches": lambda s: s.map_batches(lambda data: data).select("price"),
    "all": lambda s: s.select(pl.all()).select("price"),
    "a pattern": lambda s: s.select(pl.col("^pri.*$")),
    "a place": lambda s: s.select(pl.nth(1)),
    "a function as key": lambda s: (
        s.key_by(lambda row: row.url).window(SECOND).aggregate(n=count())
    ),
    "late records": lambda s: (
        s.key_by("url").window(SECOND).side_output_late_data(LATE).aggregate(n=count())
    ),
    "united": lambda s: s.union(s.filter(PRICE > 3)).select("price"),
    "another reader": lambda s: (s.select("price"), s.print(), s.select("url"))[2],
    "a join": lambda s: s.key_by("auction").join(s.select("auction").key_by("auction")),
}


@pytest.mark.parametrize("name", ALL)
def test_all_is_read_where_it_may_be(name: str) -> None:
    assert not made(ALL[name], NexmarkSource(10)).pruned


def test_records_of_unaligned_checkpoints_keep_all() -> None:
    """A program that goes on from one may read others."""
    env = StreamExecutionEnvironment.get_execution_environment(
        JobConfig(checkpoint=CheckpointConfig(timedelta(seconds=1), unaligned=True))
    )
    env.from_source(NexmarkSource(10), NO_TIME).select("price").sink_to(DiscardSink())
    graph = env.get_stream_graph()
    (source,) = (node.spec.source for node in graph.nodes if node.is_source)
    assert not source.pruned
    assert "makes all columns, though only price are read" in env.explain(level="stream")


def test_no_columns_are_not_rows() -> None:
    assert not made(lambda s: s.window_all(SECOND).aggregate(n=count()), NexmarkSource(10)).pruned


def test_of_kinds() -> None:
    def build(s: DataStream) -> DataStream:
        sold = s.of_kind("auction").select("id")
        sold.sink_to(DiscardSink())
        return s.of_kind("bid", "event").filter(PRICE > 3).select("url")

    source = made(build, NexmarkSource(10, kind="all"))
    assert source.columns == ("event",)
    union = source.schema.field("event").type
    assert isinstance(union, UnionType)
    rows = {kind: [field.name for field in union.rows_type(kind)] for kind in union.kinds}
    assert rows == {"person": ["id"], "auction": ["id"], "bid": ["price", "url"]}
    whole = made(lambda s: s.of_kind("bid"), NexmarkSource(10, kind="all"), TIME)
    assert whole.columns == ("event", "dateTime")
    assert len(whole.schema.field("event").type.rows_type("bid")) == 7


def test_what_two_read() -> None:
    one = ColumnReads(frozenset("a"), {("e", "x"): frozenset("p"), ("e", "y"): None})
    two = ColumnReads(frozenset("b"), {("e", "x"): frozenset("q"), ("e", "y"): frozenset("r")})
    both = one | two
    assert str(both) == "a, b, e.x (p, q), e.y whole"
    assert both.columns == {"a", "b", "e"}
    assert both.of_kind("e", "y") is None
    assert both.of_kind("e", "z") == frozenset()
    assert str(both.also(["e"])) == "a, b, e"


def test_the_plan_says_so() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    bids = env.from_source(NexmarkSource(10, kind="all"), NO_TIME).of_kind("bid")
    bids.select("price").sink_to(DiscardSink())
    said = "leaves out what nobody reads: makes event.bid (price)"
    assert said in env.explain(level="stream")


@pytest.mark.parametrize("strings", ["string", "string_view"])
def test_results_are_the_same_every_way(strings: Any) -> None:
    def build(env: Any, source: NexmarkSource) -> DataStream:
        events = env.from_source(source, TIME)
        bids = events.of_kind("bid").filter(PRICE % 2 == 0)
        bidders = bids.key_by("bidder").window(SECOND).aggregate(n=count(), top=max_("price"))
        names = events.of_kind("person").select("name", "id")
        return bidders.map(tuple).union(names.map(tuple))

    def source() -> NexmarkSource:
        return NexmarkSource(400, rate=50, kind="all", strings=strings)

    assert made(lambda s: s.of_kind("bid").select("price"), source()).pruned
    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(column_pruning=False))
    whole = list(build(env, source()).execute_and_collect())
    assert len(whole) > 40
    assert_equivalent(lambda env: build(env, source()), whole, Ways(batch_size=60))

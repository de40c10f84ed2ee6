"""Which exchanges are left out, and that the results are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from strom import (
    ColumnBatch,
    DataStream,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    count,
    max_,
    sum_,
)
from strom.connectors.datagen import DataGenSource
from strom.core.keys import ColumnKey
from strom.engine.graph.model import Forward, KeyGroups, StreamGraph
from strom.testing import Ways, assert_equivalent

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", pa.timestamp("ms"))])
TIME = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
WINDOW = TumblingEventTimeWindows.of(10)


def generate(start: int, number: int) -> pa.RecordBatch:
    numbers = np.arange(start, start + number)
    columns = [numbers * 7 % 13, numbers % 5, numbers.astype("datetime64[ms]")]
    return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=SCHEMA)


@pytest.fixture
def records() -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    return env.from_source(DataGenSource(generate, 400, schema=SCHEMA), TIME, "records")


def partitioner(stream: DataStream, name: str) -> Any:
    """How records come to the operator whose name starts so."""
    stream.print()
    graph: StreamGraph = stream.get_execution_environment().get_stream_graph()
    target = next(node for node in graph.nodes if node.name.startswith(name))
    (edge,) = [edge for edge in graph.edges if edge.target == target.id]
    return edge.partitioner


def windowed(records: DataStream) -> DataStream:
    return records.key_by("k").window(WINDOW).aggregate(n=count(), top=max_("v"))


def test_the_same_key_again_needs_no_exchange(records: DataStream) -> None:
    again = windowed(records).key_by("k").sum("n")
    assert isinstance(partitioner(again, "Sum"), Forward)


def test_what_keeps_the_key_column_keeps_the_partitions(records: DataStream) -> None:
    between = windowed(records).select("k", m="n").filter(pl.col("m") > 0)
    between = between.with_columns(l=pl.col("m") + 1)
    assert isinstance(partitioner(between.key_by("k").sum("m"), "Sum"), Forward)


@pytest.mark.parametrize(
    "change",
    [
        lambda stream: stream.select("n", k="top"),
        lambda stream: stream.with_columns(k=pl.col("k") + 1),
        lambda stream: stream.select(pl.all()),
        lambda stream: stream.select(pl.nth(0), pl.nth(1).alias("n")),
        lambda stream: stream.rebalance().filter(pl.col("n") > 0),
        lambda stream: stream.map_batches(lambda batch: batch),
        lambda stream: stream.set_parallelism(1),
    ],
)
def test_what_changes_key_or_place_does_not(records: DataStream, change: Any) -> None:
    again = change(windowed(records)).key_by("k").sum("n")
    assert isinstance(partitioner(again, "Sum"), KeyGroups)


def test_edges_without_an_exchange_know_by_which_key_their_records_are_in_place(
    records: DataStream,
) -> None:
    """Also where nobody would have exchanged them: another operator may count on it."""
    between = windowed(records).filter(pl.col("n") > 0).name("Between").select("n").name("Less")
    key = Forward(ColumnKey(("k",)))
    assert partitioner(between, "Between") == key
    assert partitioner(between.filter(pl.col("n") > 1).name("Last"), "Less") == key
    assert partitioner(between, "Last") == Forward()
    assert partitioner(windowed(records).name("Twice").key_by("k").sum("n"), "Sum") == key


def test_other_key_groups_on_the_way_need_an_exchange(records: DataStream) -> None:
    """64 of them lie elsewhere than 128, though the operators on both sides of an edge agree."""
    between = windowed(records).filter(pl.col("n") > 0).set_max_parallelism(64)
    again = between.key_by("k").sum("n").set_max_parallelism(64)
    assert isinstance(partitioner(again, "Sum"), KeyGroups)
    assert partitioner(again, "Filter") == Forward()


def test_another_key_needs_an_exchange(records: DataStream) -> None:
    assert isinstance(partitioner(windowed(records).key_by("n").sum("k"), "Sum"), KeyGroups)
    rewritten = records.key_by("k").sum("k").name("Rolling").key_by("k").max("v")
    assert isinstance(partitioner(rewritten, "Max"), KeyGroups)


def test_results_are_the_same() -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        source = DataGenSource(generate, 400, schema=SCHEMA)
        stream = env.from_source(source, TIME, "records").key_by("k")
        totals = stream.window(WINDOW).aggregate(total=sum_("v")).key_by("k")
        return totals.window(TumblingEventTimeWindows.of(50)).aggregate(total=sum_("total"))

    expected: dict[tuple[int, int], int] = {}
    for row in ColumnBatch(generate(0, 400)).rows():
        at = int(np.datetime64(row.at, "ms").astype(int)) // 50 * 50
        expected[row.k, at] = expected.get((row.k, at), 0) + row.v
    rows = [(k, at, at + 50, total) for (k, at), total in expected.items()]
    assert_equivalent(build, rows, Ways(seeds=range(3)))

"""An upsert changelog is refused, while the program is written, by all that would count its updates
as more records; what replaces by the aggregate's key reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from strom import (
    DataStream,
    JobFailedError,
    StreamExecutionEnvironment,
    Types,
    WatermarkStrategy,
    count,
    sum_,
)
from strom.connectors.datagen import DataGenSource
from strom.core.errors import GraphError
from strom.core.row_kind import ROW_KIND

TABLE = pa.table({"k": ["a", "a", "b", "a"], "v": [1, 2, 3, 4], "ts": [1, 2, 3, 4]})

KINDS = {"k": Types.STRING(), "s": Types.LONG(), ROW_KIND: Types.BYTE()}
ROWS = Types.ROW_NAMED(list(KINDS), list(KINDS.values()))

Build = Callable[[Any], DataStream]


def records(env: Any) -> Any:
    def rows(start: int, count: int) -> pa.RecordBatch:
        return TABLE.slice(start, count).combine_chunks().to_batches()[0]

    source = DataGenSource(rows, count=4, schema=TABLE.schema, block=1)
    return env.from_source(source).with_event_time("ts")


def sums(changelog: Any = "upsert") -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    return records(env).key_by("k").aggregate(s=sum_("v"), changelog=changelog).name("sums")


def other(stream: Any) -> Any:
    return records(stream._env)


MISREAD: dict[str, Build] = {
    "aggregate": lambda s: s.key_by("k").aggregate(n=count()),
    "top-n": lambda s: s.key_by("k").top_n(1, ("s", "desc")),
    "first": lambda s: s.key_by("k").deduplicate("first"),
    "first of an order": lambda s: s.key_by("k").deduplicate("first", order_by="s"),
    "last of an order": lambda s: s.key_by("k").deduplicate("last", order_by="s"),
    "left of a join": lambda s: s.key_by("k").join(other(s).key_by("k")),
    "right of a join": lambda s: other(s).key_by("k").join(s.key_by("k")),
    "broadcast table": lambda s: other(s).broadcast_join(s, on="k"),
    "behind a filter": lambda s: s.filter(pl.col("s") > 1).key_by("k").aggregate(n=count()),
    "behind a function": lambda s: s.filter(lambda r: r.s > 1).key_by("k").top_n(1, "s"),
    "behind columns": lambda s: s.with_columns(t=pl.col("s")).key_by("k").aggregate(n=count()),
    "behind a plain selection": lambda s: s.select("k", "s").key_by("k").aggregate(n=count()),
    "behind a selection": lambda s: s.select("s", ROW_KIND).key_by("s").aggregate(n=count()),
    "behind everything": lambda s: s.select(pl.all()).key_by("k").aggregate(n=count()),
    "behind watermarks": lambda s: (
        s.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps())
        .key_by("k")
        .aggregate(n=count())
    ),
    "behind a lookup": lambda s: (
        s.lookup_join(TABLE.slice(0, 1), on="k").key_by("k").aggregate(n=count())
    ),
    "behind a declared map": lambda s: (
        s.map(lambda r: r, output_type=ROWS).key_by("k").aggregate(n=count())
    ),
    "united": lambda s: s.union(s).key_by("k").aggregate(n=count()),
    "rebalanced": lambda s: s.rebalance().key_by("k").aggregate(n=count()),
    "last by another column": lambda s: s.key_by("s").deduplicate("last"),
    "last by what the key was called": lambda s: (
        s.with_columns(k=pl.col("s")).key_by("k").deduplicate("last")
    ),
    "last behind a filter": lambda s: s.filter(pl.col("s") < 3).key_by("k").deduplicate("last"),
    "versions by another column": lambda s: other(s).key_by("v").temporal_join(s.key_by("s")),
    "versions behind a filter": lambda s: (
        other(s).key_by("k").temporal_join(s.filter(lambda r: r.s < 3).key_by("k"))
    ),
}


@pytest.mark.parametrize("build", MISREAD.values(), ids=MISREAD)
def test_what_would_count_updates_refuses_upserts(build: Build) -> None:
    advice = '(changelog="retract"|key the versions)'
    with pytest.raises(GraphError, match=rf"\w+\(.*\): .* upsert changelog of 'sums'.*{advice}"):
        build(sums())
    build(sums("retract"))


def test_a_key_that_is_deleted_would_come_back() -> None:
    twice = sums("retract").key_by("s").aggregate(n=count(), changelog="upsert")
    with pytest.raises(GraphError, match="deleted"):
        twice.key_by("s").deduplicate("last")


READ: dict[str, Build] = {
    "last": lambda s: s.key_by("k").deduplicate("last"),
    "last of renamed": lambda s: (
        s.select(pl.col("k").alias("key"), "s", ROW_KIND).key_by("key").deduplicate("last")
    ),
    "last of some keys": lambda s: s.filter(pl.col("k") == "a").key_by("k").deduplicate("last"),
    "kinds renamed": lambda s: s.select("k", kind=ROW_KIND).key_by("k").aggregate(n=count()),
    "computed kinds": lambda s: (
        s.with_columns(pl.lit(0).cast(pl.Int8).alias(ROW_KIND)).key_by("k").aggregate(n=count())
    ),
    "versions": lambda s: other(s).key_by("k").temporal_join(s.key_by("k")),
    "stream of a broadcast": lambda s: s.broadcast_join(other(s).select("k", "v"), on="k"),
    "function": lambda s: s.map(lambda r: (r.k, r.s)),
}


@pytest.mark.parametrize("build", READ.values(), ids=READ)
def test_what_replaces_by_key_reads_upserts(build: Build) -> None:
    list(build(sums()).execute_and_collect())


def test_the_last_of_upserts_is_the_table() -> None:
    left: dict[Any, int] = {}
    for row in sums().key_by("k").deduplicate("last").execute_and_collect():
        if row[ROW_KIND] in (0, 2):
            left[row.k] = row.s
    assert left == {"a": 7, "b": 3}


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        (pa.array([0, 9], pa.int8()), "holds 9"),
        (pa.array([0, -1], pa.int8()), "holds -1"),
        (pa.array([0, 256], pa.int64()), "holds 256"),
        (pa.array([0, None], pa.int8()), "holds a null"),
        (pa.array(["+I", "-D"]), "has type string"),
    ],
)
@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.key_by("k").aggregate(n=count()),
        lambda s: s.key_by("k").deduplicate("last"),
        lambda s: s.key_by("k").join(other(s).key_by("k")),
        lambda s: s.lookup_join(TABLE.select(["k"]), on="k"),
        lambda s: other(s).broadcast_join(s, on="k"),
    ],
)
def test_a_kind_that_is_none_is_an_error(kinds: pa.Array, text: str, build: Build) -> None:
    data = pa.table({"k": ["a", "b"], ROW_KIND: kinds})
    env = StreamExecutionEnvironment.get_execution_environment()
    results = build(env.from_collection(data)).name("it")
    with pytest.raises(JobFailedError, match=f"operator 'it'.*{ROW_KIND} {text}"):
        list(results.execute_and_collect())

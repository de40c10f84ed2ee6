"""A select of a changelog keeps its row kinds, known or not when the program is written."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from strom import GraphError, JobConfig, StreamExecutionEnvironment, count, sum_

ROWS = pa.table(
    {
        "k": pa.array([1, 2, 1, 2, 3], pa.int64()),
        "v": pa.array([10, 20, 10, 20, 30], pa.int64()),
        "__row_kind": pa.array([0, 0, 3, 1, 0], pa.int8()),
    }
)
"""After it there is one row: (3, 30)."""


def changes(env: Any) -> Any:
    return env.from_collection(ROWS)


def table(rows: Any) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for *row, kind in rows:
        found[tuple(row)] += 1 if kind in (0, 2) else -1
    return +found


@pytest.mark.parametrize(
    "columns",
    [
        ("v",),
        (pl.col("v"),),
        (pl.col("v") + 0,),
        ("v", "__row_kind"),
        (pl.col("v"), pl.col("__row_kind")),
    ],
)
def test_deleted_rows_stay_deleted(columns: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    selected = changes(env).select(*columns)
    assert table(selected.execute_and_collect()) == {(30,): 1}


def test_sums_behind_a_select() -> None:
    for size in (1, 2, 100):
        config = JobConfig(batch_size=size)
        env = StreamExecutionEnvironment.get_execution_environment(config)
        picked = changes(env).select(value="v", key="k")
        sums = picked.key_by("key").aggregate(total=sum_("value"), n=count())
        assert table(sums.execute_and_collect()) == {(3, 30, 1): 1}


def test_what_names_the_kinds_says_what_becomes_of_them() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    plain = changes(env).select("v", kind=pl.col("__row_kind").cast(pl.Int16))
    assert sorted(tuple(row) for row in plain.execute_and_collect()) == [
        (10, 0),
        (10, 3),
        (20, 0),
        (20, 1),
        (30, 0),
    ]
    env = StreamExecutionEnvironment.get_execution_environment()
    without = changes(env).select(pl.exclude("__row_kind"))
    assert sorted(without.execute_and_collect()) == [(1, 10), (1, 10), (2, 20), (2, 20), (3, 30)]


def test_upserts_are_refused_behind_a_select() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    upserts = changes(env).key_by("k").aggregate(changelog="upsert", total=sum_("v"))
    with pytest.raises(GraphError, match="upsert changelog"):
        upserts.select("k", "total").key_by("k").aggregate(n=count())

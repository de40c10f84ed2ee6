"""Parquet whose columns are left out because nobody reads them: the others are as they are."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from drawn_ways import assert_equivalent
from strom import (
    DataStream,
    JobConfig,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    max_,
)
from strom.api.connectors.reads import ColumnReads
from strom.connectors.files import FileSource
from strom.core.errors import ConnectorError
from strom.testing import Ways

SCHEMA = pa.schema({"n": pa.int64(), "s": pa.string(), "t": pa.timestamp("ms"), "x": pa.float64()})


def table(numbers: range) -> pa.Table:
    columns = [
        list(numbers),
        [f"name {i % 3}" for i in numbers],
        [1000 * i for i in numbers],
        [i / 4 for i in numbers],
    ]
    return pa.table([pa.array(c, t) for c, t in zip(columns, SCHEMA.types, strict=True)], SCHEMA)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for day, numbers in enumerate((range(20), range(20, 33))):
        into = tmp_path / f"day={day}"
        into.mkdir()
        pq.write_table(table(numbers), into / "a.parquet", row_group_size=6)
    return tmp_path


def read(*names: str) -> ColumnReads:
    return ColumnReads(frozenset(names))


@pytest.mark.parametrize("known", [True, False])
def test_only_what_is_read_is_made(folder: Path, run: Any, known: bool) -> None:
    source = FileSource(folder)
    if known:
        assert source.schema.names == ["n", "s", "t", "x", "day"]
    less = source.reading(read("x", "n", "day", "none"))
    assert less is not None
    done = run(less, parallelism=2).finish()
    assert less.schema.names == ["n", "x", "day"]
    assert sorted(done.rows()) == [(i, i / 4, int(i >= 20)) for i in range(33)]
    assert source.schema.names == ["n", "s", "t", "x", "day"]


def test_a_checkpoint_goes_on_whatever_is_read(folder: Path, run: Any) -> None:
    source = FileSource(folder)
    first = run(source.reading(read("s")), batch_size=4)
    while len(first.rows()) < 10:  # four of the second row group
        first.step(0)
    first.source = source.reading(read("n"))
    rest = first.restored(first.snapshot(), 1).finish()
    assert rest.rows() == [(i,) for i in range(10, 33)]


def test_a_filter_may_need_what_nobody_reads(folder: Path, run: Any) -> None:
    wanted = (pc.field("n") > 17) & (pc.field("day") == 0)
    less = FileSource(folder, filter=wanted).reading(read("s"))
    assert run(less).finish().rows() == [("name 0",), ("name 1",)]


def test_columns_of_folders_alone(folder: Path, run: Any) -> None:
    less = FileSource(folder).reading(read("day"))
    assert run(less).finish().rows() == [(int(i >= 20),) for i in range(33)]


def test_where_nothing_can_be_left_out(folder: Path, tmp_path: Path, run: Any) -> None:
    source = FileSource(folder)
    of_none = source.reading(read("none"))
    assert of_none is not None
    assert of_none.schema == source.schema
    assert source.reading(read("none")) is None  # it is known now what there is
    assert source.reading(read(*source.schema.names)) is None
    assert FileSource(folder, columns=["n"]).reading(read("n", "x")) is None
    assert FileSource(folder, schema=SCHEMA).reading(read(*SCHEMA.names)) is None
    pacsv.write_csv(table(range(3)), tmp_path / "a.csv")
    assert FileSource(tmp_path / "a.csv", format="csv").reading(read("n")) is None


def test_files_need_to_agree_in_what_is_read(tmp_path: Path, run: Any) -> None:
    pq.write_table(pa.table({"n": [1], "s": ["a"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": [2], "s": [b"b"]}), tmp_path / "b.parquet")
    source = FileSource(tmp_path)
    assert run(source.reading(read("n"))).finish().rows() == [(1,), (2,)]
    with pytest.raises(ConnectorError, match=r"b\.parquet"):
        run(source.reading(read("s"))).finish()


def test_programs_give_the_same(folder: Path) -> None:
    second = TumblingEventTimeWindows.of(timedelta(seconds=5))
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("t")

    def build(env: StreamExecutionEnvironment) -> DataStream:
        rows = env.from_source(FileSource(folder), times).filter(pl.col("n") % 2 == 0)
        return rows.key_by("s").window(second).aggregate(top=max_("x")).map(tuple)

    env = StreamExecutionEnvironment.get_execution_environment()
    build(env).print()
    assert "leaves out what nobody reads: makes n, s, t, x" in env.explain(level="stream")
    whole = StreamExecutionEnvironment.get_execution_environment(JobConfig(column_pruning=False))
    expected = list(build(whole).execute_and_collect())
    assert len(expected) == 17
    assert_equivalent(build, expected, Ways(batch_size=5))

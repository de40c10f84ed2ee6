"""Generated and file sources, Parquet files as output; the committed files are compared, after
crashes and rescales too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strom import TumblingEventTimeWindows, WatermarkStrategy, count, sum_
from strom.connectors.datagen import DataGenSource
from strom.connectors.files import FileSource, ParquetSink
from strom.testing.equivalence import assert_equivalent, assert_files_equivalent

SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.int64()), ("ts", pa.int64())])
COUNT = 300


def numbers(start: int, how_many: int) -> pa.RecordBatch:
    """Record n has key n % 7; neighbours are swapped in time."""
    ns = list(range(start, start + how_many))
    return pa.RecordBatch.from_pydict(
        {"n": ns, "k": [n % 7 for n in ns], "ts": [10 * (n ^ 1) for n in ns]}, schema=SCHEMA
    )


def strategy() -> WatermarkStrategy:
    return WatermarkStrategy.for_bounded_out_of_orderness(100).with_timestamp_assigner("ts")


def read_parquet(folder: Path) -> list[Any]:
    """What was committed, as tuples: hidden and staged files are nobody's output."""
    rows: list[Any] = []
    for path in sorted(folder.rglob("part-*.parquet")):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            rows += [tuple(row.values()) for row in pq.ParquetFile(path).read().to_pylist()]
    return rows


def window_counts(ns: range) -> list[Any]:
    found: dict[Any, list[int]] = {}
    for n in ns:
        start = 10 * (n ^ 1) // 500 * 500
        found.setdefault((n % 7, start, start + 500), []).append(n)
    return [(*window, len(held), sum(held)) for window, held in found.items()]


@pytest.mark.parametrize("contiguous", [False, True])
def test_generated_records(contiguous: bool) -> None:
    def build(env: Any) -> Any:
        source = DataGenSource(
            numbers, COUNT, schema=SCHEMA, splits=3, block=8, contiguous=contiguous
        )
        stream = env.from_source(source, strategy())
        windows = stream.key_by("k").window(TumblingEventTimeWindows.of(500))
        return {"all": stream.select("n"), "windows": windows.aggregate(n=count(), s=sum_("n"))}

    windows = [("windows", w) for w in window_counts(range(COUNT))]
    assert_equivalent(build, [*(("all", (n,)) for n in range(COUNT)), *windows])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of different lengths, several row groups each."""
    for i, (start, stop) in enumerate([(0, 120), (120, 130), (130, 260), (260, COUNT)]):
        table = pa.Table.from_batches([numbers(start, stop - start)])
        pq.write_table(table, tmp_path / f"input-{i}.parquet", row_group_size=40)
    return tmp_path


def test_files_in_files_out(folder: Path) -> None:
    def build(env: Any, out: Path) -> None:
        stream = env.from_source(FileSource(folder, columns=["n", "k"]))
        stream.filter(pl.col("n") % 2 == 0).sink_to(ParquetSink(out)).uid("out")

    expected = [(n, n % 7) for n in range(0, COUNT, 2)]
    assert_files_equivalent(build, read_parquet, expected)


def test_windows_into_files_and_a_second_sink(tmp_path: Path) -> None:
    """Two sinks in one job: both commit the same checkpoints."""

    def build(env: Any, out: Path) -> None:
        source = DataGenSource(numbers, COUNT, schema=SCHEMA, block=8)
        stream = env.from_source(source, strategy())
        stream.select("n").sink_to(ParquetSink(out / "raw")).uid("raw")
        windows = stream.key_by("k").window(TumblingEventTimeWindows.of(500))
        windows.aggregate(n=count(), s=sum_("n")).sink_to(ParquetSink(out / "windows")).uid("w")

    expected = [*((n,) for n in range(COUNT)), *window_counts(range(COUNT))]
    assert_files_equivalent(build, read_parquet, expected)


def test_partitioned_files(tmp_path: Path) -> None:
    def build(env: Any, out: Path) -> None:
        source = DataGenSource(numbers, COUNT, schema=SCHEMA, block=8)
        sink = ParquetSink(out, partition_by=["k"], roll_rows=10)
        env.from_source(source).select("n", "k").sink_to(sink).uid("out")

    def read(out: Path) -> list[Any]:
        rows = []
        for path in sorted(out.glob("k=*/part-*.parquet")):
            key = int(path.parent.name.removeprefix("k="))
            rows += [(r["n"], key) for r in pq.ParquetFile(path).read().to_pylist()]
        return rows

    assert_files_equivalent(build, read, [(n, n % 7) for n in range(COUNT)])

"""Generated and file sources, Parquet files as output; the committed files are compared, after
crashes and rescales too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from drawn_ways import assert_equivalent, assert_files_equivalent
from strom import Source, SplitEnumerator, TumblingEventTimeWindows, WatermarkStrategy, count, sum_
from strom.connectors.datagen import DataGenSource
from strom.connectors.files import (
    BucketAssigner,
    Encoder,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    FileSource,
    ParquetSink,
    RollingPolicy,
)
from strom.testing.equivalence import Ways

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


def test_partitions_out_and_in_with_a_filter(tmp_path: Path) -> None:
    table = pa.Table.from_batches([numbers(0, COUNT)])
    for key in range(7):
        (tmp_path / f"k={key}").mkdir()
        part = table.filter(pc.field("k") == key).drop_columns(["k"])
        pq.write_table(part, tmp_path / f"k={key}" / "a.parquet", row_group_size=10)

    def build(env: Any, out: Path) -> None:
        wanted = (pc.field("k") < 5) & (pc.field("n") >= 40)
        source = FileSource(tmp_path, columns=["n", "k"], filter=wanted)
        env.from_source(source).sink_to(ParquetSink(out)).uid("out")

    expected = [(n, n % 7) for n in range(40, COUNT) if n % 7 < 5]
    assert_files_equivalent(build, read_parquet, expected)


FILES, ROWS_OF_FILE = 10, 24


class GrowingFolder(Source):
    """A watched folder in which a file appears whenever splits are asked for; ends behind the
    last one, so that a job with it does."""

    bounded = True

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.watched = FileSource(folder, "csv", schema=SCHEMA, monitor_interval=1)

    @property
    def schema(self) -> pa.Schema | None:
        return self.watched.schema

    def create_enumerator(self, context: Any, restored: Any) -> SplitEnumerator:
        return Growing(self.folder, self.watched.create_enumerator(context, restored))

    def create_reader(self, context: Any) -> Any:
        return self.watched.create_reader(context)


class Growing(SplitEnumerator):
    def __init__(self, folder: Path, watching: Any) -> None:
        self.folder = folder
        self.watching = watching

    def next_splits(self, subtask: int) -> Any:
        there = len(list(self.folder.glob("*.csv")))
        if there < FILES:
            rows = numbers(there * ROWS_OF_FILE, ROWS_OF_FILE).to_pylist()
            lines = ["n,k,ts", *(f"{row['n']},{row['k']},{row['ts']}" for row in rows)]
            hidden = self.folder / f".{there}.csv"
            hidden.write_text("\n".join(lines) + "\n")
            hidden.rename(self.folder / f"{there}.csv")
        splits = self.watching.next_splits(subtask)
        over = len(self.watching._seen) == FILES
        return splits or (None if over else splits)

    def snapshot(self) -> Any:
        return self.watching.snapshot()


def test_a_watched_folder(tmp_path: Path) -> None:
    """Files appear before, between and after checkpoints, crashes and rescales."""

    def build(env: Any, out: Path) -> None:
        stream = env.from_source(GrowingFolder(out / "in"), strategy()).uid("watched")
        stream.select("n", "k").sink_to(ParquetSink(out / "rows")).uid("out")
        windows = stream.key_by("k").window(TumblingEventTimeWindows.of(50_000))
        windows.aggregate(n=count(), s=sum_("n")).sink_to(ParquetSink(out / "windows")).uid("w")

    total = range(FILES * ROWS_OF_FILE)
    windows = [
        (k, 0, 50_000, len(ns), sum(ns))
        for k in range(7)
        for ns in [[n for n in total if n % 7 == k]]
    ]
    expected = [*((n, n % 7) for n in total), *windows]
    assert_files_equivalent(build, read_parquet, expected)


def every(checkpoints: int) -> FileCompactStrategy:
    return FileCompactStrategy.builder().enable_compaction_on_checkpoint(checkpoints).build()


@pytest.mark.parametrize("checkpoints", [1, 3])
def test_compacted_files(checkpoints: int) -> None:
    """No record is lost in a file that is held, or published with it and in a merged one."""

    def build(env: Any, out: Path) -> None:
        source = DataGenSource(numbers, COUNT, schema=SCHEMA, block=8)
        sink = ParquetSink(out, partition_by=["k"], roll_rows=10, compact=every(checkpoints))
        env.from_source(source).select("n", "k").sink_to(sink).uid("out")

    def read(out: Path) -> list[Any]:
        assert not list((out / ".staging").rglob("held/*")), "files were left to a next checkpoint"
        table = pq.read_table(out, partitioning="hive") if any(out.glob("k=*")) else pa.table({})
        return [(row["n"], row["k"]) for row in table.to_pylist()]

    expected = [(n, n % 7) for n in range(COUNT)]
    assert_files_equivalent(build, read, expected, Ways(seeds=range(3)))


def test_row_files(tmp_path: Path) -> None:
    """PyFlink's builder, with all that it offers."""

    def build(env: Any, out: Path) -> None:
        source = DataGenSource(numbers, COUNT, schema=SCHEMA, block=8)
        sink = (
            FileSink.for_row_format(out, Encoder.simple_string_encoder())
            .with_bucket_assigner(BucketAssigner.date_time_bucket_assigner())
            .with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=20))
            .enable_compact(every(2), FileCompactor.concat_file_compactor("#\n"))
            .build()
        )
        env.from_source(source).select("n").sink_to(sink).uid("out")

    def read(out: Path) -> list[Any]:
        texts = [path.read_text() for path in out.glob("[0-9]*/part-*")]
        return [(int(line),) for text in texts for line in text.splitlines() if line != "#"]

    assert_files_equivalent(build, read, [(n,) for n in range(COUNT)])

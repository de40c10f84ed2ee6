"""Spark frames as streams and streams as Spark frames, with the program's own Spark session."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from strom import (
    JobFailedError,
    RestartStrategies,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    count,
    sum_,
)
from strom.connectors.files import ParquetSink
from strom.connectors.spark import from_dataframe, from_streaming_dataframe
from strom.connectors.spark.spool import ENDED, RUNNING, Spool
from strom.core.errors import ConfigurationError, TypeMismatchError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NOW = {"availableNow": True}
ROWS = "id BIGINT, word STRING, at TIMESTAMP"


def environment(folder: Path | None = None) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    if folder is not None:
        env.enable_checkpointing(timedelta(milliseconds=50), storage=str(folder / "checkpoints"))
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
    return env


def put(folder: Path, number: int, ids: range) -> None:
    """A JSON file for Spark's file source; id n is at second n."""
    folder.mkdir(parents=True, exist_ok=True)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    rows = [
        {"id": n, "word": f"w{n % 3}", "at": (start + timedelta(seconds=n)).isoformat()}
        for n in ids
    ]
    hidden = folder / f".{number}"
    hidden.write_text("\n".join(map(json.dumps, rows)))
    os.utime(hidden, (start.timestamp() + number,) * 2)  # Spark takes older files first
    hidden.rename(folder / f"{number:04d}.json")


def read_stream(spark: Any, folder: Path, rows: str = ROWS, files: int = 1) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    return spark.readStream.schema(rows).option("maxFilesPerTrigger", files).json(str(folder))


def ids(folder: Path) -> list[int]:
    """Sorted ids that a reader of the folder sees."""
    files = [file for file in folder.glob("*.parquet") if not file.name.startswith(".")]
    return sorted(n for file in files for n in pq.ParquetFile(file).read()["id"].to_pylist())


@pytest.fixture
def stop_queries(spark: Any) -> Any:
    yield
    for query in spark.streams.active:
        query.stop()


def test_a_frame_becomes_a_stream_and_a_stream_a_frame(spark: Any, tmp_path: Path) -> None:
    env = environment()
    frame = spark.range(0, 1000, numPartitions=4).selectExpr("id", "id % 7 AS k")
    doubled = from_dataframe(env, frame).map_batches(
        lambda t: t.set_column(0, "id", pc.multiply(t["id"], 2)),
        output_type=pa.schema({"id": pa.int64(), "k": pa.int64()}),
    )
    back = doubled.to_dataframe(spark, job_name="there and back")
    assert back.schema.simpleString() == "struct<id:bigint,k:bigint>"
    rows = sorted(tuple(r) for r in back.collect())
    assert rows == [(2 * n, n % 7) for n in range(1000)]


def test_a_stream_without_records_is_an_empty_frame(spark: Any) -> None:
    env = environment()
    none = from_dataframe(env, spark.range(5).where("id > 9"))
    back = none.to_dataframe(spark)
    assert back.collect() == []
    assert back.columns == ["id"]


def test_a_folder_that_holds_the_frame_is_not_computed_again(spark: Any, tmp_path: Path) -> None:
    def stream(frame: Any) -> Any:
        return from_dataframe(environment(), frame, tmp_path / "kept")

    first = sorted(stream(spark.range(3)).execute_and_collect(limit=9))
    assert sorted(stream(spark.range(100)).execute_and_collect(limit=9)) == first
    with pytest.raises(ConfigurationError, match="'id' is gone, 'x' is new"):
        stream(spark.range(3).withColumnRenamed("id", "x"))


class Failing:
    """Raises once behind so many rows, when a checkpoint may have been taken."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.mark = folder / "failed"
        self.rows = rows
        self.seen = 0

    def __call__(self, table: Any) -> Any:
        self.seen += table.num_rows
        time.sleep(0.1)
        if self.seen >= self.rows and not self.mark.exists():
            self.mark.touch()
            raise RuntimeError("on purpose")
        return table


def test_a_streaming_frame_is_read_exactly_once_through_a_failure(
    spark: Any, tmp_path: Path
) -> None:
    for n in range(6):
        put(tmp_path / "in", n, range(n * 10, n * 10 + 10))
    env = environment(tmp_path)
    frame = read_stream(spark, tmp_path / "in")
    stream = from_streaming_dataframe(env, frame, tmp_path / "spool", trigger=NOW)
    stream.map_batches(Failing(tmp_path, 20)).sink_to(ParquetSink(tmp_path / "out"))
    env.execute("once")
    assert (tmp_path / "failed").exists()
    assert ids(tmp_path / "out") == list(range(60))


def test_a_micro_batch_that_spark_runs_again_is_not_spooled_again(
    spark: Any, tmp_path: Path, until: Callable[..., Any]
) -> None:
    put(tmp_path / "in", 0, range(10))
    frame = read_stream(spark, tmp_path / "in")
    folder = tmp_path / "spool"

    def run() -> list[int]:
        """Query and job, to their end."""
        env = environment()
        stream = from_streaming_dataframe(env, frame, folder, trigger=NOW)
        return sorted(row.id for row in stream.execute_and_collect())

    assert run() == list(range(10))
    # As if Spark had died between the spooling of the newest micro-batch and its commit.
    commits = sorted((folder / "query" / "commits").glob("[0-9]*"))
    commits[-1].unlink()
    commits[-1].with_name(f".{commits[-1].name}.crc").unlink(missing_ok=True)
    put(tmp_path / "in", 1, range(10, 20))
    assert run() == list(range(20))


def test_many_micro_batches_leave_few_behind(
    spark: Any, tmp_path: Path, until: Callable[..., Any], stop_queries: Any
) -> None:
    env = environment(tmp_path)
    folder = tmp_path / "spool"
    frame = read_stream(spark, tmp_path / "in")
    stream = from_streaming_dataframe(env, frame, folder)
    stream.sink_to(ParquetSink(tmp_path / "out"))
    client = env.execute_async("many")
    for n in range(10):
        put(tmp_path / "in", n, range(n * 4, n * 4 + 4))
        until(lambda n=n: len(ids(tmp_path / "out")) >= n * 4, "the rows")
    until(lambda: ids(tmp_path / "out") == list(range(40)), "all rows")
    left = list((folder / "batches").iterdir())
    assert len(left) <= 5
    assert list(folder.glob(".gone-*")) == []
    spark.streams.active[0].stop()  # the stream ends with its query
    client.get_job_execution_result(timedelta(seconds=60))
    assert ids(tmp_path / "out") == list(range(40))


def test_sparks_watermark_becomes_ours(spark: Any, tmp_path: Path) -> None:
    for n in range(6):
        put(tmp_path / "in", n, range(n * 20, n * 20 + 20))
    env = environment()
    frame = read_stream(spark, tmp_path / "in").withWatermark("at", "5 seconds")
    stream = from_streaming_dataframe(
        env,
        frame,
        tmp_path / "spool",
        trigger=NOW,
        watermark_strategy="spark",
        event_time="at",
    )
    windows = stream.key_by("word").window(TumblingEventTimeWindows.of(timedelta(seconds=30)))
    found = list(windows.aggregate(n=count(), total=sum_("id")).execute_and_collect())
    assert len(found) == 12
    assert sum(row.n for row in found) == 120
    assert sum(row.total for row in found) == sum(range(120))
    marks = [b.watermark for b in Spool(tmp_path / "spool").batches(0)]
    start = 1_704_067_200_000
    assert marks[:1] == [None]
    assert marks[1:6] == [start + (n * 20 + 19 - 5) * 1000 for n in range(5)]


def test_windows_that_spark_closed_are_in_time_for_ours(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    for n in range(6):
        put(tmp_path / "in", n, range(n * 20, n * 20 + 20))
    frame = read_stream(spark, tmp_path / "in").withWatermark("at", "1 seconds")
    minutes = frame.groupBy(f.window("at", "10 seconds")).count()
    flat = minutes.selectExpr("window.start AS start", "count")
    env = environment()
    stream = from_streaming_dataframe(
        env,
        flat,
        tmp_path / "spool",
        trigger=NOW,
        watermark_strategy="spark",
        event_time="start",
    )
    found = list(
        stream.window_all(TumblingEventTimeWindows.of(timedelta(seconds=20)))
        .aggregate(total=sum_("count"))
        .execute_and_collect()
    )
    # Spark keeps the last window, 110 to 120 s, which its watermark never closes.
    assert [row.total for row in found] == [20, 20, 20, 20, 20, 10]


def test_a_query_with_other_columns_than_before(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    put(tmp_path / "in", 0, range(3))

    def run(columns: list[str], **settings: Any) -> list[Any]:
        frame = read_stream(spark, tmp_path / "in").selectExpr(*columns)
        env = environment()
        stream = from_streaming_dataframe(env, frame, folder, trigger=NOW, **settings)
        return [tuple(row) for row in stream.execute_and_collect()]

    assert run(["id"]) == [(0,), (1,), (2,)]
    with pytest.raises(ConfigurationError, match=r"'word' is new; begin with a new folder, or"):
        run(["id", "word"])
    with pytest.raises(ConfigurationError, match=r"'id' was bigint and is string; begin with a ne"):
        run(["CAST(id AS STRING) AS id"], drift="fill")
    put(tmp_path / "in", 1, range(3, 5))
    filled = run(["word"], drift="fill")
    assert filled == [(0, None), (1, None), (2, None), (None, "w0"), (None, "w1")]


def test_a_folder_of_another_query_is_refused(spark: Any, tmp_path: Path) -> None:
    """Its micro-batches would be taken for this one's."""
    put(tmp_path / "in", 0, range(3))
    frame = read_stream(spark, tmp_path / "in")
    folder = tmp_path / "spool"
    env = environment()
    list(from_streaming_dataframe(env, frame, folder, trigger=NOW).execute_and_collect())
    shutil.rmtree(folder / "query")
    with pytest.raises(ConfigurationError, match="of another query, or Spark's checkpoint of this"):
        from_streaming_dataframe(env, frame, folder, trigger=NOW)
    from_dataframe(env, spark.range(3), tmp_path / "frame")
    numbers = read_stream(spark, tmp_path / "in").select("id")
    with pytest.raises(ConfigurationError, match="holds micro-batches of another query"):
        from_streaming_dataframe(env, numbers, tmp_path / "frame", trigger=NOW)


def test_a_query_that_cannot_go_on_fails_the_job_with_its_reason(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strom.connectors.spark import spooling

    monkeypatch.setattr(spooling, "_PAUSES_S", (0.1,))
    put(tmp_path / "in", 0, range(3))
    frame = read_stream(spark, tmp_path / "in").selectExpr(
        "id", "CASE WHEN id = 1 THEN raise_error('no ones, please') END AS x"
    )
    env = environment()
    stream = from_streaming_dataframe(env, frame, tmp_path / "spool", trigger=NOW)
    with pytest.raises(
        JobFailedError, match=r"query that feeds it failed: 2 times in a row: .*no ones, please"
    ):
        list(stream.execute_and_collect())


def test_a_query_that_fails_once_is_started_again(
    spark: Any, tmp_path: Path, until: Callable[..., Any], stop_queries: Any
) -> None:
    put(tmp_path / "in", 0, range(5))
    env = environment()
    folder = tmp_path / "spool"
    frame = read_stream(spark, tmp_path / "in")
    stream = from_streaming_dataframe(env, frame, folder)
    stream.sink_to(ParquetSink(tmp_path / "out"))
    until(lambda: Spool(folder).has(0), "the first micro-batch")
    # A file in the place of the next micro-batch's folder: Spark cannot write it.
    blocked = folder / ".writing"
    shutil.rmtree(blocked)
    blocked.touch()
    put(tmp_path / "in", 1, range(5, 10))
    until(lambda: not spark.streams.active, "the failure")
    blocked.unlink()
    until(lambda: Spool(folder).has(1), "the second micro-batch")
    state = Spool(folder).state()
    assert state is not None
    assert state.state in (RUNNING, ENDED)


def test_both_directions_in_one_job(
    spark: Any, tmp_path: Path, until: Callable[..., Any], stop_queries: Any
) -> None:
    """Spark query -> stream -> Spark query -> table in memory."""
    put(tmp_path / "in", 0, range(10))
    env = environment(tmp_path)
    there = from_streaming_dataframe(env, read_stream(spark, tmp_path / "in"), tmp_path / "spool")
    back = there.filter(lambda row: row.id % 2 == 0).to_streaming_dataframe(spark, tmp_path / "b")
    assert back.isStreaming
    assert back.schema.simpleString() == "struct<id:bigint,word:string,at:timestamp>"
    query = back.writeStream.format("memory").queryName("evens").start()
    client = env.execute_async("both ways")

    def rows() -> list[int]:
        return sorted(r.id for r in spark.table("evens").select("id").collect())

    until(lambda: rows() == [0, 2, 4, 6, 8], "the first rows")
    put(tmp_path / "in", 1, range(10, 20))
    until(lambda: rows() == list(range(0, 20, 2)), "the second rows")
    query.stop()
    client.cancel()


def test_a_table_of_sparks_catalog(spark: Any, tmp_path: Path) -> None:
    def write(rows: range, table: str = "results", **more: Any) -> None:
        env = environment()
        columns = ["id", "id % 2 AS part", *more.pop("add", [])]
        frame = spark.range(rows.start, rows.stop).selectExpr(*columns)
        stream = from_dataframe(env, frame)
        stream.write_spark_table(spark, table, tmp_path / table, **more)
        env.execute("table")

    try:
        write(range(10))
        assert spark.table("results").count() == 10
        write(range(10, 25))
        spark.sql("REFRESH TABLE results")
        assert sorted(r.id for r in spark.table("results").collect()) == list(range(25))
        with pytest.raises(ConfigurationError, match="table 'results' has the columns"):
            write(range(3), add=["'x' AS more"])
        parts = spark.range(3).selectExpr("id", "id % 2 AS part")
        other = from_dataframe(environment(), parts)
        with pytest.raises(ConfigurationError, match=r"would write Parquet into '.*elsewhere'"):
            other.write_spark_table(spark, "results", tmp_path / "elsewhere")
        write(range(10), "parted", partition_by=["part"])
        spark.sql("ALTER TABLE parted RECOVER PARTITIONS")
        assert spark.table("parted").where("part = 1").count() == 5
    finally:
        spark.sql("DROP TABLE IF EXISTS results")
        spark.sql("DROP TABLE IF EXISTS parted")


def test_what_does_not_fit_is_refused_by_name(spark: Any, tmp_path: Path) -> None:
    env = environment()
    stream = read_stream(spark, tmp_path / "in")
    with pytest.raises(TypeMismatchError, match="column 'i' has Spark type interval day to hour"):
        from_dataframe(env, spark.sql("SELECT INTERVAL '1 2' DAY TO HOUR i"))
    with pytest.raises(ConfigurationError, match="is not streaming; from_dataframe takes it"):
        from_streaming_dataframe(env, spark.range(3), tmp_path / "a")
    with pytest.raises(ConfigurationError, match="needs event_time"):
        from_streaming_dataframe(env, stream, tmp_path / "b", watermark_strategy="spark")
    with pytest.raises(ConfigurationError, match="expected a streaming DataFrame, or a function"):
        from_streaming_dataframe(env, 3, tmp_path / "c")
    objects = env.from_collection([1, 2])
    with pytest.raises(ConfigurationError, match="Spark must know the columns"):
        objects.to_streaming_dataframe(spark, tmp_path / "d")
    with pytest.raises(ConfigurationError, match="table 't' needs columns"):
        objects.write_spark_table(spark, "t", tmp_path / "e")
    with pytest.raises(ConfigurationError, match="is not empty"):
        objects.to_dataframe(spark, tmp_path)


def test_timestamps_of_records_come_from_a_strategy(spark: Any) -> None:
    env = environment()
    frame = spark.range(40).selectExpr("id", "timestamp_seconds(id) AS at")
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
    stream = from_dataframe(env, frame.coalesce(1), watermark_strategy=strategy)
    windows = stream.window_all(TumblingEventTimeWindows.of(timedelta(seconds=10)))
    assert [row.n for row in windows.aggregate(n=count()).execute_and_collect()] == [10] * 4

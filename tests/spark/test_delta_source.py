"""The Delta source against a real Spark and Delta: a version, and those that follow it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from split_driver import Driver, table
from strom import StreamExecutionEnvironment
from strom.api.connectors.base import WriterContext
from strom.connectors.spark import (
    SparkDeltaSink,
    SparkDeltaSource,
    from_dataframe,
    from_streaming_dataframe,
)
from strom.core.batch import ColumnBatch
from strom.core.clock import SystemClock
from strom.core.errors import ConfigurationError, ConnectorError, OperatorError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("gateway"),
]

SOON = timedelta(milliseconds=100)


@pytest.fixture
def sql(gateway: Any) -> Callable[[str], Any]:
    import ray

    return lambda statement: ray.get(gateway.sql.remote(statement)).to_pylist()


class Appending:
    """A table that rows are put into, a version for each time."""

    def __init__(self, sql: Callable[[str], Any], folder: Path, more: str = "") -> None:
        self.path = str(folder)
        self.name = f"delta.`{folder}`"
        self.sql = sql
        sql(f"CREATE TABLE {self.name} (id BIGINT, word STRING) USING delta {more}")

    def put(self, *ids: int) -> None:
        """In one file."""
        rows = ", ".join(f"({n}, 'w{n % 3}')" for n in ids)
        self.sql(f"INSERT INTO {self.name} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")


def ids(driver: Driver, count: int | None = None) -> list[int]:
    """Of the next so many rows, or of all."""
    found: list[int] = []
    while count is None or len(found) < count:
        emit = driver.next()
        if emit is None:
            break
        found += emit.batch.data["id"].to_pylist()
    return found


def test_all_types_there_and_back(until: Any, tmp_path: Path) -> None:
    at = datetime(2024, 2, 29, 12, 30, 1, 234567, tzinfo=UTC)
    rows = pa.record_batch(
        {
            "flag": pa.array([True, None]),
            "tiny": pa.array([1, None], pa.int8()),
            "small": pa.array([-2, None], pa.int16()),
            "int": pa.array([3, None], pa.int32()),
            "long": pa.array([1 << 60, None], pa.int64()),
            "float": pa.array([0.5, None], pa.float32()),
            "double": pa.array([1e300, None], pa.float64()),
            "text": pa.array(["ä%20 b", None]),
            "bytes": pa.array([b"\x00\xff", None], pa.binary()),
            "day": pa.array([at.date(), None], pa.date32()),
            "at": pa.array([at, None], pa.timestamp("us", "UTC")),
            "plain": pa.array([at.replace(tzinfo=None), None], pa.timestamp("us")),
            "money": pa.array([Decimal("12.34"), None], pa.decimal128(10, 2)),
            "list": pa.array([[1, None], None], pa.list_(pa.int64())),
            "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "struct": pa.array([{"x": 1, "y": "z"}, None]),
        }
    )
    context = WriterContext(
        "out", "op", "job", 0, 1, 0, SystemClock(), lambda key, value: None, True
    )
    writer = SparkDeltaSink(str(tmp_path / "t"), "text").create_writer(context)
    writer.write(ColumnBatch(rows))
    writer.commit(writer.prepare_commit(1)())  # type: ignore[operator]
    source = SparkDeltaSource(tmp_path / "t", sort_by="double", filter="flag")
    found = table(Driver(until, source).all())
    assert found.schema.equals(source.schema)
    assert found.select(rows.schema.names).to_pylist() == rows.slice(0, 1).to_pylist()
    other = table(Driver(until, SparkDeltaSource(tmp_path / "t", filter="flag IS NULL")).all())
    assert other.to_pylist() == [dict.fromkeys(rows.schema.names)]


def test_a_version_is_read_in_splits_that_are_the_same_each_time(
    until: Any, sql: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "a table"
    sql(
        f"CREATE TABLE delta.`{folder}` USING delta PARTITIONED BY (part) AS "
        "SELECT /*+ REPARTITION(3) */ id, 1000 - id AS back, concat('p %', id % 2) AS part "
        "FROM range(1000)"
    )
    source = SparkDeltaSource(folder, ["id"], "part = 'p %1'", "back", rows_per_split=150)
    assert source.schema == pa.schema({"id": pa.int64()})
    first = Driver(until, source, batch_size=40)
    splits = until(lambda: first.enumerator.snapshot().splits, "the plan")
    assert [split.rows for split in splits] == [150, 150, 150, 50]
    assert all("part=" in file for split in splits for file in split.files)
    read = ids(first, 160)
    taken, left = first.reader.snapshot(), first.enumerator.snapshot()
    sql(f"INSERT INTO delta.`{folder}` VALUES (5001, 0, 'p %1')")
    sql(f"DELETE FROM delta.`{folder}` WHERE id < 900")
    again = Driver(until, source, restored=left)
    again.reader.add_splits(taken)
    assert read + ids(again) == list(range(999, 0, -2))
    now = Driver(until, SparkDeltaSource(folder, ["id"], "part = 'p %1'", "id"))
    assert ids(now) == [*range(901, 1000, 2), 5001]


def test_older_versions_and_times(until: Any, sql: Any, tmp_path: Path) -> None:
    it = Appending(sql, tmp_path / "t")
    it.put(1, 2)
    it.put(3)
    folder = tmp_path / "t" / "_delta_log"
    commit = json.loads((folder / f"{1:020d}.json").read_text().splitlines()[0])
    at = datetime.fromtimestamp((folder / f"{1:020d}.json").stat().st_mtime, UTC)
    assert commit["commitInfo"]["operation"] == "WRITE"
    assert ids(Driver(until, SparkDeltaSource(it.path, version=1))) == [1, 2]
    assert ids(Driver(until, SparkDeltaSource(it.path, version=0))) == []
    at += timedelta(milliseconds=1)
    assert ids(Driver(until, SparkDeltaSource(it.path, timestamp=at))) == [1, 2]
    assert sorted(ids(Driver(until, SparkDeltaSource(it.path)))) == [1, 2, 3]
    with pytest.raises(ConfigurationError, match=r"'in'.*has no version 7; the latest is 2"):
        ids(Driver(until, SparkDeltaSource(it.path, version=7)))
    with pytest.raises(ConfigurationError, match=r"no column \['nix'\]"):
        _ = SparkDeltaSource(it.path, ["nix"]).schema
    with pytest.raises(ConfigurationError, match="cannot look at the Delta table"):
        _ = SparkDeltaSource(tmp_path / "nothing").schema
    nothing = SparkDeltaSource(tmp_path / "nothing", schema=pa.schema({"id": pa.int64()}))
    with pytest.raises(ConfigurationError, match="there is no Delta table at"):
        ids(Driver(until, nothing))
    wrong = SparkDeltaSource(it.path, ["id"], schema=pa.schema({"id": pa.string()}))
    with pytest.raises(ConfigurationError, match="'id' is bigint in the table, string in the"):
        ids(Driver(until, wrong))


def test_deleted_rows_and_renamed_columns_are_as_delta_says(
    until: Any, sql: Any, tmp_path: Path
) -> None:
    properties = "'delta.enableDeletionVectors' = true, 'delta.columnMapping.mode' = 'name'"
    it = Appending(sql, tmp_path / "t", f"TBLPROPERTIES ({properties})")
    it.put(*range(20))
    sql(f"ALTER TABLE {it.name} RENAME COLUMN word TO `the word`")
    sql(f"DELETE FROM {it.name} WHERE id % 2 = 0")
    source = SparkDeltaSource(it.path, rows_per_split=3)
    first = Driver(until, source, batch_size=2)
    read = ids(first, 4)
    assert all("deletionVector" in add for s in first.reader.snapshot() for add in s.adds)
    again = Driver(until, source, restored=first.enumerator.snapshot())
    again.reader.add_splits(first.reader.snapshot())
    assert read + ids(again) == list(range(1, 20, 2))
    words = table(Driver(until, SparkDeltaSource(it.path, ["the word"])).all())
    assert words["the word"].to_pylist() == [f"w{n % 3}" for n in range(1, 20, 2)]


def test_versions_that_append_are_followed_exactly(until: Any, sql: Any, tmp_path: Path) -> None:
    source = SparkDeltaSource(
        tmp_path / "t", watch=SOON, schema=pa.schema({"id": pa.int64(), "word": pa.string()})
    )
    assert not source.bounded
    driver = Driver(until, source, batch_size=2)
    assert driver._step() is None
    it = Appending(sql, tmp_path / "t")
    it.put(1, 2, 3)
    assert ids(driver, 3) == [1, 2, 3]
    it.put(4, 5, 6)
    it.put(7)
    assert ids(driver, 2) == [4, 5]
    saved, taken = driver.enumerator.snapshot(), driver.reader.snapshot()
    assert len(ids(driver, 2)) == 2  # lost
    sql(f"OPTIMIZE {it.name}")
    it.put(8)
    again = Driver(until, source, restored=saved)
    again.reader.add_splits(taken)
    assert ids(again, 3) == [6, 7, 8]
    assert again.enumerator.snapshot().seen == b"5"


def test_a_version_that_changes_rows_is_an_error_or_passed_over(
    until: Any, sql: Any, tmp_path: Path
) -> None:
    it = Appending(sql, tmp_path / "t")
    it.put(1, 2)
    strict = Driver(until, SparkDeltaSource(it.path, watch=SOON))
    lenient = Driver(until, SparkDeltaSource(it.path, watch=SOON, skip_changes=True))
    assert ids(strict, 2) == ids(lenient, 2) == [1, 2]
    sql(f"UPDATE {it.name} SET word = 'x' WHERE id = 1")
    it.put(3)
    assert ids(lenient, 1) == [3]
    with pytest.raises(ConnectorError, match=r"'in'.*version 2 of the Delta table .* changes or r"):
        ids(strict, 1)
    # A new column matters to who reads all of them.
    chosen = Driver(until, SparkDeltaSource(it.path, ["id"], version=3, watch=SOON))
    whole = Driver(until, SparkDeltaSource(it.path, version=3, watch=SOON))
    assert sorted(ids(chosen, 3)) == sorted(ids(whole, 3)) == [1, 2, 3]
    sql(f"ALTER TABLE {it.name} ADD COLUMNS (more INT)")
    sql(f"INSERT INTO {it.name} VALUES (4, 'w', 1)")
    assert ids(chosen, 1) == [4]
    with pytest.raises(ConfigurationError, match=r"version 5 .*'more' \(int\) is only in the t"):
        ids(whole, 1)


def test_a_file_that_was_vacuumed_is_an_error(until: Any, sql: Any, tmp_path: Path) -> None:
    it = Appending(sql, tmp_path / "t")
    it.put(1, 2)
    driver = Driver(until, SparkDeltaSource(it.path))
    until(lambda: driver.enumerator.snapshot().splits, "the plan")
    for file in (tmp_path / "t").glob("*.parquet"):
        file.unlink()
    with pytest.raises(OperatorError, match="operator 'in', subtask 0: Spark: "):
        ids(driver)


def test_a_table_becomes_a_table_on_ray(sql: Any, tmp_path: Path) -> None:
    sql(
        f"CREATE TABLE delta.`{tmp_path / 'in'}` USING delta AS "
        "SELECT id, id % 3 AS k FROM range(900)"
    )
    env = StreamExecutionEnvironment.get_execution_environment(host="ray")
    env.set_parallelism(2)
    env.enable_checkpointing(timedelta(milliseconds=300), storage=str(tmp_path / "checkpoints"))
    rows = env.from_source(SparkDeltaSource(tmp_path / "in", rows_per_split=100), source_name="in")
    rows.filter(pl.col("k") == 1).sink_to(SparkDeltaSink(str(tmp_path / "out"), partition_by="k"))
    env.execute("tables")
    found = sql(f"SELECT id FROM delta.`{tmp_path / 'out'}` ORDER BY id")
    assert [row["id"] for row in found] == list(range(1, 900, 3))


def test_a_session_of_the_program_knows_tables(spark: Any, tmp_path: Path) -> None:
    """With the jars and settings that strom tells."""
    path = str(tmp_path / "t")
    spark.range(5).write.format("delta").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")
    frame = spark.read.format("delta").load(path)
    stream = from_dataframe(StreamExecutionEnvironment.get_execution_environment(), frame)
    assert sorted(row.id for row in stream.execute_and_collect()) == [0, 1, 2, 4]


def test_a_query_over_a_table_is_a_stream(sql: Any, tmp_path: Path) -> None:
    it = Appending(sql, tmp_path / "t")
    it.put(1, 2)
    it.put(3)
    path = it.path
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(timedelta(milliseconds=100), storage=str(tmp_path / "checkpoints"))
    stream = from_streaming_dataframe(
        env,
        lambda spark: spark.readStream.format("delta").load(path),
        tmp_path / "spool",
        trigger={"availableNow": True},
    )
    assert sorted(row.id for row in stream.execute_and_collect()) == [1, 2, 3]

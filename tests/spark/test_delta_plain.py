"""What of the Delta connectors needs neither Spark nor Ray to run."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strom.connectors.spark import SparkDeltaSink, SparkDeltaSource, SparkParquetSource
from strom.connectors.spark.delta_table import StagedRows, unique
from strom.connectors.spark.packages import DELTA, names_delta
from strom.core.errors import ConfigurationError


def spark_columns(**kinds: str) -> str:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in kinds.items()
    ]
    return json.dumps({"type": "struct", "fields": fields})


def put(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def test_the_columns_of_a_table_are_those_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "t" / "_delta_log"
    first = {"metaData": {"schemaString": spark_columns(id="long")}}
    later = {"metaData": {"schemaString": spark_columns(id="long", at="timestamp")}}
    put(log, 0, {"protocol": {}}, first)
    put(log, 1, {"commitInfo": {}})
    put(log, 2, later)
    put(log, 3, {"commitInfo": {}})
    both = pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC")})
    assert SparkDeltaSource(tmp_path / "t").schema == both
    assert SparkDeltaSource(f"file://{tmp_path}/t", ["at"]).schema == both.remove(0)
    assert SparkDeltaSource(tmp_path / "t", version=1).schema == both.remove(1)
    # Delta has cleaned its log up to a checkpoint.
    kind = pa.struct({"schemaString": pa.string(), "id": pa.string()})
    column = pa.array([None, {"schemaString": later["metaData"]["schemaString"]}], kind)
    pq.write_table(pa.table({"metaData": column}), log / f"{2:020d}.checkpoint.parquet")
    for version in (0, 1, 2):
        (log / f"{version:020d}.json").unlink()
    assert SparkDeltaSource(tmp_path / "t").schema == both
    (log / f"{2:020d}.checkpoint.parquet").unlink()
    with pytest.raises(ConfigurationError, match="does not say its columns"):
        _ = SparkDeltaSource(tmp_path / "t").schema


def test_what_was_prepared_before_comes_first_and_each_once() -> None:
    one, two, other = (
        StagedRows(app, version, (), "") for app, version in [("a", 9), ("a", 10), ("b", 10)]
    )
    behind = StagedRows("a", 11, (), "", before=(one, two))
    assert unique([behind, other, one]) == [one, two, behind, other]


def test_paths_are_the_programs_wherever_spark_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for told, path in [("a/*.parquet", f"{tmp_path}/a/*.parquet"), ("s3://b/c", "s3://b/c")]:
        assert SparkParquetSource(told).read.path == path
        assert SparkDeltaSink(told).write.path == path


def test_nonsense_is_refused_where_it_is_written() -> None:
    with pytest.raises(ConfigurationError, match="rows_per_split"):
        SparkDeltaSource("t", rows_per_split=0)
    with pytest.raises(ConfigurationError, match="rows_per_second"):
        SparkDeltaSource("t", rows_per_second=0)
    with pytest.raises(ConfigurationError, match="`version` or `timestamp`"):
        SparkDeltaSource("t", version=1, timestamp=datetime.now().astimezone())
    with pytest.raises(ConfigurationError, match="must not be negative"):
        SparkDeltaSource("t", version=-1)
    with pytest.raises(ConfigurationError, match="needs a time zone"):
        SparkDeltaSource("t", timestamp=datetime(2024, 1, 1))
    with pytest.raises(ConfigurationError, match="watch must be positive"):
        SparkDeltaSource("t", watch=timedelta(0))
    with pytest.raises(ConfigurationError, match="rows_per_file"):
        SparkDeltaSink("t", rows_per_file=0)


def test_another_delta_that_is_named_is_delta() -> None:
    assert names_delta(DELTA)
    assert names_delta(["io.delta:delta-spark_2.12:3.2.0"])
    assert not names_delta(["org.example:thing:1.2"])

"""One local Ray with one Spark for all tests of this folder, and small Parquet input."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strom.testing.kafka import KafkaCluster

ROWS = 3_000
DEADLINE_S = 200.0

SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""For statements over a few rows: to compile code for one takes longer than to run it."""


def events(rows: int = ROWS) -> pa.Table:
    """id counts rows; at (ms since 2024, each value twice) runs down in steps, so order differs."""
    ids = list(range(rows))
    start = 1_704_067_200_000
    at = [start + ((i * 7919) % rows) // 2 * 1000 for i in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "at": pa.array(at, pa.timestamp("ms", "UTC")),
            "plain": pa.array(at, pa.timestamp("ms")),
            "word": pa.array([None if i % 10 == 0 else f"w{i % 7}" for i in ids]),
            "value": pa.array([i / 4 for i in ids], pa.float64()),
        }
    )


@pytest.fixture(scope="session")
def gateway() -> Iterator[Any]:
    """Ray and Spark, started once; afterwards both are gone."""
    import ray
    from strom.connectors.spark import SparkOptions, prepare_environment, spark_session

    prepare_environment()
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=200 << 20,
    )
    try:
        with spark_session(SparkOptions(configuration=SMALL)) as handle:
            yield handle
    finally:
        ray.shutdown()


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """One broker."""
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session of this process, beside the gateway's: what a user's program has."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from strom.connectors.spark import DELTA_SETTINGS, delta_jars, prepare_environment
    from strom.connectors.spark.java import module_openings

    prepare_environment()
    # Another test of this process may have had Spark, whose Java knows other jars.
    if (former := SparkContext._gateway) is not None:
        former.shutdown()
        former.proc.stdin.close()
        SparkContext._gateway = SparkContext._jvm = None
    settings = {
        "spark.driver.extraJavaOptions": f"{module_openings()} -XX:TieredStopAtLevel=1",
        "spark.driver.memory": "768m",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "Asia/Kathmandu",  # instants do not depend on it
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.jars": delta_jars(),
        **DELTA_SETTINGS,
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


@pytest.fixture
def input_folder(tmp_path: Path) -> Path:
    """The events in three files, one with several row groups; the name asks for quoting."""
    folder = tmp_path / "in put%20[x]"
    folder.mkdir()
    table = events()
    for index, (start, length) in enumerate([(0, 500), (500, 1700), (2200, 800)]):
        part = table.slice(start, length)
        pq.write_table(part, folder / f"part-{index}.parquet", row_group_size=400)
    return folder


@pytest.fixture
def until() -> Callable[[Callable[[], Any], str], Any]:
    """The first true result of a condition, asked until a deadline: other processes do the work."""

    def wait(condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + DEADLINE_S
        while not (result := condition()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {DEADLINE_S} s: {what}")
            time.sleep(0.02)
        return result

    return wait


@pytest.fixture
def objects_in_store() -> Callable[[], int]:
    """How many objects Ray's shared memory holds."""

    def count() -> int:
        import ray
        from ray._private.internal_api import memory_summary

        here = ray.get_runtime_context().gcs_address
        summary = memory_summary(here, stats_only=True)
        found = re.search(r"Plasma memory usage \d+ MiB, (\d+) objects", summary)
        assert found is not None
        return int(found[1])

    return count

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

ROWS = 3_000
DEADLINE_S = 100.0


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
    from strom.connectors.spark import prepare_environment, spark_session

    prepare_environment()
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=200 << 20,
    )
    try:
        with spark_session() as handle:
            yield handle
    finally:
        ray.shutdown()


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

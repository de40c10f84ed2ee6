"""What file sinks remove when a job goes back behind checkpoints that they have published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from strom.api.connectors.base import Sink, WriterContext
from strom.connectors.files import ParquetSink
from strom.connectors.files.staging import StagingArea
from strom.connectors.spark import SparkParquetSink
from strom.core.clock import VirtualClock

JOBS = ("job", "job-2", "jo")


def context(job: str, subtask: int, parallelism: int) -> WriterContext:
    return WriterContext(
        "out", "op", job, subtask, parallelism, 1, VirtualClock(), lambda key, value: None, True
    )


def files_name(folder: Path, job: str, subtask: int, checkpoint: int) -> Path:
    area = StagingArea(str(folder), None, "parquet", context(job, subtask, 3))
    return Path(area.final_path(checkpoint, 0, f"day={checkpoint % 2}/"))


def spark_name(folder: Path, job: str, subtask: int, checkpoint: int) -> Path:
    writer: Any = SparkParquetSink(str(folder)).create_writer(context(job, subtask, 3))
    name = f"part-{writer._name}-{subtask:05d}-{checkpoint:08d}-0000.parquet"
    return folder / f"day={checkpoint % 2}" / name


@pytest.mark.parametrize(
    ("make", "name"), [(ParquetSink, files_name), (SparkParquetSink, spark_name)]
)
def test_later_checkpoints_of_this_job_and_no_other_file(
    make: Callable[[str], Sink], name: Callable[..., Path], tmp_path: Path
) -> None:
    """Three former subtasks, now two; checkpoints 8 to 11 are published, 9 is gone back to."""
    published = {
        (job, subtask, checkpoint): name(tmp_path, job, subtask, checkpoint)
        for job in JOBS
        for subtask in range(3)
        for checkpoint in (8, 9, 10, 11)
    }
    for file in (*published.values(), tmp_path / "part-x.parquet", tmp_path / "other"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    for subtask in range(2):
        writer = make(str(tmp_path)).create_writer(context("job", subtask, 2))
        writer.revoke(9)
        writer.revoke(9)
        writer.close()
    left = {which for which, file in published.items() if file.exists()}
    assert left == {(job, i, n) for job, i, n in published if job != "job" or n <= 9}
    assert (tmp_path / "part-x.parquet").exists()
    assert (tmp_path / "other").exists()

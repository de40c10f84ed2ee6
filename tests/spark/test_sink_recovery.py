"""What a Parquet sink of several subtasks does with the files of a dead attempt; no Spark runs."""

from __future__ import annotations

import os
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_kit import PyarrowCall, Subtask
from strom.api.specs.records import SinkSpec
from strom.connectors.spark import SparkParquetSink, parquet_sink
from strom.core.batch import ColumnBatch
from strom.operators.base import run_to_end
from strom.operators.io.sink import SinkOperator
from strom.state.operator_state import redistribute

SHAPES: dict[str, dict[str, Any]] = {
    "a file for 3 rows": {"rows_per_file": 3},
    "partitions": {"partition_by": "part"},
    "partitions within partitions": {"partition_by": ["part", "half"], "rows_per_file": 3},
}


@pytest.fixture(autouse=True)
def pyarrow_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_sink, "GatewayCall", PyarrowCall)
    monkeypatch.setattr("ray.put", lambda block: block)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # none of these tests loses its machine


def tasks(
    sink: SparkParquetSink, parallelism: int, attempt: int = 0, tables: Any = None, order: Any = ()
) -> list[Subtask]:
    """Subtasks of the sink by their index, opened in this order."""
    opened = {
        i: Subtask(
            SinkOperator(SinkSpec(sink)),
            i,
            parallelism,
            attempt,
            None if tables is None else tables[i],
        )
        for i in order or range(parallelism)
    }
    return [opened[i] for i in range(parallelism)]


def write(task: Subtask, numbers: range) -> None:
    rows = pa.table(
        {"id": list(numbers), "part": [n % 4 for n in numbers], "half": [n % 2 for n in numbers]}
    )
    for batch in rows.to_batches():
        run_to_end(task.operator.process(ColumnBatch(batch)))


def write_all(its: list[Subtask], start: int) -> list[int]:
    """More by the first than by the next: no cut of all files is between two of them. All ids."""
    end = start
    for i, task in enumerate(its):
        first, end = end, end + 5 * (len(its) - i)
        write(task, range(first, end))
    return list(range(start, end))


def published(folder: Path) -> list[int]:
    files = folder.glob("**/*.parquet")
    seen = [file for file in files if ".staging" not in file.parts]
    return sorted(n for f in seen for n in pq.ParquetFile(f).read()["id"].to_pylist())


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2)])
def test_a_complete_checkpoint_is_published_whoever_is_dealt_its_files(
    tmp_path: Path, shape: dict[str, Any], before: int, after: int
) -> None:
    """The process died when the checkpoint was complete and nothing published."""
    for order in permutations(range(after)):
        folder = tmp_path / f"{order}"
        sink = SparkParquetSink(str(folder), **shape)
        old = tasks(sink, before)
        rows = write_all(old, 0)
        checkpoint = redistribute([task.snapshot(1) for task in old], after)
        write_all(old, 500)
        for task in old:
            task.snapshot(2)  # never completes

        new = tasks(sink, after, 1, checkpoint, order)
        assert published(folder) == rows
        rows += write_all(new, 1000)
        for task in new:
            task.snapshot(3)
        for task in new:
            task.complete(3)
        assert published(folder) == rows
        assert not (folder / ".staging").exists()


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 2), (3, 2), (2, 1)])
def test_files_of_an_aborted_checkpoint_before_it_are_published_with_it(
    tmp_path: Path, before: int, after: int
) -> None:
    """A subtask may be dealt only files of the older one: what is newer is not therefore dead."""
    for order in permutations(range(after)):
        folder = tmp_path / f"{order}"
        sink = SparkParquetSink(str(folder), rows_per_file=5)
        old = tasks(sink, before)
        rows = write_all(old, 0)
        for task in old:
            task.snapshot(1)
            task.operator.notify_checkpoint_aborted(1)
        rows += write_all(old, 100)
        checkpoint = redistribute([task.snapshot(2) for task in old], after)
        tasks(sink, after, 1, checkpoint, order)
        assert published(folder) == rows
        # Once more, before any checkpoint of that attempt.
        tasks(sink, after, 2, checkpoint, order)
        assert published(folder) == rows


def test_a_subtask_leaves_what_others_have_yet_to_publish(tmp_path: Path) -> None:
    """Also behind the end of its own first snapshot: the others may not be as far."""
    sink = SparkParquetSink(str(tmp_path), rows_per_file=3)
    old = tasks(sink, 2)
    rows = write_all(old, 0)
    checkpoint = redistribute([task.snapshot(1) for task in old], 2)
    first = Subtask(SinkOperator(SinkSpec(sink)), 0, 2, 1, checkpoint[0])
    first.snapshot(2)
    Subtask(SinkOperator(SinkSpec(sink)), 1, 2, 1, checkpoint[1])
    assert published(tmp_path) == rows


def test_what_later_checkpoints_published_is_taken_back(tmp_path: Path) -> None:
    """The job goes back to checkpoint 1, with other subtasks; each takes back its share."""
    sink = SparkParquetSink(str(tmp_path), partition_by=["part", "half"])
    old = tasks(sink, 3)
    rows = []
    for number in (1, 2, 3):
        rows.append(write_all(old, number * 100))
        for task in old:
            task.snapshot(number)
        for task in old:
            task.complete(number)
    assert published(tmp_path) == [n for some in rows for n in some]
    for subtask in range(2):
        new = Subtask(SinkOperator(SinkSpec(sink)), subtask, 2, 1, ())
        new.operator._writer.revoke(1)
    assert published(tmp_path) == rows[0]


def test_what_is_published_survives_a_crash_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is durable when its folder was synced after it appeared there, and so on upwards."""
    unsynced: set[Path] = set()
    """Folders in which names have appeared."""
    mkdir, replace, fsync = os.mkdir, os.replace, os.fsync

    def made(path: Any, *more: Any) -> None:
        mkdir(path, *more)
        unsynced.add(Path(path).parent)

    def replaced(old: Any, new: Any) -> None:
        replace(old, new)
        unsynced.add(Path(new).parent)

    def synced(handle: int) -> None:
        fsync(handle)
        unsynced.discard(Path(os.readlink(f"/proc/self/fd/{handle}")))

    monkeypatch.setattr(os, "mkdir", made)
    monkeypatch.setattr(os, "replace", replaced)
    monkeypatch.setattr(os, "fsync", synced)
    folder = tmp_path / "new" / "out"
    sink = SparkParquetSink(str(folder), partition_by=["part", "half"])
    (task,) = tasks(sink, 1)
    write(task, range(10))
    task.snapshot(1)
    assert unsynced == set()
    task.complete(1)
    assert published(folder) == list(range(10))
    assert unsynced == set()

"""The Parquet sink against a real Spark: invisible until committed, published once, cleaned up."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strom.api.connectors.base import WriterContext
from strom.connectors.spark import SparkParquetSink
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.clock import SystemClock
from strom.core.errors import ConfigurationError, OperatorError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("gateway"),
]


def writer(sink: SparkParquetSink, subtask: int = 0, parallelism: int = 1, attempt: int = 0) -> Any:
    def publish(key: str, value: Any) -> None:
        raise AssertionError("this sink publishes nothing")

    context = WriterContext(
        "out", "op-1", "job", subtask, parallelism, attempt, SystemClock(), publish, True
    )
    return sink.create_writer(context)


def rows(start: int, count: int = 100) -> pa.Table:
    ids = pa.array(range(start, start + count), pa.int64())
    return pa.table(
        {
            "id": ids,
            "at": ids.cast(pa.timestamp("ms", "UTC")),
            "word": pa.array([f"w{i % 3}" for i in range(count)]).dictionary_encode(),
            "value": pa.array([None if i % 5 == 0 else i / 2 for i in range(count)], pa.float64()),
        }
    )


def write(it: Any, table: pa.Table) -> None:
    for batch in table.to_batches():
        it.write(ColumnBatch(batch))


def prepare(it: Any, checkpoint: int) -> Any:
    """Committables as the checkpoint holds them."""
    prepared = it.prepare_commit(checkpoint)
    return pickle.loads(pickle.dumps(prepared() if callable(prepared) else prepared))


def published(folder: Path) -> list[int]:
    """Sorted ids that a reader of the folder sees."""
    if not any(folder.glob("**/[!.]*.parquet")):
        return []
    return sorted(pq.read_table(folder)["id"].to_pylist())


def staged(folder: Path) -> list[Path]:
    return sorted((folder / ".staging").rglob("*.parquet"))


def test_rows_are_invisible_until_committed_and_then_exact(tmp_path: Path) -> None:
    it = writer(SparkParquetSink(str(tmp_path)))
    write(it, rows(0))
    first = prepare(it, 1)
    write(it, rows(100))
    second = prepare(it, 2)
    assert not list(tmp_path.glob("*.parquet"))
    assert len(staged(tmp_path)) == 2
    it.commit(first)
    assert published(tmp_path) == list(range(100))
    it.commit(second)
    found = pq.read_table(tmp_path).sort_by("id")
    expected = pa.concat_tables([rows(0), rows(100)])
    expected = expected.set_column(2, "word", expected["word"].cast(pa.string()))
    assert found.column("at").type.tz == "UTC"
    assert found.cast(expected.schema).to_pylist() == expected.to_pylist()
    assert not (tmp_path / ".staging").exists()
    assert [f.name for f in sorted(tmp_path.iterdir())] == [
        "part-job-op_1-00000-00000001-0000.parquet",
        "part-job-op_1-00000-00000002-0000.parquet",
    ]


def test_an_empty_checkpoint_writes_nothing(tmp_path: Path) -> None:
    it = writer(SparkParquetSink(str(tmp_path / "out")))
    assert list(prepare(it, 1)) == []
    it.commit([])
    it.recover([])
    assert not (tmp_path / "out").exists()


def test_commit_again_after_a_restore_changes_nothing(tmp_path: Path) -> None:
    sink = SparkParquetSink(str(tmp_path))
    it = writer(sink)
    write(it, rows(0))
    committables = prepare(it, 1)
    it.commit(committables)
    it.commit(committables)
    writer(sink, attempt=1).recover(committables)
    assert published(tmp_path) == list(range(100))


def test_a_restore_publishes_what_was_prepared_and_drops_what_came_after(tmp_path: Path) -> None:
    sink = SparkParquetSink(str(tmp_path))
    it = writer(sink)
    write(it, rows(0))
    durable = prepare(it, 1)
    write(it, rows(100))
    prepare(it, 2)  # this checkpoint never completes
    assert len(staged(tmp_path)) == 2

    again = writer(sink, attempt=1)
    again.recover(durable)
    assert published(tmp_path) == list(range(100))
    assert staged(tmp_path) == []
    write(again, rows(100, 50))
    again.commit(prepare(again, 3))
    assert published(tmp_path) == list(range(150))


def test_rescaling_never_drops_what_another_subtask_has_to_publish(tmp_path: Path) -> None:
    sink = SparkParquetSink(str(tmp_path))
    old = [writer(sink, subtask=i, parallelism=2) for i in range(2)]
    for index, it in enumerate(old):
        write(it, rows(index * 100))
    durable = [prepare(it, 1) for it in old]
    write(old[1], rows(500))
    prepare(old[1], 2)  # never completes

    # One subtask now publishes the other's files, and another gets none of its own.
    new = [writer(sink, subtask=i, parallelism=2, attempt=1) for i in range(2)]
    new[1].recover([])
    new[0].recover([*durable[0], *durable[1]])
    assert published(tmp_path) == list(range(200))
    for it in new:
        it.commit(prepare(it, 3))
    assert published(tmp_path) == list(range(200))
    assert staged(tmp_path) == []


def test_files_of_one_subtask_are_published_by_several(tmp_path: Path) -> None:
    sink = SparkParquetSink(str(tmp_path), partition_by="word", rows_per_file=15)
    old = [writer(sink, subtask=i, parallelism=2) for i in range(2)]
    write(old[0], rows(0))
    write(old[1], rows(100, 10))
    durable = [*prepare(old[0], 1), *prepare(old[1], 1)]
    half = len(durable) // 2
    assert len({Path(item.staged).parts[:5] for item in durable[:half]}) == 1
    new = [writer(sink, subtask=i, parallelism=2, attempt=1) for i in range(2)]
    new[0].recover(durable[:half])
    new[1].recover(durable[half:])
    assert published(tmp_path) == list(range(110))
    assert not (tmp_path / ".staging").exists()


def test_a_lost_staged_file_is_an_error_not_a_loss(tmp_path: Path) -> None:
    it = writer(SparkParquetSink(str(tmp_path)))
    write(it, rows(0))
    committables = prepare(it, 1)
    staged(tmp_path)[0].unlink()
    with pytest.raises(OperatorError, match="operator 'out', subtask 0: checkpoint 1 refers to"):
        it.commit(committables)


def test_partitions_become_folders(tmp_path: Path) -> None:
    it = writer(SparkParquetSink(str(tmp_path), partition_by="word"))
    write(it, rows(0))
    it.commit(prepare(it, 1))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["word=w0", "word=w1", "word=w2"]
    assert published(tmp_path) == list(range(100))
    bad = writer(SparkParquetSink(str(tmp_path), partition_by="nix"))
    with pytest.raises(ConfigurationError, match=r"partition_by names \['nix'\]"):
        write(bad, rows(0))


def test_object_records_are_written_with_a_schema(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "word": pa.string()})
    it = writer(SparkParquetSink(str(tmp_path), schema=schema))
    it.write(ObjectBatch([(1, "a"), (2, None)]))
    it.commit(prepare(it, 1))
    assert pq.read_table(tmp_path).to_pylist() == [
        {"id": 1, "word": "a"},
        {"id": 2, "word": None},
    ]


def test_blocks_leave_the_store_after_writing(
    tmp_path: Path, until: Any, objects_in_store: Callable[[], int]
) -> None:
    before = objects_in_store()
    it = writer(SparkParquetSink(str(tmp_path), block_bytes=200_000))
    write(it, rows(0, 20_000))
    write(it, rows(20_000, 20_000))
    assert objects_in_store() > before  # full blocks wait in the store, not in the task
    committables = prepare(it, 1)
    until(lambda: objects_in_store() <= before, "the blocks are released")
    it.commit(committables)
    assert published(tmp_path) == list(range(40_000))


def test_files_are_closed_when_they_are_full(tmp_path: Path) -> None:
    it = writer(SparkParquetSink(str(tmp_path), rows_per_file=30))
    write(it, rows(0))
    it.commit(prepare(it, 1))
    sizes = sorted(pq.read_metadata(file).num_rows for file in tmp_path.glob("*.parquet"))
    assert sizes == [10, 30, 30, 30]
    assert published(tmp_path) == list(range(100))
    with pytest.raises(ConfigurationError, match="rows_per_file must be at least 1"):
        SparkParquetSink(str(tmp_path), rows_per_file=0)

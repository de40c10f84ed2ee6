"""The Delta sink against a real Delta: rows are in no version until committed, then in one."""

from __future__ import annotations

import json
import os
import pickle
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from strom import RestartStrategies, StreamExecutionEnvironment
from strom.api.connectors.base import WriterContext
from strom.connectors.datagen import DataGenSource
from strom.connectors.spark import SparkDeltaSink
from strom.connectors.spark.delta_sink import DeltaWriter
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.clock import SystemClock
from strom.core.errors import ConfigurationError, ConnectorError, TypeMismatchError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("gateway"),
]


def writer(sink: SparkDeltaSink, subtask: int = 0, parallelism: int = 1, attempt: int = 0) -> Any:
    def publish(key: str, value: Any) -> None:
        raise AssertionError("this sink publishes nothing")

    context = WriterContext(
        "out", "op-1", "job", subtask, parallelism, attempt, SystemClock(), publish, True
    )
    return sink.create_writer(context)


def rows(start: int, count: int = 10) -> pa.RecordBatch:
    ids = pa.array(range(start, start + count), pa.int64())
    return pa.record_batch({"id": ids, "word": [f"w {n % 3}" for n in range(count)]})


def prepare(it: Any, checkpoint: int, start: int | None = None) -> Any:
    """Ten rows from `start`, if that is given, and the checkpoint's committables as it holds
    them."""
    if start is not None:
        it.write(ColumnBatch(rows(start)))
    prepared = it.prepare_commit(checkpoint)
    return pickle.loads(pickle.dumps(prepared() if callable(prepared) else prepared))


@pytest.fixture
def sql(gateway: Any) -> Any:
    import ray

    return lambda statement: ray.get(gateway.sql.remote(statement)).to_pylist()


def ids(sql: Any, folder: Path) -> list[int]:
    """Sorted ids that a reader of the table sees."""
    return sorted(row["id"] for row in sql(f"SELECT id FROM delta.`{folder}`"))


def versions(folder: Path) -> list[list[dict[str, Any]]]:
    """The actions of each version."""
    files = sorted((folder / "_delta_log").glob("*[0-9].json"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def test_rows_are_in_no_version_until_committed_and_then_in_one(sql: Any, tmp_path: Path) -> None:
    folder = tmp_path / "my table"
    it = writer(SparkDeltaSink(str(folder), "word"))
    first, second = prepare(it, 1, 0), prepare(it, 2, 10)
    assert len(list(folder.rglob("*.parquet"))) == 6
    assert ids(sql, folder) == []  # the table is there, without rows
    it.commit(first)
    assert ids(sql, folder) == list(range(10))
    it.commit(second)
    assert ids(sql, folder) == list(range(20))
    log = versions(folder)
    assert len(log) == 3
    (txn,) = [one["txn"] for one in log[2] if "txn" in one]
    assert txn["appId"].startswith("strom/job/op-1/0/")
    assert txn["version"] == 2
    adds = [one["add"] for one in log[2] if "add" in one]
    assert sorted(add["partitionValues"]["word"] for add in adds) == ["w 0", "w 1", "w 2"]
    assert sum(json.loads(add["stats"])["numRecords"] for add in adds) == 10
    assert list(prepare(it, 3)) == []
    it.commit([])
    assert len(versions(folder)) == 3


def test_a_commit_that_is_repeated_is_left_out_by_delta(sql: Any, tmp_path: Path) -> None:
    sink = SparkDeltaSink(str(tmp_path / "t"))
    it = writer(sink)
    committables = prepare(it, 1, 0)
    it.commit(committables)
    it.commit(committables)  # the answer was lost
    again = writer(sink, attempt=1)
    again.recover(committables)  # the task was
    assert ids(sql, tmp_path / "t") == list(range(10))
    assert len(versions(tmp_path / "t")) == 2
    # Rows that were deleted since do not come back by that.
    sql(f"DELETE FROM delta.`{tmp_path / 't'}` WHERE id < 5")
    writer(sink, attempt=2).recover(committables)
    assert ids(sql, tmp_path / "t") == list(range(5, 10))


@pytest.mark.soak
def test_what_an_older_checkpoint_is_followed_by_is_written_though_its_number_was_used(
    sql: Any, tmp_path: Path
) -> None:
    sink = SparkDeltaSink(str(tmp_path / "t"))
    it = writer(sink)
    kept = [prepare(it, 1, 0), prepare(it, 2, 10), prepare(it, 3, 20)]
    for committables in kept:
        it.commit(committables)
    again = writer(sink, attempt=1)
    again.recover(kept[1])
    again.commit(prepare(again, 3, 500))
    new_job = writer(sink)  # which counts its checkpoints from 1
    new_job.commit(prepare(new_job, 1, 600))
    assert ids(sql, tmp_path / "t") == [*range(30), *range(500, 510), *range(600, 610)]


def test_a_rescale_may_part_the_checkpoints_of_a_subtask(sql: Any, tmp_path: Path) -> None:
    """Checkpoint 1 did not complete, so what was prepared for it is in checkpoint 2 as well, and
    another subtask may be the first to commit its share."""
    sink = SparkDeltaSink(str(tmp_path / "t"))
    old = [writer(sink, subtask=n, parallelism=2) for n in range(2)]
    first = [prepare(it, 1, n * 10) for n, it in enumerate(old)]
    second = [prepare(it, 2, 100 + n * 10) for n, it in enumerate(old)]
    new = [writer(sink, subtask=n, parallelism=3, attempt=1) for n in range(3)]
    new[2].recover([*second[0], *second[1]])
    new[1].recover(first[0])
    new[0].recover(first[1])
    expected = [*range(20), *range(100, 120)]
    assert ids(sql, tmp_path / "t") == expected
    assert len(versions(tmp_path / "t")) == 3
    new[0].commit(prepare(new[0], 3, 200))
    assert ids(sql, tmp_path / "t") == [*expected, *range(200, 210)]


@pytest.mark.soak
def test_what_lost_checkpoints_added_is_taken_back_once(sql: Any, tmp_path: Path) -> None:
    sink = SparkDeltaSink(tmp_path / "t")
    assert sink.revocable
    old = [writer(sink, subtask=n, parallelism=2) for n in range(2)]
    kept = []
    for checkpoint in (1, 2, 3):
        start = checkpoint * 100
        kept.append([prepare(it, checkpoint, start + n * 10) for n, it in enumerate(old)])
        for it, committables in zip(old, kept[-1], strict=True):
            it.commit(committables)
    sql(f"INSERT INTO delta.`{tmp_path / 't'}` VALUES (7, 'of others')")
    for attempt in (1, 2):  # the first dies behind it
        new = [writer(sink, subtask=n, parallelism=2, attempt=attempt) for n in range(2)]
        for it, committables in zip(new, kept[0], strict=True):
            it.revoke(1)
            it.recover(committables)
        assert ids(sql, tmp_path / "t") == [7, *range(100, 120)]
    old[0].commit(kept[2][0])  # too late
    new[0].commit(prepare(new[0], 4, 200))
    assert ids(sql, tmp_path / "t") == [7, *range(100, 120), *range(200, 210)]
    sql(f"OPTIMIZE delta.`{tmp_path / 't'}`")
    with pytest.raises(
        ConnectorError, match=r"was rewritten .* since rows of checkpoints later th"
    ):
        writer(sink, attempt=3).revoke(1)
    assert len(ids(sql, tmp_path / "t")) == 31


def test_a_file_that_is_gone_is_an_error_not_a_loss(sql: Any, tmp_path: Path) -> None:
    it = writer(SparkDeltaSink(str(tmp_path / "t")))
    committables = prepare(it, 1, 0)
    for file in (tmp_path / "t").glob("*.parquet"):
        file.unlink()
    with pytest.raises(ConnectorError, match="'out', subtask 0: checkpoint 1 refers to the file"):
        it.commit(committables)
    assert len(versions(tmp_path / "t")) == 1


def test_a_table_that_does_not_fit_is_an_error_that_says_why(sql: Any, tmp_path: Path) -> None:
    table = f"delta.`{tmp_path / 't'}`"
    sql(f"CREATE TABLE {table} (id INT, other STRING) USING delta PARTITIONED BY (other)")
    it = writer(SparkDeltaSink(str(tmp_path / "t")))
    text = (
        r"operator 'out', subtask 0: .*'id' is int in the table, bigint in the stream; 'other' "
        r"\(string\) is only in the table; 'word' \(string\) is not in the table"
    )
    with pytest.raises(Exception, match=text):
        prepare(it, 1, 0)
    sql(f"CREATE TABLE delta.`{tmp_path / 'u'}` (id BIGINT, word STRING) USING delta")
    it = writer(SparkDeltaSink(str(tmp_path / "u"), partition_by="word"))
    with pytest.raises(Exception, match=r"is partitioned by \[\], and the sink says"):
        prepare(it, 1, 0)
    bad = writer(SparkDeltaSink(str(tmp_path / "v"), "nix"))
    with pytest.raises(ConfigurationError, match=r"partition_by names \['nix'\]"):
        bad.write(ColumnBatch(rows(0)))
    kinds = rows(0).append_column("__row_kind", pa.array([0] * 10, pa.int8()))
    with pytest.raises(TypeMismatchError, match="only insert"):
        bad.write(ColumnBatch(kinds))


def test_a_table_that_is_altered_while_rows_wait(sql: Any, tmp_path: Path) -> None:
    table = f"delta.`{tmp_path / 't'}`"
    it = writer(SparkDeltaSink(str(tmp_path / "t")))
    waiting = prepare(it, 1, 0)
    sql(f"ALTER TABLE {table} ADD COLUMNS (more INT)")
    it.commit(waiting)
    assert sql(f"SELECT count(*) AS n, count(more) AS m FROM {table}") == [{"n": 10, "m": 0}]
    sql(f"CREATE TABLE delta.`{tmp_path / 'u'}` (id BIGINT, word STRING) USING delta")
    it = writer(SparkDeltaSink(str(tmp_path / "u")))
    waiting = prepare(it, 1, 0)
    sql(f"ALTER TABLE delta.`{tmp_path / 'u'}` ADD CONSTRAINT small CHECK (id < 5)")
    with pytest.raises(ConnectorError, match=r"it has changed since \(constraints\)"):
        it.commit(waiting)
    it = writer(SparkDeltaSink(str(tmp_path / "u")))
    with pytest.raises(Exception, match="CHECK constraint small"):
        prepare(it, 1, 0)


def test_object_records_and_files_of_few_rows(sql: Any, tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "word": pa.string()})
    it = writer(SparkDeltaSink(tmp_path / "t", schema=schema, rows_per_file=1))
    it.write(ObjectBatch([(1, "a"), (2, None)]))
    it.commit(prepare(it, 1))
    found = sql(f"SELECT * FROM delta.`{tmp_path / 't'}` ORDER BY id")
    assert found == [{"id": 1, "word": "a"}, {"id": 2, "word": None}]
    assert len([one for one in versions(tmp_path / "t")[1] if "add" in one]) == 2


class DyingWriter(DeltaWriter):
    """Its process is killed behind its first commit, before anybody hears of that."""

    mark: Path

    def commit(self, committables: Any) -> None:
        super().commit(committables)
        if committables and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class DyingSink(SparkDeltaSink):
    def create_writer(self, context: WriterContext) -> DeltaWriter:
        it = DyingWriter(self, context)
        it.mark = Path(self.write.path).parent / f"died-{context.subtask}"
        return it


def test_tasks_that_die_between_commit_and_acknowledgement_write_nothing_twice(
    sql: Any, tmp_path: Path
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(host="ray")
    env.set_parallelism(2)
    env.enable_checkpointing(timedelta(milliseconds=300), storage=str(tmp_path / "checkpoints"))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 10))

    def generate(start: int, count: int) -> pa.RecordBatch:
        return pa.record_batch({"id": list(range(start, start + count))})

    numbers = DataGenSource(generate, 6000, rate=2000, schema=pa.schema({"id": pa.int64()}))
    env.from_source(numbers).sink_to(DyingSink(str(tmp_path / "t")))
    env.execute("dying")
    assert (tmp_path / "died-0").exists()
    assert ids(sql, tmp_path / "t") == list(range(6000))

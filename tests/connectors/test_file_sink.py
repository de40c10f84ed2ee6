"""Exactly-once files: crash anywhere, publish twice, rescale, and read the folder."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from amounts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strom.connectors.files import FileSink, FileSource, ParquetSink
from strom.connectors.files.compaction import FileCompactStrategy
from strom.connectors.files.staging import StagingArea
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.errors import ConfigurationError, ConnectorError, TypeMismatchError

SCHEMA = pa.schema([("n", pa.int64())])


def batch(*numbers: int) -> ColumnBatch:
    return ColumnBatch(pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=SCHEMA))


def prepare(writer: Any, checkpoint: int) -> list[Any]:
    prepared = writer.prepare_commit(checkpoint)
    made = prepared() if callable(prepared) else prepared
    return list(pickle.loads(pickle.dumps(made)))


def published(folder: Path) -> list[int]:
    files = sorted(folder.glob("part-*"))
    return sorted(n for file in files for n in pq.read_table(file)["n"].to_pylist())


def staged(folder: Path) -> list[Path]:
    return [path for path in (folder / ".staging").rglob("*") if path.is_file()]


def test_invisible_until_committed(tmp_path: Path, writer_context: Any) -> None:
    writer = ParquetSink(tmp_path).create_writer(writer_context(subtask=2, parallelism=3))
    writer.write(batch(1, 2))
    writer.write(batch(3))
    committables = prepare(writer, 7)
    assert published(tmp_path) == []
    assert [c.rows for c in committables] == [3]
    writer.commit(committables)
    assert published(tmp_path) == [1, 2, 3]
    assert next(tmp_path.glob("part*")).name.startswith("part-my_sink-2-7-0-")
    assert [c.size for c in committables] == [p.stat().st_size for p in tmp_path.glob("part*")]


def test_committing_twice_is_committing_once(tmp_path: Path, writer_context: Any) -> None:
    writer = ParquetSink(tmp_path).create_writer(writer_context())
    writer.write(batch(1))
    committables = prepare(writer, 1)
    for _ in range(3):
        writer.commit(committables)
    again = ParquetSink(tmp_path).create_writer(writer_context(attempt=1))
    again.recover(committables)
    assert published(tmp_path) == [1]


def test_an_empty_checkpoint_makes_no_file(tmp_path: Path, writer_context: Any) -> None:
    writer = ParquetSink(tmp_path).create_writer(writer_context())
    assert prepare(writer, 1) == []
    writer.commit([])
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_a_lost_file_is_named(tmp_path: Path, writer_context: Any) -> None:
    writer = ParquetSink(tmp_path).create_writer(writer_context())
    writer.write(batch(1))
    committables = prepare(writer, 1)
    Path(committables[0].staged).unlink()
    with pytest.raises(ConnectorError, match=r"part-my_sink-0-1-0-.*neither.*\.staging"):
        writer.commit(committables)


def test_rolls_by_rows_and_bytes(tmp_path: Path, writer_context: Any) -> None:
    for name, sink in {
        "rows": ParquetSink(tmp_path / "rows", roll_rows=2),
        "bytes": ParquetSink(tmp_path / "bytes", roll_bytes=10),
    }.items():
        writer = sink.create_writer(writer_context())
        for i in range(5):
            writer.write(batch(2 * i, 2 * i + 1))
        writer.commit(prepare(writer, 1))
        assert len(list((tmp_path / name).glob("part-*-0-1-?-*"))) == 5
        assert published(tmp_path / name) == list(range(10))


class Disk:
    """What a power cut would take: folders in which names changed that were not made durable."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unsynced: set[str] = set()
        self.removed_early: list[str] = []
        mkdir, replace, fsync = os.mkdir, os.replace, os.fsync
        create, discard = StagingArea.create, StagingArea.discard

        def made(path: str, *more: Any, **named: Any) -> None:
            mkdir(path, *more, **named)
            self.unsynced.add(os.path.dirname(path))

        def renamed(source: str, target: str) -> None:
            replace(source, target)
            self.unsynced.add(os.path.dirname(target))

        def synced(descriptor: int) -> None:
            fsync(descriptor)
            self.unsynced.discard(os.readlink(f"/proc/self/fd/{descriptor}"))

        def created(area: StagingArea) -> Any:
            self.unsynced.add(area.folder)
            return create(area)

        def discarded(area: StagingArea, path: str) -> None:
            if self.unsynced:
                self.removed_early.append(path)
            discard(area, path)

        monkeypatch.setattr(os, "mkdir", made)
        monkeypatch.setattr(os, "replace", renamed)
        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(StagingArea, "create", created)
        monkeypatch.setattr(StagingArea, "discard", discarded)


@pytest.mark.parametrize("compacts", [False, True])
def test_a_power_cut_takes_nothing_that_is_prepared_or_published(
    tmp_path: Path, writer_context: Any, monkeypatch: pytest.MonkeyPatch, compacts: bool
) -> None:
    sink: Any = ParquetSink(tmp_path / "a" / "b", partition_by=["n"])
    if compacts:
        strategy = FileCompactStrategy(checkpoints=2, size_threshold=None)
        sink = FileSink(tmp_path / "a" / "b", "csv", compact=strategy)
    disk = Disk(monkeypatch)
    writer = sink.create_writer(writer_context())
    for checkpoint in range(1, 5):
        writer.write(batch(1, 2, checkpoint))
        committables = prepare(writer, checkpoint)
        assert disk.unsynced == set(), "what a checkpoint names"
        writer.commit(committables)
        assert disk.unsynced == set(), "what is published, and forgotten"
    assert disk.removed_early == [], "what was merged goes when the merged file is durable"
    files = [path for path in (tmp_path / "a").rglob("part-*") if path.is_file()]
    assert 0 < len(files) < 4 if compacts else len(files) == 10


def test_a_file_that_cannot_be_closed_does_not_keep_the_others(
    tmp_path: Path, writer_context: Any
) -> None:
    writer = ParquetSink(tmp_path, partition_by=["n"]).create_writer(writer_context())
    writer.write(batch(1, 2, 3))
    assert len(staged(tmp_path)) == 3
    file = next(iter(writer._open.values())).file
    close = file.close

    def full() -> None:
        close()
        raise OSError("no space left")

    file.close = full
    with pytest.raises(OSError, match="no space left"):
        writer.close()
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_dead_attempt_are_removed(tmp_path: Path, writer_context: Any) -> None:
    #  attempt 0:  1 |ckpt 1: done|  2 |ckpt 2: prepared, never completed|  3 crash
    dead = ParquetSink(tmp_path).create_writer(writer_context())
    dead.write(batch(1))
    first = prepare(dead, 1)
    dead.write(batch(2))
    prepare(dead, 2)
    dead.write(batch(3))
    assert len(staged(tmp_path)) == 3
    writer = ParquetSink(tmp_path).create_writer(writer_context(attempt=1))
    writer.recover(first)
    assert published(tmp_path) == [1]
    assert staged(tmp_path) == []


def test_a_rescale_keeps_others_committables_and_leaves_no_orphans(
    tmp_path: Path, writer_context: Any
) -> None:
    #  4 subtasks die with prepared (in checkpoint 1) and open files; 2 take over, in any order
    held = []
    for subtask in range(4):
        dead = ParquetSink(tmp_path).create_writer(writer_context(subtask, 4))
        dead.write(batch(subtask))
        held += prepare(dead, 1)
        dead.write(batch(100 + subtask))
    writers = [ParquetSink(tmp_path).create_writer(writer_context(i, 2, 1)) for i in range(2)]
    writers[0].recover(held[2:])
    writers[1].recover(held[:2])
    assert published(tmp_path) == [0, 1, 2, 3]
    for i, writer in enumerate(writers):
        writer.write(batch(10 + i))
        writer.commit(prepare(writer, 2))
    assert published(tmp_path) == [0, 1, 2, 3, 10, 11]
    assert staged(tmp_path) == []


def test_running_writers_files_are_never_swept(tmp_path: Path, writer_context: Any) -> None:
    writers = [ParquetSink(tmp_path).create_writer(writer_context(i, 2, 1)) for i in range(2)]
    other_job = ParquetSink(tmp_path).create_writer(writer_context(job_id="job-2"))
    other_operator = ParquetSink(tmp_path).create_writer(writer_context(operator_id="my/sink"))
    alive = [*writers, other_job, other_operator]
    for i, writer in enumerate(alive):
        writer.write(batch(i))
    for writer in writers:
        writer.commit([])
    for writer in alive:
        writer.commit(prepare(writer, 1))
    assert published(tmp_path) == [0, 1, 2, 3]


def test_a_second_job_adds_files(tmp_path: Path, writer_context: Any) -> None:
    for job, number in (("job-1", 1), ("job-2", 2)):
        writer = ParquetSink(tmp_path).create_writer(writer_context(job_id=job))
        writer.write(batch(number))
        writer.commit(prepare(writer, 1))
    assert published(tmp_path) == [1, 2]


def test_close_removes_what_was_not_prepared(tmp_path: Path, writer_context: Any) -> None:
    writer = ParquetSink(tmp_path, roll_rows=1).create_writer(writer_context())
    writer.write(batch(1))
    prepare(writer, 1)
    writer.write(batch(2))
    writer.close()
    assert len(staged(tmp_path)) == 1


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(script=st.lists(st.sampled_from(["write", "prepare", "complete", "crash"]), max_size=30))
def test_any_history_gives_each_record_once(
    tmp_path_factory: Any, writer_context: Any, script: list[str]
) -> None:
    """A source counts up; state after a completed checkpoint is its position and committables."""
    folder = tmp_path_factory.mktemp("sink")
    sink = ParquetSink(folder)
    attempt, position, checkpoint = 0, 0, 0
    durable: tuple[int, list[Any]] = (0, [])
    pending: list[tuple[int, list[Any]]] = []
    writer = sink.create_writer(writer_context())
    for action in [*script, "write", "prepare", "complete"]:
        if action == "write":
            writer.write(batch(position))
            position += 1
        elif action == "prepare":
            checkpoint += 1
            pending.append((position, prepare(writer, checkpoint)))
        elif action == "complete" and pending:
            durable = (pending[-1][0], [c for _, made in pending for c in made])
            if len(durable[1]) % 2:  # sometimes the crash comes before the commit
                for _, made in pending:
                    writer.commit(made)
            else:
                attempt += 1
                writer = sink.create_writer(writer_context(attempt=attempt))
                writer.recover(durable[1])
                position = durable[0]
            pending = []
        elif action == "crash":
            attempt += 1
            writer = sink.create_writer(writer_context(attempt=attempt))
            writer.recover(durable[1])
            position, pending = durable[0], []
    assert published(folder) == list(range(durable[0]))
    writer.close()


def test_object_records_become_columns(tmp_path: Path, writer_context: Any) -> None:
    sink = ParquetSink(tmp_path, schema=SCHEMA)
    writer = sink.create_writer(writer_context())
    writer.write(ObjectBatch([(1,), (2,)]))
    writer.commit(prepare(writer, 1))
    assert published(tmp_path) == [1, 2]
    with pytest.raises(TypeMismatchError, match="'x'"):
        writer.write(ObjectBatch([("x",)]))


def test_changing_columns_are_an_error(tmp_path: Path, writer_context: Any) -> None:
    writer = ParquetSink(tmp_path).create_writer(writer_context())
    writer.write(batch(1))
    other = pa.RecordBatch.from_pydict({"m": [1]})
    with pytest.raises(TypeMismatchError, match=r"m: int64.*n: int64"):
        writer.write(ColumnBatch(other))
    writer.close()


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
def test_what_is_written_can_be_read(
    tmp_path: Path, writer_context: Any, run: Any, format: Any
) -> None:
    writer = FileSink(tmp_path, format).create_writer(writer_context())
    data = pa.RecordBatch.from_pydict({"n": [1, 2, None], "s": ["a", 'b"\n,', "c"]})
    writer.write(ColumnBatch(data))
    writer.write(ColumnBatch(data))
    writer.commit(prepare(writer, 1))
    writer.write(ColumnBatch(data))
    prepare(writer, 2)
    rows = run(FileSource(tmp_path, format)).finish().rows()
    assert rows == [(1, "a"), (2, 'b"\n,'), (None, "c")] * 2


def test_partitions_become_folders(tmp_path: Path, writer_context: Any) -> None:
    sink = FileSink(tmp_path, "csv", partition_by=["day", "kind"])
    writer = sink.create_writer(writer_context())
    rows = {"n": [1, 2, 3, 4], "day": [1, 2, 1, 1], "kind": ["a/b", None, "a/b", "c"]}
    writer.write(ColumnBatch(pa.RecordBatch.from_pydict(rows)))
    writer.commit(prepare(writer, 1))
    found = {str(p.parent.relative_to(tmp_path)): p.read_text() for p in tmp_path.rglob("part-*")}
    assert found == {
        "day=1/kind=a%2Fb": '"n"\n1\n3\n',
        "day=2/kind=__HIVE_DEFAULT_PARTITION__": '"n"\n2\n',
        "day=1/kind=c": '"n"\n4\n',
    }


def test_stores_without_rename(writer_context: Any) -> None:
    memory = fsspec.filesystem("memory")
    sink = FileSink("memory://strom-out", "csv")
    try:
        dead = sink.create_writer(writer_context())
        dead.write(batch(1))
        held = prepare(dead, 1)
        dead.write(batch(2))
        prepare(dead, 2)
        writer = sink.create_writer(writer_context(attempt=1))
        writer.recover(held)
        writer.recover(held)
        files = memory.find("/strom-out")
        assert len(files) == 1
        assert memory.cat(files[0]) == b'"n"\n1\n'
    finally:
        memory.rm("/strom-out", recursive=True)


def test_unwritable_folders_are_named(tmp_path: Path, writer_context: Any) -> None:
    (tmp_path / "file").write_text("")
    writer = ParquetSink(tmp_path / "file").create_writer(writer_context())
    with pytest.raises(ConnectorError, match=r"cannot write to '.*file'"):
        writer.write(batch(1))


def test_wrong_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'xml'"):
        FileSink(tmp_path, "xml")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="roll_rows"):
        ParquetSink(tmp_path, roll_rows=0)
    with pytest.raises(ConfigurationError, match="partition_by"):
        ParquetSink(tmp_path, schema=SCHEMA, partition_by=["n"])

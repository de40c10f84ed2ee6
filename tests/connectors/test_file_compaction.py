"""Small files are merged before they are published: each record once, whatever happens between."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compaction_kit import batch, every, hidden, prepare, published, records, visible
from strom.connectors.files import (
    BucketAssigner,
    Encoder,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    FileSource,
    ParquetSink,
)
from strom.connectors.files.compaction import HeldFile, MergedFile
from strom.connectors.files.staging import FileCommittable
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.errors import ConnectorError


def kinds(committables: list[Any]) -> list[str]:
    return [type(one).__name__ for one in committables]


def test_merged_every_few_checkpoints(tmp_path: Path, writer_context: Any) -> None:
    writer = ParquetSink(tmp_path, compact=every(3)).create_writer(writer_context())
    seen = []
    for n in range(1, 8):
        writer.write(batch(n))
        committables = prepare(writer, n)
        seen.append(kinds(committables))
        writer.commit(committables)
    held, merged = "HeldFile", "MergedFile"
    assert seen == [[held], [held, held], [merged]] * 2 + [[held]]
    assert published(tmp_path) == [[1, 2, 3], [4, 5, 6]]
    assert len(hidden(tmp_path)) == 1
    writer.finish()
    writer.commit(prepare(writer, 8))
    writer.close()
    assert published(tmp_path) == [[1, 2, 3], [4, 5, 6], [7]]
    assert not (tmp_path / ".staging").exists()


def test_merged_when_they_are_large_enough(tmp_path: Path, writer_context: Any) -> None:
    """Files that are large by themselves are published as they are, at once."""
    sink = FileSink.for_row_format(tmp_path, Encoder.simple_string_encoder())
    strategy = FileCompactStrategy.builder().set_size_threshold(10).build()
    sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    sink.enable_compact(strategy, FileCompactor.concat_file_compactor("--\n"))
    writer = sink.build().create_writer(writer_context())
    for n, text in enumerate(["abc", "0123456789", "def", "ghi", "jkl"], 1):
        writer.write(ObjectBatch([text]))
        writer.commit(prepare(writer, n))
    texts = sorted(path.read_text() for path in visible(tmp_path))
    assert texts == ["0123456789\n", "abc\n--\ndef\n--\nghi\n"]


def test_the_way_out_of_compaction(tmp_path: Path, writer_context: Any) -> None:
    """What an earlier run held is published as it is, like all that comes."""
    before = ParquetSink(tmp_path, compact=every(3)).create_writer(writer_context())
    held: list[Any] = []
    for n in (1, 2):
        before.write(batch(n))
        held = prepare(before, n)
        before.commit(held)
    assert visible(tmp_path) == []
    sink = FileSink(
        tmp_path,
        "parquet",
        compact=every(3),
        compactor=FileCompactor.identical_file_compactor(),
    )
    after = sink.create_writer(writer_context(attempt=1))
    after.recover(held)
    after.write(batch(3))
    after.commit(prepare(after, 3))
    assert sorted(published(tmp_path)) == [[1], [2], [3]]
    after.finish()
    after.commit(prepare(after, 4))
    after.close()
    assert records(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("threads", [1, 3])
def test_formats_and_folders(
    tmp_path: Path, writer_context: Any, run: Any, format: Any, threads: int
) -> None:
    """Each folder's files are merged by themselves."""
    strategy = FileCompactStrategy(2, None, threads)
    sink = FileSink(tmp_path, format, partition_by=["k"], compact=strategy)
    writer = sink.create_writer(writer_context())
    expected = []
    for n in range(1, 5):
        rows = {"n": [n, -n, 7], "s": ["a\nb", None, 'c"'], "k": [1, 2, 1 + n % 2]}
        expected += list(zip(rows["n"], rows["s"], rows["k"], strict=True))
        writer.write(ColumnBatch(pa.RecordBatch.from_pydict(rows)))
        writer.commit(prepare(writer, n))
    assert len(visible(tmp_path)) == 4
    found = run(FileSource(tmp_path, format)).finish().rows()
    found = [(n, s or None, k) for n, s, k in found]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_files_of_other_columns_are_not_merged(tmp_path: Path, writer_context: Any) -> None:
    """A subtask may take over files of another one, whose batches had other columns."""
    sink = ParquetSink(tmp_path, compact=every(2))
    held = []
    for i, name in enumerate("ab"):
        dead = sink.create_writer(writer_context(i, 2))
        dead.write(ColumnBatch(pa.RecordBatch.from_pydict({name: [i]})))
        held += prepare(dead, 1)
    writer = sink.create_writer(writer_context(attempt=1))
    writer.recover(held)
    writer.commit(prepare(writer, 2))
    assert [pq.ParquetFile(p).schema_arrow.names for p in visible(tmp_path)] == [["a"], ["b"]]


def test_columns_of_every_type_are_merged(tmp_path: Path, writer_context: Any) -> None:
    """The merged file reads as those that it was made of."""
    at = datetime(2024, 2, 29, 12, 30, 1, tzinfo=UTC)
    columns = {
        "decimal": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        "seconds": pa.array([at.replace(tzinfo=None), None], pa.timestamp("s")),
        "zoned": pa.array([at, None], pa.timestamp("ns", "Europe/Berlin")),
        "date": pa.array([at.date(), None]),
        "time": pa.array([at.time(), None], pa.time64("us")),
        "duration": pa.array([1, None], pa.duration("ms")),
        "list": pa.array([[1, None], None], pa.list_(pa.int8())),
        "struct": pa.array([{"a": "x", "b": [1.5]}, None]),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.uint16())),
        "coded": pa.array(["x", None]).dictionary_encode(),
        "binary": pa.array([b"\x00\xff", None]),
        "fixed": pa.array([b"ab", None], pa.binary(2)),
        "view": pa.array(["text", None], pa.string_view()),
        "large": pa.array(["text", None], pa.large_string()),
        "bool": pa.array([True, None]),
        "null": pa.array([None, None], pa.null()),
        "needed": pa.array([1, 2], pa.uint64()),
    }
    fields = [pa.field(n, a.type, nullable=n != "needed") for n, a in columns.items()]
    schema = pa.schema(fields, metadata={"made": "by a test"})
    batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
    tables = []
    for compact in (None, every(3)):
        folder = tmp_path / str(compact is None)
        writer = ParquetSink(folder, compact=compact).create_writer(writer_context())
        for n in range(1, 4):
            writer.write(ColumnBatch(batch))
            writer.commit(prepare(writer, n))
        found = [pq.ParquetFile(path).read() for path in visible(folder)]
        assert len(found) == (3 if compact is None else 1)
        tables.append(pa.concat_tables(found))
    assert tables[0].equals(tables[1])


def test_a_checkpoint_that_is_overtaken_holds_its_own_files(
    tmp_path: Path, writer_context: Any
) -> None:
    """Checkpoint 2 is prepared before 1 completes: it neither names nor merges the files of 1."""
    sink = ParquetSink(tmp_path, compact=every(2))
    writer = sink.create_writer(writer_context())
    writer.write(batch(1))
    first = prepare(writer, 1)
    writer.write(batch(2))
    second = prepare(writer, 2)
    assert kinds(first) == kinds(second) == ["HeldFile"]
    assert first != second
    # a restore from 2 finds both, wherever they are dealt to
    others = [sink.create_writer(writer_context(i, 2, 1)) for i in range(2)]
    others[0].recover(second)
    others[1].recover(first)
    for writer in others:
        writer.commit(prepare(writer, 3))
    assert records(tmp_path) == [1, 2]
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("more", [False, True])
def test_the_end_of_a_job_leaves_nothing_held(
    tmp_path: Path, writer_context: Any, more: bool
) -> None:
    """Also of a checkpoint that completes after the last one was prepared, or never does, so that
    its files come with those of the last."""
    writer = ParquetSink(tmp_path, compact=every(9)).create_writer(writer_context())
    writer.write(batch(1))
    writer.commit(prepare(writer, 1))
    writer.write(batch(2))
    early = prepare(writer, 2)
    assert kinds(early) == ["HeldFile", "HeldFile"]
    if more:
        writer.write(batch(3))
    writer.finish()
    last = prepare(writer, 3)
    assert kinds(last) == ["FileCommittable"] * more
    assert records(tmp_path) == []
    writer.commit(early)
    assert records(tmp_path) == [1, 2]
    again = ParquetSink(tmp_path, compact=every(9)).create_writer(writer_context(attempt=1))
    again.recover([*early, *last])
    again.finish()
    again.commit(prepare(again, 4))
    again.close()
    assert records(tmp_path) == [1, 2, 3][: 2 + more]
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("compacts", [True, False])
def test_what_was_held_is_found_again(tmp_path: Path, writer_context: Any, compacts: bool) -> None:
    """By a job that compacts, and by one that does not any longer."""
    dead = ParquetSink(tmp_path, compact=every(3)).create_writer(writer_context())
    for n in (1, 2):
        dead.write(batch(n))
        committables = prepare(dead, n)
        if n == 1:
            dead.commit(committables)
    sink = ParquetSink(tmp_path, compact=every(3) if compacts else None)
    writer = sink.create_writer(writer_context(attempt=1))
    writer.recover(committables)
    assert records(tmp_path) == ([] if compacts else [1, 2])
    writer.write(batch(3))
    writer.commit(prepare(writer, 3))
    assert records(tmp_path) == [1, 2, 3]
    assert hidden(tmp_path) == []


def test_a_held_file_that_is_gone_is_named(tmp_path: Path, writer_context: Any) -> None:
    """Going back behind a merge would lose or double records: it is refused."""
    sink = ParquetSink(tmp_path, compact=every(2))
    assert not sink.revocable
    assert ParquetSink(tmp_path).revocable
    writer = sink.create_writer(writer_context())
    writer.write(batch(1))
    first = prepare(writer, 1)
    writer.commit(first)
    writer.write(batch(2))
    writer.commit(prepare(writer, 2))
    again = sink.create_writer(writer_context(attempt=1))
    with pytest.raises(ConnectorError, match=r"held/.*1 rows .*merged file.*latest checkpoint"):
        again.recover(first)


def test_stores_without_rename(writer_context: Any) -> None:
    memory = fsspec.filesystem("memory")
    sink = FileSink("memory://strom-compact", "csv", compact=every(2))
    try:
        writer = sink.create_writer(writer_context())
        for n in (1, 2):
            writer.write(batch(n))
            committables = prepare(writer, n)
            writer.commit(committables)
        (path,) = memory.find("/strom-compact")
        assert memory.cat(path) == b'"n"\n1\n2\n'
        again = sink.create_writer(writer_context(attempt=1))
        again.recover(committables)
        assert memory.find("/strom-compact") == [path]
    finally:
        memory.rm("/strom-compact", recursive=True)


def _parts(committables: list[Any]) -> Iterator[Any]:
    for one in committables:
        yield from one.made_of if isinstance(one, MergedFile) else [one]


def test_each_checkpoint_names_each_file_once(tmp_path: Path, writer_context: Any) -> None:
    writer = ParquetSink(tmp_path, compact=every(3)).create_writer(writer_context())
    for n in range(1, 9):
        writer.write(batch(n))
        committables = prepare(writer, n)
        names = [one.staged for one in _parts(committables)]
        assert len(names) == len(set(names))
        assert all(isinstance(one, HeldFile | FileCommittable) for one in _parts(committables))
        writer.commit(committables)

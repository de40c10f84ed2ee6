"""Row formats, rolling by time, buckets, names: what PyFlink's builders promise."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strom import Duration, Row
from strom.connectors.files import (
    BucketAssigner,
    CsvBulkWriters,
    Encoder,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    FileSource,
    JsonLinesBulkWriters,
    OutputFileConfig,
    ParquetBulkWriters,
    ParquetSink,
    RollingPolicy,
)
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.errors import ConfigurationError, ConnectorError

SCHEMA = pa.schema([("n", pa.int64())])
BASE = BucketAssigner.base_path_bucket_assigner()


def batch(*numbers: int) -> ColumnBatch:
    return ColumnBatch(pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=SCHEMA))


def prepare(writer: Any, checkpoint: int) -> list[Any]:
    prepared = writer.prepare_commit(checkpoint)
    made = prepared() if callable(prepared) else prepared
    return list(pickle.loads(pickle.dumps(made)))


def files(folder: Path) -> dict[str, str]:
    """Published files, by path."""
    found = (p for p in sorted(folder.rglob("*")) if p.is_file())
    names = {str(p.relative_to(folder)): p.read_text() for p in found}
    return {name: text for name, text in names.items() if not name.startswith(".")}


def rows(sink: Any, batches: Sequence[Any], writer_context: Any) -> dict[str, str]:
    writer = sink.create_writer(writer_context())
    for one in batches:
        writer.write(one)
    assert files(Path(sink.config.path)) == {}
    writer.commit(prepare(writer, 1))
    writer.close()
    return files(Path(sink.config.path))


def simple(path: Path) -> Any:
    return FileSink.for_row_format(path, Encoder.simple_string_encoder())


def test_records_become_lines(tmp_path: Path, writer_context: Any) -> None:
    sink = simple(tmp_path).with_bucket_assigner(BASE).build()
    pair = pa.RecordBatch.from_pydict({"a": [1], "b": ["x"]})
    written = rows(
        sink,
        [ObjectBatch(["a", 1, None, ("t", 2), Row(k=3)]), batch(7, 8), ColumnBatch(pair)],
        writer_context,
    )
    (text,) = written.values()
    assert text == "a\n1\nNone\n('t', 2)\nRow(k=3)\n7\n8\nRow(a=1, b='x')\n"
    (name,) = written
    assert name.startswith("part-my_sink-0-1-0-")
    assert "." not in name


def test_charsets_and_own_encoders(tmp_path: Path, writer_context: Any) -> None:
    latin = FileSink.for_row_format(tmp_path / "a", Encoder.simple_string_encoder("ISO-8859-1"))
    writer = latin.with_bucket_assigner(BASE).build().create_writer(writer_context())
    writer.write(ObjectBatch(["ü"]))
    writer.commit(prepare(writer, 1))
    (path,) = (tmp_path / "a").glob("part-*")
    assert path.read_bytes() == b"\xfc\n"

    class Doubled(Encoder):
        def encode(self, value: Any) -> bytes:
            return f"{value}{value};".encode()

    own = FileSink.for_row_format(tmp_path / "b", Doubled()).with_bucket_assigner(BASE).build()
    assert list(rows(own, [ObjectBatch(["a"]), batch(1, 2)], writer_context).values()) == [
        "aa;11;22;"
    ]


def test_an_encoder_that_returns_no_bytes_is_named(tmp_path: Path, writer_context: Any) -> None:
    class Texts(Encoder):
        def encode_batch(self, values: Sequence[Any]) -> bytes:
            return "text"  # type: ignore[return-value]

        def encode(self, value: Any) -> bytes:
            raise AssertionError

    writer = FileSink.for_row_format(tmp_path, Texts()).build().create_writer(writer_context())
    with pytest.raises(ConnectorError, match="encoder Texts of a FileSink returned str, not bytes"):
        writer.write(batch(1))
    writer.close()


@pytest.mark.parametrize(
    ("factory", "ending", "format"),
    [
        (ParquetBulkWriters.for_row_type(SCHEMA), ".parquet", "parquet"),
        (CsvBulkWriters.for_schema(SCHEMA), ".csv", "csv"),
        (JsonLinesBulkWriters.for_schema(SCHEMA), ".jsonl", "jsonl"),
    ],
)
def test_bulk_formats(
    tmp_path: Path, writer_context: Any, run: Any, factory: Any, ending: str, format: Any
) -> None:
    sink = FileSink.for_bulk_format(tmp_path, factory).with_bucket_assigner(BASE).build()
    writer = sink.create_writer(writer_context())
    for n in range(3):
        writer.write(ObjectBatch([(n,)]))
    writer.commit(prepare(writer, 1))
    (name,) = [p.name for p in tmp_path.glob("part-*")]
    assert name.endswith(ending)
    assert run(FileSource(tmp_path, format)).finish().rows() == [(0,), (1,), (2,)]


def test_names(tmp_path: Path, writer_context: Any) -> None:
    names = OutputFileConfig.builder().with_part_prefix("lines").with_part_suffix(".log").build()
    assert (names.get_part_prefix(), names.get_part_suffix()) == ("lines", ".log")
    sink = simple(tmp_path).with_bucket_assigner(BASE).with_output_file_config(names).build()
    writer = sink.create_writer(writer_context())
    for checkpoint in (1, 2):
        writer.write(batch(checkpoint))
        writer.commit(prepare(writer, checkpoint))
    found = sorted(files(tmp_path))
    assert [name.split("-")[0] for name in found] == ["lines", "lines"]
    assert all(name.endswith(".log") for name in found)
    writer.revoke(1)
    assert sorted(files(tmp_path)) == found[:1]


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("pattern", "zone", "folder"),
    [
        ("yyyy-MM-dd--HH", "UTC", "2024-02-29--23/"),
        ("yyyy-MM-dd--HH", "Asia/Tokyo", "2024-03-01--08/"),
        ("uuuu/MM/dd'T'HH:mm:ss", "UTC", "2024/02/29T23:05:06/"),
        ("'day' DDD o''clock'%Y'", "UTC", "day 060 o'clock%Y/"),
        ("yy", "UTC", "24/"),
    ],
)
def test_date_time_buckets(pattern: str, zone: str, folder: str) -> None:
    if "o''clock" in pattern:
        pattern = "'day 'DDD' o''clock%Y'"
    assigner = BucketAssigner.date_time_bucket_assigner(pattern, zone)
    assert pickle.loads(pickle.dumps(assigner)).folder(at("2024-02-29T23:05:06")) == folder


@pytest.mark.parametrize("pattern", ["YYYY", "hh", "yyyy-MMM", "", "_yyyy", ".", "a", "yyyy[MM]"])
def test_bucket_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigurationError, match="bucket pattern"):
        BucketAssigner.date_time_bucket_assigner(pattern)
    with pytest.raises(ConfigurationError, match="no time zone 'Mars'"):
        BucketAssigner.date_time_bucket_assigner(timezone_id="Mars")


def test_a_folder_for_each_hour(tmp_path: Path, writer_context: Any) -> None:
    """Flink's default; by the time at which records are written."""
    hours = BucketAssigner.date_time_bucket_assigner(timezone_id="UTC")
    sink = simple(tmp_path).with_bucket_assigner(hours).build()
    context = writer_context()
    writer = sink.create_writer(context)
    context.clock.advance_to(at("2033-05-18T03:59:59"))
    writer.write(batch(1))
    context.clock.advance_to(at("2033-05-18T04:00:00"))
    writer.write(batch(2))
    writer.commit(prepare(writer, 1))
    folders = {str(Path(name).parent): text for name, text in files(tmp_path).items()}
    assert folders == {"2033-05-18--03": "1\n", "2033-05-18--04": "2\n"}


def test_files_roll_by_age_and_inactivity(tmp_path: Path, writer_context: Any) -> None:
    """Looked at when records come, at most once per check interval."""
    policy = RollingPolicy.default_rolling_policy(1 << 20, Duration.of_seconds(10), 4_000)
    sink = (
        simple(tmp_path)
        .with_bucket_assigner(BASE)
        .with_rolling_policy(policy)
        .with_bucket_check_interval(Duration.of_seconds(1))
        .build()
    )
    context = writer_context()
    writer = sink.create_writer(context)
    #           first |  10 s old  | inactive for 4 s | checked too early
    for n, pause in enumerate([3000, 3000, 3000, 1000, 3900, 4000, 100, 100]):
        writer.write(batch(n))
        context.clock.advance_ms(pause)
    writer.commit(prepare(writer, 1))
    assert list(files(tmp_path).values()) == ["0\n1\n2\n3\n", "4\n5\n", "6\n7\n"]


def test_our_sink_rolls_by_time_too(tmp_path: Path, writer_context: Any) -> None:
    sink = ParquetSink(tmp_path, roll_interval=timedelta(seconds=1))
    context = writer_context()
    writer = sink.create_writer(context)
    for n in range(4):
        writer.write(batch(n))
        context.clock.advance_ms(600)
    writer.commit(prepare(writer, 1))
    found = sorted(tmp_path.glob("part-*"))
    assert [pq.read_table(path)["n"].to_pylist() for path in found] == [[0, 1], [2, 3]]
    idle = FileSink(tmp_path / "idle", "csv", roll_inactivity=1000, bucket_assigner=BASE)
    writer = idle.create_writer(context)
    for n, pause in enumerate([900, 900, 1000, 0]):
        writer.write(batch(n))
        context.clock.advance_ms(pause)
    writer.commit(prepare(writer, 1))
    assert list(files(tmp_path / "idle").values()) == ['"n"\n0\n1\n2\n', '"n"\n3\n']


def test_rows_roll_by_size(tmp_path: Path, writer_context: Any) -> None:
    policy = RollingPolicy.default_rolling_policy(part_size=4)
    sink = simple(tmp_path).with_bucket_assigner(BASE).with_rolling_policy(policy).build()
    written = rows(sink, [batch(n) for n in range(5)], writer_context)
    assert list(written.values()) == ["0\n1\n", "2\n3\n", "4\n"]
    one = (
        simple(tmp_path / "one")
        .with_bucket_assigner(BASE)
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    assert len(rows(one, [batch(n) for n in range(5)], writer_context)) == 1


def test_a_batch_without_records_makes_no_file(tmp_path: Path, writer_context: Any) -> None:
    writer = simple(tmp_path).build().create_writer(writer_context())
    writer.write(batch())
    assert prepare(writer, 1) == []


def test_wrong_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"Encoder\.simple_string_encoder\(\), is str"):
        FileSink.for_row_format(tmp_path, "lines")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="byte order mark"):
        Encoder.simple_string_encoder("UTF-16")
    with pytest.raises(ConfigurationError, match="ParquetBulkWriters"):
        FileSink.for_bulk_format(tmp_path, "parquet")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="part_size"):
        RollingPolicy.default_rolling_policy(part_size=0)
    with pytest.raises(ConfigurationError, match="rollover_interval"):
        RollingPolicy.default_rolling_policy(rollover_interval=0)
    with pytest.raises(ConfigurationError, match="roll_interval"):
        FileSink(tmp_path, roll_interval=timedelta(0))
    for prefix in ("", ".part", "_part"):
        with pytest.raises(ConfigurationError, match="prefix"):
            OutputFileConfig(prefix)
    with pytest.raises(ConfigurationError, match="slash"):
        OutputFileConfig("part", "/x")
    with pytest.raises(ConfigurationError, match="check interval"):
        simple(tmp_path).with_bucket_check_interval(0)
    with pytest.raises(ConfigurationError, match="must say when"):
        FileCompactStrategy.builder().build()
    with pytest.raises(ConfigurationError, match="at least 1"):
        FileCompactStrategy.builder().set_size_threshold(0).build()
    when = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2).build()
    with pytest.raises(ConfigurationError, match="no Parquet file"):
        FileSink(tmp_path, compact=when, compactor=FileCompactor.concat_file_compactor())
    with pytest.raises(ConfigurationError, match="cannot be read back"):
        simple(tmp_path).enable_compact(when, FileCompactor.record_wise_file_compactor())
    with pytest.raises(ConfigurationError, match="delimiter between CSV"):
        FileSink(tmp_path, "csv", compact=when, compactor=FileCompactor.concat_file_compactor(";"))
    with pytest.raises(ConfigurationError, match="say when to compact"):
        FileSink(tmp_path, compactor=FileCompactor.record_wise_file_compactor())

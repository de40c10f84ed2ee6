"""Avro container files, and Parquet with an Avro schema, as PyFlink's formats."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawn_ways import assert_files_equivalent
from strom import Types
from strom.connectors.files import (
    AvroParquetReaders,
    AvroParquetWriters,
    AvroSchema,
    AvroWriters,
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    FileSource,
)
from strom.core.batch import ObjectBatch
from strom.core.errors import ConfigurationError, ConnectorError

TEXT = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "n", "type": "long"},
            {"name": "s", "type": ["null", "string"]},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
        ],
    }
)
DAY = dt.date(2024, 1, 31)


def record(n: int) -> dict[str, Any]:
    s = None if n % 3 else f"s{n}"
    return {"n": n, "s": s, "day": DAY, "tags": ["a"] * (n % 3), "counts": {"x": n}}


def flat(builder: Any) -> FileSink:
    assigner = BucketAssigner.base_path_bucket_assigner()
    sink: FileSink = builder.with_bucket_assigner(assigner).build()
    return sink


def write(context: Any, sink: FileSink, *records: Any) -> None:
    writer = sink.create_writer(context)
    try:
        writer.write(ObjectBatch(list(records)))
        prepared = writer.prepare_commit(1)
        writer.commit(prepared() if callable(prepared) else prepared)
    finally:
        writer.close()


def test_written_in_jobs_and_read_by_anybody() -> None:
    declared = Types.ROW_NAMED(["n"], [Types.LONG()])

    def build(env: Any, folder: Path) -> None:
        schema = AvroSchema.parse_string(TEXT)
        made = env.from_collection([(n,) for n in range(40)], declared).map(lambda r: record(r.n))
        made.sink_to(flat(FileSink.for_bulk_format(folder, AvroWriters.for_generic_record(schema))))

    def read(folder: Path) -> list[Any]:
        rows: list[Any] = []
        for path in sorted(folder.glob("part-*.avro")):
            with path.open("rb") as file:
                rows += list(fastavro.reader(file))
        return [str(row) for row in rows]

    assert_files_equivalent(build, read, [str(record(n)) for n in range(40)])


def test_read_through_any_restore(run: Any, writer_context: Any, tmp_path: Path) -> None:
    schema = AvroSchema(TEXT)
    sink = flat(FileSink.for_bulk_format(tmp_path, AvroWriters.for_generic_record(schema)))
    write(writer_context(), sink, *(record(n) for n in range(50)))
    source = FileSource(tmp_path, "avro")
    assert source.schema == schema.columns
    for steps in (0, 3, 5):
        first = run(source, batch_size=7)
        for _ in range(steps):
            first.step(0)
        rest = first.restored(first.snapshot(), 2).finish()
        rows = [*first.rows(), *rest.rows()]
        assert [row.n for row in rows] == list(range(50))
        assert [dict(row.counts) for row in rows] == [{"x": n} for n in range(50)]
    some = run(FileSource(tmp_path, "avro", columns=["s", "n"])).finish().rows()
    assert some[3] == ("s3", 3)


def test_parquet_with_an_avro_schema(run: Any, writer_context: Any, tmp_path: Path) -> None:
    schema = AvroSchema(TEXT)
    sink = flat(FileSink.for_bulk_format(tmp_path, AvroParquetWriters.for_generic_record(schema)))
    write(writer_context(), sink, record(1), record(3))
    (path,) = tmp_path.glob("part-*.parquet")
    assert pq.read_schema(path).names == ["n", "s", "day", "tags", "counts"]
    reads = AvroParquetReaders.for_generic_record(schema)
    source = FileSource.for_record_stream_format(reads, tmp_path).build()
    rows = run(source).finish().rows()
    assert [(row.n, row.s, row.day) for row in rows] == [(1, None, DAY), (3, "s3", DAY)]


def test_files_that_do_not_fit_are_named(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(b"Obj\x01 no")
    with pytest.raises(ConnectorError, match=r"a\.avro.*must be an Avro container file"):
        run(FileSource(tmp_path, "avro")).finish()
    whole = tmp_path / "whole.avro"
    with whole.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(json.loads(TEXT)), map(record, range(9)))
    (tmp_path / "a.avro").write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(ConnectorError, match=r"a\.avro"):
        run(FileSource(tmp_path / "a.avro", "avro")).finish()
    other = pa.schema([("n", pa.string())])
    with pytest.raises(
        ConnectorError, match=r"whole\.avro' has columns \(n: int64\), but the decl"
    ):
        run(FileSource(whole, "avro", schema=other)).finish()


def test_what_there_is_not_is_refused(writer_context: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="this is no Avro schema"):
        AvroSchema.parse_string("{")
    with pytest.raises(ConfigurationError, match=r"cannot read '.*none\.avsc'"):
        AvroSchema.parse_file(str(tmp_path / "none.avsc"))
    (tmp_path / "r.avsc").write_text(TEXT)
    assert str(AvroSchema.parse_file(str(tmp_path / "r.avsc"))) == TEXT
    with pytest.raises(ConfigurationError, match=r"needs their schema.*AvroWriters"):
        FileSink(str(tmp_path), "avro")
    factory = AvroWriters.for_generic_record(AvroSchema(TEXT))
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2).build()
    compactor = FileCompactor.record_wise_file_compactor()
    with pytest.raises(ConfigurationError, match="a FileSink of Avro cannot compact its files"):
        FileSink.for_bulk_format(tmp_path, factory).enable_compact(strategy, compactor).build()
    with pytest.raises(ConfigurationError, match="Avro files have text in UTF-8"):
        FileSource("x", "avro", charset="latin-1")
    lacking = {**record(1), "tags": None}
    with pytest.raises(ConnectorError, match="a record does not fit the schema"):
        write(writer_context(), flat(FileSink.for_bulk_format(tmp_path, factory)), lacking)

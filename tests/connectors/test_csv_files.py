"""`CsvSchema`: CSV files as PyFlink describes them, read and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drawn_ways import assert_files_equivalent
from strom import JobFailedError, StreamExecutionEnvironment, Types
from strom.connectors.files import (
    BucketAssigner,
    CsvBulkWriter,
    CsvReaderFormat,
    CsvSchema,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
    FileSource,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
)
from strom.core.errors import ConfigurationError, ConnectorError


def described() -> Any:
    return (
        CsvSchema.builder()
        .add_number_column("id", Types.INT())
        .add_string_column("name")
        .add_array_column("list", ",", Types.LONG())
        .set_column_separator("|")
    )


def source(schema: CsvSchema, *paths: Path) -> FileSource:
    return FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), *paths).build()


def test_columns_go_by_their_order_without_a_header(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1|x|1,2\n2|'a|b'|\n3|n/a|4,n/a\n")
    schema = described().set_quote_char("'").set_null_value("n/a").build()
    made = source(schema, tmp_path)
    assert made.schema == pa.schema(
        [("id", pa.int32()), ("name", pa.string()), ("list", pa.list_(pa.int64()))]
    )
    rows = run(made, batch_size=2).finish().rows()
    assert rows == [(1, "x", [1, 2]), (2, "a|b", []), (3, None, [4, None])]
    assert schema.get_type_info().get_field_names() == ["id", "name", "list"]
    assert len(schema) == schema.size() == 3


def test_headers(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id|other|list\n7|skipped|\n1|x|\n")
    builder = described().set_use_header().set_skip_first_data_row()
    assert run(source(builder.build(), tmp_path)).finish().rows() == [(1, "x", [])]
    strict = source(builder.set_strict_headers().build(), tmp_path)
    with pytest.raises(ConnectorError, match=r"a\.csv' has the header \['id', 'other', 'list'\]"):
        run(strict).finish()
    (tmp_path / "a.csv").write_text("id|name|list\n7|skipped|\n2|y|\n")
    assert run(strict).finish().rows() == [(2, "y", [])]


def test_any_restore_reads_each_line_once(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("".join(f"{n}|n{n}|{n},{n}\n" for n in range(50)))
    made = source(described().build(), tmp_path)
    for steps in range(0, 12, 3):
        first = run(made, batch_size=7)
        for _ in range(steps):
            first.step(0)
        rest = first.restored(first.snapshot(), 2).finish()
        rows = first.rows() + rest.rows()
        assert sorted(rows) == [(n, f"n{n}", [n, n]) for n in range(50)]


ODD = ["plain", "a|b", "back\\slash", '"quoted"', "it's", "'", "\\", "a\\|b", "", " x "]


@pytest.mark.parametrize(
    ("told", "texts"),
    [
        (lambda builder: builder.set_escape_char("\\"), [*ODD, "two\nlines"]),
        (lambda builder: builder.set_escape_char("\\").set_quote_char("'"), ODD),
        (lambda builder: builder.set_escape_char("\\").disable_escape_char(), ODD),
        (lambda builder: builder.disable_quote_char().set_escape_char("\\"), ODD),
        (lambda builder: builder.disable_quote_char(), [t for t in ODD if "|" not in t]),
        (lambda builder: builder.set_line_separator("\r\n"), [*ODD, "two\nlines"]),
        (lambda builder: builder.set_line_separator("\r"), ODD),
    ],
    ids=["escape", "escape and quote", "escape taken back", "escape only", "bare", "crlf", "cr"],
)
def test_what_is_written_with_these_characters_is_read(
    told: Any, texts: list[str], run: Any, tmp_path: Path
) -> None:
    columns = CsvSchema.builder().add_number_column("id").add_string_column("name")
    schema = told(columns.set_column_separator("|")).build()
    rows = list(enumerate(texts))
    written(rows, schema, tmp_path)
    files = sorted(tmp_path.glob("part-*.csv"))
    assert [tuple(r) for f in files for r in run(source(schema, f)).finish().rows()] == rows


def written(rows: list[Any], schema: CsvSchema, folder: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    declared = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
    sink = FileSink.for_bulk_format(folder, CsvBulkWriter.for_schema(schema))
    flat = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    env.from_collection(rows, declared).sink_to(flat)
    env.execute()


def test_lines_end_as_they_are_told_to(tmp_path: Path) -> None:
    columns = CsvSchema.builder().add_number_column("id").add_string_column("name")
    written([(1, "x"), (2, "y")], columns.set_line_separator("\r\n").build(), tmp_path)
    (file,) = tmp_path.glob("part-*.csv")
    assert file.read_bytes() == b"1,x\r\n2,y\r\n"


def test_files_whose_lines_would_not_end_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="without a line separator all records"):
        CsvSchema.builder().add_string_column("a").set_line_separator("")


def test_a_text_that_needs_quotes_is_an_error_without_any(tmp_path: Path) -> None:
    columns = CsvSchema.builder().add_number_column("id").add_string_column("name")
    with pytest.raises(JobFailedError, match="'name' holds a delimiter, which CSV without a quote"):
        written([(1, "a,b")], columns.disable_quote_char().build(), tmp_path)


@pytest.mark.parametrize(
    ("text", "header", "first"),
    [
        *(("", False, False), ("", True, False), ("\ufeff", False, False)),
        *(("id|name|list", True, False), ("id|name|list\n7|x|", True, True)),
    ],
)
def test_files_without_records(
    run: Any, tmp_path: Path, text: str, header: bool, first: bool
) -> None:
    (tmp_path / "a.csv").write_text("id|name|list\n" * header + "7|x|\n" * first + "1|x|\n")
    (tmp_path / "b.csv").write_text(text)
    schema = described().set_use_header(header).set_skip_first_data_row(first).build()
    assert run(source(schema, tmp_path)).finish().rows() == [(1, "x", [])]


def test_an_empty_file_has_no_strict_header(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    strict = described().set_use_header().set_strict_headers().build()
    with pytest.raises(ConnectorError, match=r"a\.csv' has the header \[\], but"):
        run(source(strict, tmp_path)).finish()


@pytest.mark.parametrize(
    ("text", "message"),
    [("1|x\n", "Expected 3 columns"), ("one|x|\n", "int32"), ("1|x|a\n", "int64"), ("|x|\n", "''")],
)
def test_lines_that_do_not_fit_are_named(run: Any, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ConnectorError, match=rf"a\.csv.*{message}"):
        run(source(described().build(), tmp_path)).finish()


def test_written_and_read_in_jobs(run: Any) -> None:
    """Through crashes, with commas, line breaks and nulls in the texts."""
    schema = described().set_null_value("NULL").set_use_header().build()
    rows = [(n, [f"a|{n}", 'q"\n', None][n % 3], list(range(n % 4))) for n in range(40)]
    declared = Types.ROW_NAMED(
        ["id", "name", "list"], [Types.INT(), Types.STRING(), Types.LIST(Types.LONG())]
    )

    def build(env: Any, folder: Path) -> Any:
        sink = FileSink.for_bulk_format(folder, CsvBulkWriter.for_schema(schema))
        flat = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
        env.from_collection(rows, declared).sink_to(flat)

    def read(folder: Path) -> list[Any]:
        files = sorted(folder.glob("part-*.csv"))
        return [tuple(r) for f in files for r in run(source(schema, f)).finish().rows()]

    assert_files_equivalent(build, read, rows)


def test_what_there_is_not_is_refused() -> None:
    builder = CsvSchema.builder()
    with pytest.raises(ConfigurationError, match="there is no column"):
        builder.build()
    with pytest.raises(ConfigurationError, match="comments in CSV files are not known"):
        builder.set_allow_comments()
    with pytest.raises(ConfigurationError, match="without a line separator all records"):
        builder.set_line_separator("")
    with pytest.raises(ConfigurationError, match="others to be called 'rest'"):
        builder.set_any_property_name("rest")
    with pytest.raises(ConfigurationError, match="7 is no column's type"):
        builder.add_number_column("n", 7)
    twice = CsvSchema.builder().add_string_column("a").add_boolean_column("a")
    with pytest.raises(ConfigurationError, match="two columns are called 'a'"):
        twice.build()
    assert twice.clear_columns().add_columns_from(described().build()).size() == 3
    with pytest.raises(ConfigurationError, match="a schema or a csv_schema, not both"):
        FileSource("x", "csv", schema={"a": int}, csv_schema=described().build())
    with pytest.raises(ConfigurationError, match="describes files of format 'csv', not 'jsonl'"):
        FileSource("x", "jsonl", csv_schema=described().build())
    compacting = FileSink.for_bulk_format("x", CsvBulkWriter.for_schema(described().build()))
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2).build()
    with pytest.raises(ConfigurationError, match="cannot compact its files"):
        compacting.enable_compact(strategy, FileCompactor.record_wise_file_compactor()).build()


def test_pyflinks_arguments_of_parquet_writers() -> None:
    row = Types.ROW_NAMED(["a"], [Types.INT()])
    assert ParquetBulkWriters.for_row_type(row, None, True).compression == "zstd"
    assert ParquetBulkWriters.for_row_type(row, hadoop_config=object()).schema == row
    assert ParquetBulkWriters.for_row_type(row, compression="snappy").compression == "snappy"
    assert ParquetBulkWriters.for_row_type(row, "snappy").compression == "snappy"


def test_pyflinks_arguments_of_a_parquet_format() -> None:
    row = Types.ROW_NAMED(["a"], [Types.INT()])
    given = ParquetColumnarRowInputFormat(
        hadoop_config=None, row_type=row, batch_size=500, is_utc_timestamp=True
    )
    assert given.schema == row
    assert ParquetColumnarRowInputFormat(row).schema == row
    with pytest.raises(ConfigurationError, match="names are case-sensitive"):
        ParquetColumnarRowInputFormat(None, row, 500, True, False)

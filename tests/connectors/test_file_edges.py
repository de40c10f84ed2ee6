"""Files, paths and columns that are not as they mostly are: read, or refused by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from strom import StreamExecutionEnvironment
from strom.connectors.files import FileCompactStrategy, FileSink, FileSource
from strom.connectors.files.partitions import split_by
from strom.connectors.files.paths import find_files, list_files
from strom.core.errors import ConfigurationError, ConnectorError, TypeMismatchError

WORDS = ["grün", "Käse"]


@pytest.mark.parametrize("charset", ["latin-1", "utf-16", "UTF-8", "cp1252"])
@pytest.mark.parametrize("format", ["csv", "jsonl", "text"])
@pytest.mark.parametrize("declared", [True, False])
def test_text_is_read_in_its_charset(
    run: Any, tmp_path: Path, charset: str, format: Any, declared: bool
) -> None:
    lines = {
        "csv": ["w", *WORDS],
        "jsonl": [f'{{"w":"{word}"}}' for word in WORDS],
        "text": WORDS,
    }[format]
    (tmp_path / "file").write_bytes("".join(f"{line}\n" for line in lines).encode(charset))
    schema = pa.schema([("w", pa.string())]) if declared and format != "text" else None
    rows = run(FileSource(tmp_path, format, schema=schema, charset=charset)).finish().rows()
    assert [row if format == "text" else row.w for row in rows] == WORDS


def test_bytes_that_are_not_in_the_charset_are_named(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"w\n\xff\n")
    with pytest.raises(ConnectorError, match=r"a\.csv.*in ASCII"):
        run(FileSource(tmp_path, "csv", charset="ascii")).finish()


def test_a_charset_is_for_text() -> None:
    with pytest.raises(ConfigurationError, match="charset 'iso8859-1' is for CSV, JSON Lines and"):
        FileSource("x", charset="latin-1")


@pytest.mark.parametrize("schema", [None, pa.schema([("a", pa.int64())])])
def test_two_columns_of_one_name_are_named(run: Any, tmp_path: Path, schema: Any) -> None:
    (tmp_path / "x.csv").write_text("a,a,b\n1,2,3\n")
    with pytest.raises(ConnectorError, match=r"x\.csv' has several columns called 'a'"):
        run(FileSource(tmp_path, "csv", schema=schema)).finish()
    b = pa.schema([("b", pa.int64())])
    assert run(FileSource(tmp_path, "csv", schema=b)).finish().rows() == [(3,)]


def test_two_columns_of_one_name_in_parquet(run: Any, tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(ConnectorError, match=r"x\.parquet' has several columns called 'a'"):
        run(FileSource(tmp_path)).finish()


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (None, "or several, is None"),
        (7, "or several, is 7"),
        (b"x", "or several, is b'x'"),
        (["a", None], "must be text or a Path, is None"),
        ([], "needs at least one path"),
    ],
)
def test_paths_that_are_none(paths: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        FileSource(paths)


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.list_(pa.int64()), pa.struct([("x", pa.int64())]), pa.duration("s")],
    ids=str,
)
def test_partitions_need_values_with_a_text(tmp_path: Path, kind: pa.DataType) -> None:
    schema = pa.schema([("n", pa.int64()), ("v", kind)])
    with pytest.raises(ConfigurationError, match=r"cannot partition by column 'v' of type"):
        FileSink(str(tmp_path), schema=schema, partition_by=["v"])
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.nulls(1, kind)], schema=schema)
    with pytest.raises(TypeMismatchError, match=r"cannot partition by column 'v' of type"):
        list(split_by(batch, ["v"]))


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """folder/a.txt, folder/other -> elsewhere (b.txt, and up -> folder), folder/self -> folder"""
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "a.txt").write_text("a\n")
    (elsewhere / "b.txt").write_text("b\n")
    os.symlink(elsewhere, folder / "other")
    os.symlink(folder, elsewhere / "up")
    os.symlink(folder, folder / "self")
    os.symlink(elsewhere, folder / ".hidden")
    return folder


def test_links_to_folders_are_followed_but_not_round_in_circles(run: Any, linked: Path) -> None:
    expected = [str(linked / "a.txt"), str(linked / "other" / "b.txt")]
    assert find_files([str(linked)], None) == expected
    assert sorted(list_files([str(linked)], None)) == expected
    assert sorted(list_files([str(linked / "*")], None)) == expected
    assert run(FileSource(linked, "text")).finish().rows() == ["a", "b"]


def test_a_wildcard_stands_for_no_hidden_folder(tmp_path: Path) -> None:
    for name in (".staging", "_old", "_k=1", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text("x\n")
    shown = [str(tmp_path / name / "x.txt") for name in ("_k=1", "new")]
    for pattern in ("*", "*/x.txt", "**/x.txt", "**"):
        assert find_files([str(tmp_path / pattern)], None) == shown, pattern
    staged = str(tmp_path / ".staging" / "*.txt")
    assert find_files([staged], None) == [str(tmp_path / ".staging" / "x.txt")]


def test_partition_folders_may_be_links(run: Any, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"n": [1]}), tmp_path / "far" / "x.parquet")
    os.symlink(tmp_path / "far", tmp_path / "t" / "day=3")
    assert run(FileSource(tmp_path / "t")).finish().rows() == [(1, 3)]


def test_rows_of_views_are_split_too() -> None:
    """Arrow itself cannot take them, alone or within other values."""
    texts = pa.array(["a text that is longer than twelve bytes", None, "short"], pa.string_view())
    within = pa.StructArray.from_arrays([texts], names=["t"])
    data = pa.record_batch({"p": ["x", "y", "x"], "text": texts, "within": within})
    found = {folder: part.to_pydict() for folder, part in split_by(data, ["p"])}
    assert found == {
        "p=x/": {
            "text": [texts[0].as_py(), "short"],
            "within": [{"t": texts[0].as_py()}, {"t": "short"}],
        },
        "p=y/": {"text": [None], "within": [{"t": None}]},
    }


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("by", [[], ["p"], ["s"]])
def test_views_are_written_as_text(tmp_path: Path, form: Any, by: list[str]) -> None:
    """Arrow writes no CSV of them; and files are merged, for which its header is written again."""
    views = pa.array(["a text that is longer than twelve bytes", "", "x"], pa.string_view())
    data = pa.table({"p": ["x", "y", "x"], "s": views, "n": [1, 2, 3]})
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    compact = FileCompactStrategy.builder().set_size_threshold(1 << 20).build()
    sink = FileSink(str(tmp_path), form, partition_by=by, compact=compact)
    env.from_collection(data).sink_to(sink)
    env.execute("views")
    files = [path for path in tmp_path.rglob(f"*.{form}") if path.is_file()]
    found = [FileSource(str(path), form).schema.names for path in files]
    assert found == [[name for name in data.schema.names if name not in by]] * len(files)
    text = b"".join(path.read_bytes() for path in files)
    assert by == ["s"] or form == "parquet" or b"a text that is longer than twelve bytes" in text

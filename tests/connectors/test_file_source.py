"""Files are read completely, in order, from any position; broken ones are named."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from amounts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strom import (
    DataStream,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    count,
    max_,
)
from strom.connectors.files import FileSource
from strom.connectors.files.object_lines import ObjectLines
from strom.core.errors import ConfigurationError, ConnectorError, JobFailedError

FORMATS = ("parquet", "csv", "jsonl")
FILES = {"b": range(20, 33), "a": range(20), "c": range(33, 34)}
EXPECTED = [(i, f"name {i}") for i in range(34)]


def table(numbers: Any) -> pa.Table:
    return pa.table({"n": list(numbers), "s": [f"name {i}" for i in numbers]})


def write(path: Path, data: pa.Table, format: str, row_group: int = 6) -> None:
    if format == "parquet":
        pq.write_table(data, path, row_group_size=row_group)
    elif format == "csv":
        pacsv.write_csv(data, path)
    else:
        import polars as pl

        path.write_bytes(pl.DataFrame(data).write_ndjson().encode())


@pytest.fixture(params=FORMATS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    for name, numbers in FILES.items():
        write(tmp_path / f"{name}.{request.param}", table(numbers), request.param)
    return tmp_path, request.param


def test_reads_every_row_in_order_of_path(folder: Any, run: Any) -> None:
    path, format = folder
    for given_path in (path, f"{path}/*.{format}", [path / f"{n}.{format}" for n in "cab"]):
        source = FileSource(given_path, format)
        assert source.bounded
        assert source.schema.names == ["n", "s"]
        done = run(source).finish()
        assert done.rows() == EXPECTED
        assert max(len(b) for b in done.batches[0]) <= 7


def test_splits_do_not_depend_on_who_asks(folder: Any, run: Any) -> None:
    path, format = folder
    source = FileSource(path, format)
    ids = [s.split_id for s in run(source).enumerator.snapshot()]
    assert ids == [s.split_id for s in run(source, parallelism=5).enumerator.snapshot()]
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids, key=lambda i: (i.split("#")[0], int((i + "#0").split("#")[1])))
    assert len(ids) == (4 + 3 + 1 if format == "parquet" else 3)
    assert sorted(run(source, parallelism=3).finish().rows()) == EXPECTED


def test_restores_at_every_batch_boundary(folder: Any, run: Any) -> None:
    path, format = folder
    source = FileSource(path, format)
    total = sum(1 for _ in iter_steps(run(source, batch_size=4)))
    for stop in range(total + 1):
        first = run(source, batch_size=4)
        for _ in range(stop):
            first.step(0)
        rest = first.restored(first.snapshot(), 1).finish()
        assert first.rows() + rest.rows() == EXPECTED, stop


def iter_steps(running: Any) -> Any:
    while not all(running.done):
        yield running.step(0)


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    schedule=st.lists(st.integers(0, 2), max_size=40),
    batch_size=st.integers(1, 9),
    parallelism=st.integers(1, 4),
)
def test_restores_anywhere_at_any_parallelism(
    folder: Any, run: Any, schedule: list[int], batch_size: int, parallelism: int
) -> None:
    path, format = folder
    first = run(FileSource(path, format), parallelism=3, batch_size=batch_size)
    for subtask in schedule:
        first.step(subtask)
    rest = first.restored(first.snapshot(), parallelism).finish()
    assert sorted(first.rows() + rest.rows()) == EXPECTED


def test_columns_and_declared_schema(folder: Any, run: Any) -> None:
    path, format = folder
    assert run(FileSource(path, format, columns=["s"])).finish().rows() == [
        (s,) for _, s in EXPECTED
    ]
    schema = pa.schema([("s", pa.string()), ("n", pa.int64())])
    declared = FileSource(path, format, schema=schema)
    assert declared.schema.equals(schema)
    assert run(declared).finish().rows() == [(s, n) for n, s in EXPECTED]


def test_another_files_columns_are_an_error_with_both_schemas(folder: Any, run: Any) -> None:
    path, format = folder
    write(path / f"d.{format}", pa.table({"n": ["x", "y"], "s": ["1", "x"]}), format)
    with pytest.raises(ConnectorError, match=r"d\.\w+") as caught:
        run(FileSource(path, format)).finish()
    assert "n: int64" in str(caught.value)
    assert "n: string" in str(caught.value)


def test_one_column_more_is_an_error_unless_columns_are_chosen(folder: Any, run: Any) -> None:
    path, format = folder
    more = table([34]).append_column("extra", [[1]])
    write(path / f"d.{format}", more, format)
    with pytest.raises(ConnectorError, match=r"d\.\w+.*extra"):
        run(FileSource(path, format)).finish()
    rows = run(FileSource(path, format, columns=["n"])).finish().rows()
    assert rows == [(i,) for i in range(35)]


def test_missing_columns_are_named(folder: Any, run: Any) -> None:
    path, format = folder
    with pytest.raises(ConnectorError, match=r"a\.\w+' has no column \['zz'\]"):
        run(FileSource(path, format, columns=["zz"]))


def test_nothing_matches(tmp_path: Path, run: Any) -> None:
    for pattern in (tmp_path / "nope.csv", f"{tmp_path}/*.csv", tmp_path):
        with pytest.raises(ConnectorError, match="no file matches"):
            run(FileSource(pattern, "csv"))


def test_a_file_that_vanished_is_named(folder: Any, run: Any) -> None:
    path, format = folder
    running = run(FileSource(path, format))
    (path / f"b.{format}").unlink()
    with pytest.raises(ConnectorError, match=r"b\.\w+'.*no such file"):
        running.finish()


def test_corrupt_parquet_is_named(tmp_path: Path, run: Any) -> None:
    write(tmp_path / "a.parquet", table(range(5)), "parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    for content in (b"", b"PAR1", whole[:-20], b"x" * 500):
        (tmp_path / "b.parquet").write_bytes(content)
        with pytest.raises(ConnectorError, match=r"b\.parquet'.*not complete, readable Parquet"):
            run(FileSource(tmp_path))


def test_empty_text_files(tmp_path: Path, run: Any) -> None:
    for format in ("csv", "jsonl"):
        (tmp_path / f"a.{format}").write_bytes(b"")
        with pytest.raises(ConnectorError, match=rf"a\.{format}'"):
            run(FileSource(tmp_path / f"a.{format}", format)).finish()
    schema = pa.schema([("n", pa.int64())])
    source = FileSource(tmp_path / "a.jsonl", "jsonl", schema=schema)
    assert run(source).finish().rows() == []


def test_malformed_text_names_the_file(tmp_path: Path, run: Any) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n1,2,3\n")
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a": \n')
    for format in ("csv", "jsonl"):
        with pytest.raises(ConnectorError, match=rf"a\.{format}'"):
            run(FileSource(tmp_path / f"a.{format}", format)).finish()


@pytest.mark.parametrize(
    "text", [b"null\n", b'{"s":"a"}\nnull\n', b"  7", b'{"s":"a"}\n \n[1]', b'{"s":"x\xff"}\n']
)
def test_a_line_that_is_no_json_object_names_the_file(
    tmp_path: Path, run: Any, text: bytes
) -> None:
    """Arrow's parser would end the process at some of them, and let others pass."""
    (tmp_path / "odd.jsonl").write_bytes(text)
    source = FileSource(tmp_path, format="jsonl", schema=pa.schema([("s", pa.string())]))
    with pytest.raises(ConnectorError, match=r"odd\.jsonl"):
        run(source).finish()


@pytest.mark.parametrize("size", [1, 2, 7, 1 << 20])
def test_lines_that_are_empty_or_begin_with_space(size: int) -> None:
    text = b' {"a":1}\n\n \r\n\t{"a":2}\r\n{"a":"\\n"}\n  '
    lines = ObjectLines(io.BytesIO(text))
    assert b"".join(iter(lambda: lines.read(size), b"")) == text
    lines = ObjectLines(io.BytesIO(text + b"x"))
    with pytest.raises(pa.ArrowInvalid, match="not a JSON object"):
        list(iter(lambda: lines.read(size), b""))


@pytest.mark.parametrize("column", [[1, None, 3], [None], [None, None, 2]])
def test_an_empty_line_of_a_single_column_is_a_row(
    tmp_path: Path, run: Any, column: list[int | None]
) -> None:
    """Else what a CSV sink writes for null would vanish."""
    data = pa.table({"a": pa.array(column, pa.int64())})
    write(tmp_path / "one.csv", data, "csv")
    for schema in (data.schema, None):
        if schema is not None or any(column):
            rows = run(FileSource(tmp_path, format="csv", schema=schema)).finish().rows()
            assert [row.a for row in rows] == column
    write(tmp_path / "one.csv", data.append_column("b", data["a"]), "csv")
    projected = FileSource(tmp_path, format="csv", schema=data.schema, columns=["a"])
    assert [row.a for row in run(projected).finish().rows()] == column


def test_quoted_newlines_in_csv(tmp_path: Path, run: Any) -> None:
    (tmp_path / "a.csv").write_text('a,b\n"x\ny",2\nz,3\n')
    assert run(FileSource(tmp_path, "csv")).finish().rows() == [("x\ny", 2), ("z", 3)]


def test_a_file_that_shrank_is_an_error(tmp_path: Path, run: Any) -> None:
    write(tmp_path / "a.csv", table(range(20)), "csv")
    first = run(FileSource(tmp_path, "csv"))
    for _ in range(3):
        first.step(0)
    snapshot = first.snapshot()
    write(tmp_path / "a.csv", table(range(10)), "csv")
    with pytest.raises(ConnectorError, match=r"a\.csv' ends 4 rows before .* position 14"):
        first.restored(snapshot, 1).finish()


def test_hidden_files_are_not_read(tmp_path: Path, run: Any) -> None:
    write(tmp_path / "a.csv", table(range(3)), "csv")
    (tmp_path / ".staging").mkdir()
    for name in (".staging/x.csv", "_SUCCESS", ".hidden.csv"):
        (tmp_path / name).write_text("garbage")
    assert len(run(FileSource(tmp_path, "csv")).finish().rows()) == 3


def test_reads_any_fsspec_filesystem(run: Any) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    with memory.open("/strom-in/a.csv", "wb") as file:
        file.write(b"n\n1\n2\n")
    try:
        assert run(FileSource("memory://strom-in/*.csv", "csv")).finish().rows() == [(1,), (2,)]
    finally:
        memory.rm("/strom-in", recursive=True)


def test_close_releases_the_open_file(folder: Any, run: Any) -> None:
    path, format = folder
    running = run(FileSource(path, format), batch_size=2)
    running.step(0)
    running.step(0)
    running.readers[0].close()
    running.readers[0].close()


def test_wrong_settings() -> None:
    with pytest.raises(ConfigurationError, match="'xml'"):
        FileSource("x", "xml")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"\['b'\]"):
        FileSource("x", columns=["b"], schema=pa.schema([("a", pa.int64())]))
    with pytest.raises(ConfigurationError, match="at least one path"):
        FileSource([])


def _program(path: Path) -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_source(FileSource(str(path))).with_event_time("ts")
    windows = stream.key_by("k").window(TumblingEventTimeWindows.of(10))
    return windows.aggregate(n=count(), top=max_("ts")).key_by("k").deduplicate("last", "top")


@pytest.mark.parametrize("name", ["x.parquet", "*.parquet", "."])
def test_files_that_are_not_here_yet_are_no_error_of_the_program(tmp_path: Path, name: str) -> None:
    """They may be where the job runs."""
    results = _program(tmp_path / name)
    pq.write_table(pa.table({"k": ["a", "a"], "ts": [1, 2]}), tmp_path / "x.parquet")
    (row,) = results.execute_and_collect()
    assert (row.k, row.n, row.top) == ("a", 2, 2)


def test_files_that_are_nowhere_are_an_error_of_the_job(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match=r"no file matches '.*nope\.parquet'"):
        list(_program(tmp_path / "nope.parquet").execute_and_collect())


def test_a_file_that_cannot_be_read_is_told_by_the_program(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"no parquet")
    with pytest.raises(ConnectorError, match=r"x\.parquet"):
        _program(tmp_path / "x.parquet")

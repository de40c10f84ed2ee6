"""Folders named `name=value` are columns, and filters leave out what cannot match, and no more."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from amounts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strom.connectors.files import FileSink, FileSource, ParquetSink
from strom.core.batch import ColumnBatch
from strom.core.errors import ConfigurationError, ConnectorError

NULL = "__HIVE_DEFAULT_PARTITION__"


def write(root: Path, folder: str, numbers: list[int], format: str = "parquet") -> None:
    path = root / folder
    path.mkdir(parents=True, exist_ok=True)
    table = pa.table({"n": numbers, "s": [f"s{n}" for n in numbers]})
    if format == "parquet":
        pq.write_table(table, path / "a.parquet", row_group_size=2)
    else:
        pacsv.write_csv(table, path / "a.csv")


@pytest.fixture(params=["parquet", "csv"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    for day, kind, numbers in [
        ("1", "x%2Fy", [1, 2, 3]),
        ("02", "plain", [4]),
        (NULL, "%C3%BC=", [5, 6]),
    ]:
        write(tmp_path, f"day={day}/kind={kind}", numbers, request.param)
    return tmp_path, request.param


ROWS = [(4, "s4", 2, "plain"), *((n, f"s{n}", 1, "x/y") for n in (1, 2, 3))]
ROWS += [(n, f"s{n}", None, "ü=") for n in (5, 6)]


def tuples(rows: list[Any]) -> list[Any]:
    return sorted(map(tuple, rows), key=repr)


def test_folders_are_columns(folder: Any, run: Any) -> None:
    path, format = folder
    for given_path in (path, f"{path}/*/*/*.{format}", f"{path}/day=*"):
        source = FileSource(given_path, format)
        assert str(source.schema.field("day").type) == "int64"
        assert source.schema.names == ["n", "s", "day", "kind"]
        assert tuples(run(source).finish().rows()) == tuples(ROWS)


def test_only_folders_below_the_given_path_count(folder: Any, run: Any) -> None:
    path, format = folder
    source = FileSource(path / "day=1", format)
    assert tuples(run(source).finish().rows()) == tuples(
        [(*r[:2], r[3]) for r in ROWS if r[2] == 1]
    )
    (file,) = (path / "day=02").rglob("a.*")
    assert run(FileSource(file, format)).finish().rows() == [(4, "s4")]
    none = FileSource(path, format, partitions=False)
    assert tuples(run(none).finish().rows()) == tuples([r[:2] for r in ROWS])


def test_relative_paths_are_the_programs(
    folder: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coordinator and tasks may run in other folders."""
    path, format = folder
    monkeypatch.chdir(path.parent)
    source = FileSource(path.name, format)
    monkeypatch.chdir("/")
    assert tuples(run(source).finish().rows()) == tuples(ROWS)


def test_folders_on_any_filesystem(run: Any) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/strom-folders/k=1/a.csv", b"n\n5\n")
    try:
        for given_path in ("memory://strom-folders", "memory://strom-folders/*/*.csv"):
            assert run(FileSource(given_path, "csv")).finish().rows() == [(5, 1)]
            watched = FileSource(given_path, "csv", monitor_interval=1)
            assert watched.schema.names == ["n", "k"]
    finally:
        memory.rm("/strom-folders", recursive=True)


def test_columns_of_folders_can_be_chosen(folder: Any, run: Any) -> None:
    path, format = folder
    source = FileSource(path, format, columns=["kind", "n"])
    assert source.schema.names == ["kind", "n"]
    assert tuples(run(source).finish().rows()) == tuples([(r[3], r[0]) for r in ROWS])
    only = FileSource(path, format, columns=["day"])
    assert tuples(run(only).finish().rows()) == tuples([(r[2],) for r in ROWS])


def test_a_declared_schema_gives_the_types(folder: Any, run: Any) -> None:
    path, format = folder
    schema = pa.schema([("day", pa.string()), ("n", pa.int64())])
    source = FileSource(path, format, schema=schema)
    assert source.schema.equals(schema)
    expected = [*(("1", n) for n in (1, 2, 3)), ("02", 4), *((None, n) for n in (5, 6))]
    assert tuples(run(source).finish().rows()) == tuples(expected)


def test_a_declared_column_comes_from_the_folder_or_the_file(tmp_path: Path, run: Any) -> None:
    write(tmp_path, "", [1])
    write(tmp_path, "n=7", [2])
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    assert tuples(run(FileSource(tmp_path, schema=schema)).finish().rows()) == [
        (1, "s1"),
        (7, "s2"),
    ]
    write(tmp_path / "other", "", [1])
    write(tmp_path / "other", "k=7", [2])
    with pytest.raises(ConnectorError, match=r"partition folders \['k'\].*first file has \[\]"):
        run(FileSource(tmp_path / "other")).finish()


def test_a_column_in_file_and_folder_is_an_error_without_a_schema(tmp_path: Path, run: Any) -> None:
    write(tmp_path, "n=7", [2])
    with pytest.raises(ConnectorError, match=r"columns \['n'\], which its folders name"):
        run(FileSource(tmp_path))
    assert run(FileSource(tmp_path, partitions=False)).finish().rows() == [(2, "s2")]


@pytest.mark.parametrize(
    ("values", "type"),
    [
        (["1", "-2", "03"], "int64"),
        (["1", NULL], "int64"),
        (["9223372036854775807"], "int64"),
        (["9223372036854775808"], "string"),
        (["1", "x"], "string"),
        (["1.5"], "string"),
        (["2024-01-01"], "string"),
        (["٣"], "string"),
        ([NULL], "string"),
        (["", "1"], "string"),
    ],
)
def test_inferred_types(tmp_path: Path, run: Any, values: list[str], type: str) -> None:
    for number, value in enumerate(values):
        write(tmp_path, f"v={value}", [number])
    source = FileSource(tmp_path, columns=["n", "v"])
    assert str(source.schema.field("v").type) == type
    expected = {n: None if value == NULL else value for n, value in enumerate(values)}
    rows = dict(tuples(run(source).finish().rows()))
    if type == "int64":
        assert rows == {n: None if v is None else int(v) for n, v in expected.items()}
    else:
        assert rows == expected


def test_a_value_that_does_not_fit_is_named(tmp_path: Path, run: Any) -> None:
    write(tmp_path, "day=x", [1])
    source = FileSource(tmp_path, schema=pa.schema([("n", pa.int64()), ("day", pa.int64())]))
    with pytest.raises(ConnectorError, match=r"day=x/a\.parquet'.*'x'.*no int64.*'day'"):
        run(source).finish()


def test_a_column_twice_is_an_error(tmp_path: Path, run: Any) -> None:
    write(tmp_path, "d=1/d=2", [1])
    with pytest.raises(ConnectorError, match="two folders of the column 'd'"):
        run(FileSource(tmp_path))


def test_only_columns_of_folders_are_refused(tmp_path: Path, run: Any) -> None:
    write(tmp_path, "d=1", [1])
    source = FileSource(tmp_path, schema=pa.schema([("d", pa.int64())]))
    with pytest.raises(ConfigurationError, match="at least one column of the files"):
        run(source).finish()


VALUES: dict[str, Any] = {
    "string": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
    "int": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates(date(1900, 1, 1), date(2200, 1, 1))),
    "time": (
        pa.timestamp("us"),
        st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),
    ),
    "decimal": (
        pa.decimal128(9, 2),
        st.integers(-9999999, 9999999).map(lambda n: Decimal(n).scaleb(-2)),
    ),
}


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_what_a_sink_partitions_is_read_back(
    kind: str, data: Any, tmp_path_factory: Any, writer_context: Any, run: Any
) -> None:
    type, values = VALUES[kind]
    drawn = data.draw(st.lists(st.none() | values, min_size=1, max_size=8))
    drawn = [v for v in drawn if v != NULL]
    schema = pa.schema([("n", pa.int64()), ("v", type)])
    folder = tmp_path_factory.mktemp("out")
    writer = ParquetSink(folder, partition_by=["v"]).create_writer(writer_context())
    rows = pa.RecordBatch.from_pydict({"n": list(range(len(drawn))), "v": drawn}, schema=schema)
    if len(rows):
        writer.write(ColumnBatch(rows))
        writer.commit(writer.prepare_commit(1)())
        found = run(FileSource(folder, schema=schema)).finish().rows()
        assert sorted(map(tuple, found)) == sorted(enumerate(drawn))


@pytest.mark.parametrize("name", ["_k", "a/b", "a=b", "50%20", "ü", "with space"])
def test_odd_names_of_partition_columns(
    tmp_path: Path, writer_context: Any, run: Any, name: str
) -> None:
    writer = ParquetSink(tmp_path, partition_by=[name]).create_writer(writer_context())
    writer.write(ColumnBatch(pa.RecordBatch.from_pydict({"n": [1, 2], name: [7, 8]})))
    writer.commit(writer.prepare_commit(1)())
    for source in (FileSource(tmp_path), FileSource(tmp_path, monitor_interval=1)):
        assert source.schema.names == ["n", name]
    assert tuples(run(FileSource(tmp_path)).finish().rows()) == [(1, 7), (2, 8)]
    with pytest.raises(ConfigurationError, match="begin with a dot"):
        ParquetSink(tmp_path, partition_by=[f".{name}"])


# --- filters ------------------------------------------------------------------------------


def splits(source: FileSource, run: Any) -> list[str]:
    names = [s.split_id.split("#") for s in run(source).enumerator.snapshot()]
    return [
        f"{Path(n[0]).parent.name}#{n[1]}" if len(n) > 1 else Path(n[0]).parent.name for n in names
    ]


@pytest.mark.parametrize(
    ("filter", "days"),
    [
        (pc.field("day") == 1, ["1"]),
        (pc.field("day") > 1, ["2"]),
        (pc.field("day").isin([1, 2]), ["1", "2"]),
        (pc.field("day").is_null(), [NULL]),
        (~pc.field("day").is_null(), ["1", "2"]),
        ((pc.field("day") == 1) | (pc.field("n") == 4), ["1", "2", NULL]),
        ((pc.field("day") == 9) & (pc.field("n") == 4), []),
    ],
)
def test_folders_that_cannot_match_are_not_looked_at(
    tmp_path: Path, run: Any, filter: Any, days: list[str]
) -> None:
    for number, day in enumerate(("1", "2", NULL)):
        write(tmp_path, f"day={day}", [number], "csv")
    found = splits(FileSource(tmp_path, "csv", filter=filter), run)
    assert found == [f"day={day}" for day in days]


def test_row_groups_that_cannot_match_are_not_read(tmp_path: Path, run: Any) -> None:
    write(tmp_path, "day=1", list(range(10)))
    write(tmp_path, "day=2", list(range(10)))
    wanted = (pc.field("day") == 2) & (pc.field("n") >= 5)
    source = FileSource(tmp_path, columns=["s"], filter=wanted)
    assert splits(source, run) == ["day=2#2", "day=2#3", "day=2#4"]
    assert run(source).finish().rows() == [(f"s{n}",) for n in range(5, 10)]
    assert splits(FileSource(tmp_path, filter=pc.field("n") > 9), run) == []
    assert run(FileSource(tmp_path, filter=pc.field("n") > 9)).finish().rows() == []


def test_columns_not_asked_for_are_not_read(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"a": [1], "b": [2], "c": [3], "d": [4]}), tmp_path / "a.parquet")
    asked = []
    read = pq.ParquetFile.iter_batches

    def iter_batches(self: Any, *arguments: Any, **options: Any) -> Any:
        asked.append(sorted(options["columns"]))
        return read(self, *arguments, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iter_batches)
    source = FileSource(tmp_path, columns=["c"], filter=pc.field("a") == 1)
    assert run(source).finish().rows() == [(3,)]
    assert asked == [["a", "c"]]


def test_a_file_is_opened_once_for_all_its_row_groups(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "", list(range(20)))
    write(tmp_path, "b", list(range(20, 40)))
    running = run(FileSource(tmp_path))
    opened = []
    make = pq.ParquetFile.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        opened.append(arguments)
        make(self, *arguments, **options)

    monkeypatch.setattr(pq.ParquetFile, "__init__", init)
    assert len(running.finish().rows()) == 40
    assert len(opened) == 2
    reader = running.readers[0]
    assert reader._last._file is not None
    for _ in range(5):
        reader.poll()
    assert reader._last._file is None


@pytest.mark.parametrize(
    ("filter", "groups"),
    [
        (pc.field("f") > 5, 1),
        (~(pc.field("f") > 5), 2),
        (pc.field("f") != 9, 2),
        (pc.field("f").is_nan(), 2),
        ((pc.field("f") > 5) & (pc.field("g") > 0), 1),
        ((pc.field("f") > 5) & ~(pc.field("g") > 5), 2),
        (~(pc.field("f") > 5) & (pc.field("n") > 5), 2),
        (~(pc.field("f") > 5) & (pc.field("k") > 5), 0),
    ],
)
def test_statistics_say_nothing_of_nan(tmp_path: Path, run: Any, filter: Any, groups: int) -> None:
    """Arrow takes the least and greatest number for those of all rows."""
    nan = float("nan")
    rows = {"f": [nan, 9.0, 1.0, 1.0], "g": [nan, 1.0, 9.0, 9.0], "n": [1, 9, 1, 9]}
    (tmp_path / "k=1").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "k=1" / "a.parquet", row_group_size=2)
    source = FileSource(tmp_path, columns=["n"], filter=filter)
    assert len(run(source).enumerator.snapshot()) == groups
    table = pa.table({**rows, "k": [1] * 4}).filter(filter)
    assert [row[0] for row in run(source).finish().rows()] == table["n"].to_pylist()


CONDITIONS = st.recursive(
    st.builds(
        lambda name, op, value: getattr(pc.field(name), op)(value),
        st.sampled_from(["n", "day"]),
        st.sampled_from(["__lt__", "__ge__", "__eq__", "__ne__"]),
        st.integers(-1, 12),
    )
    | st.sampled_from(
        [
            pc.field("day").is_null(),
            pc.field("m").is_null(),
            pc.field("m") > 4,
            pc.field("f") > 0.5,
            pc.field("f") <= 0.9,
            pc.field("f").is_nan(),
            pc.field("f").isin([0.1, 0.5]),
            pc.field("n").isin([1, 5]),
            pc.field("t").isin(["a", "c"]),
            pc.field("t") >= "c",
            pc.if_else(pc.field("m") > 4, pc.field("f") > 0.5, pc.field("n") < 3),
        ]
    ),
    lambda inner: (
        st.builds(lambda a, b: a & b, inner, inner)
        | st.builds(lambda a, b: a | b, inner, inner)
        | st.builds(lambda a: ~a, inner)
    ),
    max_leaves=5,
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(condition=CONDITIONS, columns=st.sampled_from([None, ["n"], ["day"], ["m", "f"]]))
def test_filters_take_the_same_rows_as_without_pruning(
    tmp_path_factory: Any, run: Any, condition: Any, columns: list[str] | None
) -> None:
    """Also at a restore in the middle, at any batch."""
    folder = tmp_path_factory.getbasetemp() / "filtered"
    if not folder.exists():
        for day in ("0", "5", NULL):
            (folder / f"day={day}").mkdir(parents=True)
            n = list(range(12))
            table = pa.table(
                {
                    "n": n,
                    "m": pa.array([None if i % 3 else i for i in n], pa.int64()),
                    "f": [float("nan") if i % 4 == 0 else i / 10 for i in n],
                    "t": ["abcd"[i // 3] for i in n],
                }
            )
            pq.write_table(table, folder / f"day={day}" / "a.parquet", row_group_size=4)
    whole = FileSource(folder, filter=None)
    parts = [b.data for b in run(whole).finish().batches[0] if len(b)]
    wanted = pa.Table.from_batches(parts).filter(condition).select(columns or whole.schema.names)
    expected = sorted(map(repr, zip(*wanted.to_pydict().values(), strict=True)))
    source = FileSource(folder, columns=columns, filter=condition)
    first = run(source, batch_size=3)
    for _ in range(4):
        first.step(0)
    rest = first.restored(first.snapshot(), 2).finish()
    rows = [*first.rows(), *rest.rows()]
    assert sorted(repr(tuple(row)) for row in rows) == expected


def test_filters_of_text_and_json(tmp_path: Path, run: Any) -> None:
    (tmp_path / "a.txt").write_text("error: x\nfine\nerror: y\n")
    wanted = pc.starts_with(pc.field("line"), "error")
    lines = run(FileSource(tmp_path, "text", filter=wanted)).finish().rows()
    assert lines == ["error: x", "error: y"]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.jsonl").write_text('{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n')
    source = FileSource(tmp_path / "b", "jsonl", columns=["b"], filter=pc.field("a") > 1)
    assert run(source).finish().rows() == [("y",)]


def test_filters_over_views(tmp_path: Path, run: Any) -> None:
    """Arrow neither compares nor filters them."""
    schema = pa.schema([("n", pa.int64()), ("s", pa.string_view()), ("k", pa.string_view())])
    rows = pa.record_batch(
        {"n": [1, 2, 3], "s": ["a", "b", None]}, schema=pa.schema(list(schema)[:2])
    )
    (tmp_path / "k=x").mkdir()
    pq.write_table(pa.Table.from_batches([rows]), tmp_path / "k=x" / "a.parquet")
    for wanted, found in [
        (pc.field("n") > 1, [(2, "b", "x"), (3, None, "x")]),
        ((pc.field("s") == "b") & (pc.field("k") == "x"), [(2, "b", "x")]),
        (pc.field("k") == "y", []),
    ]:
        source = FileSource(tmp_path, schema=schema, filter=wanted)
        assert run(source, batch_size=2).finish().rows() == found


def test_filters_that_are_refused(tmp_path: Path, run: Any) -> None:
    write(tmp_path, "day=1", [1])
    with pytest.raises(ConfigurationError, match=r"pyarrow expression.*is Expr.*stream\.filter"):
        FileSource(tmp_path, filter=pl.col("n") > 1)
    for wrong in (pc.field("zz") == 1, pc.field("n") == "x", pc.field("n")):
        with pytest.raises(ConfigurationError, match=r"the filter .* does not fit.*day: int64"):
            run(FileSource(tmp_path, filter=wrong))


def test_the_filter_travels(tmp_path: Path, run: Any) -> None:
    import cloudpickle

    write(tmp_path, "day=1", [1, 2, 3])
    source = FileSource(tmp_path, filter=pc.field("n") > 1)
    _ = source.schema
    assert len(run(cloudpickle.loads(cloudpickle.dumps(source))).finish().rows()) == 2


def test_text_sinks_partitions_are_read_back(tmp_path: Path, writer_context: Any, run: Any) -> None:
    writer = FileSink(tmp_path, "csv", partition_by=["k"]).create_writer(writer_context())
    writer.write(ColumnBatch(pa.RecordBatch.from_pydict({"n": [1, 2], "k": ["a b", "ü/%"]})))
    writer.commit(writer.prepare_commit(1)())
    assert tuples(run(FileSource(tmp_path, "csv")).finish().rows()) == [(1, "a b"), (2, "ü/%")]

"""Values of all types, written by the sink and read back in both ways, are the same."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postgres_kit import Database, Reading, prepare, writer
from strom.connectors.postgres import PostgresCdcSource, PostgresSink
from strom.connectors.postgres.tables import arrow_type
from strom.connectors.postgres.texts import parse_array, to_text
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.errors import TypeMismatchError

pytestmark = pytest.mark.postgres

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)
ODD_TEXTS = st.sampled_from(
    [
        "",
        "NULL",
        "\\N",
        "\\.",
        "a\n\\.\nb",
        '"',
        "\t",
        "\r\n",
        "{}",
        "a,b",
        "\\",
        "'",
        "é",
        "😀",
        " ",
    ]
)
TIMES = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
FLOATS = st.floats(width=64)
SMALL = st.floats(width=32)

COLUMNS: dict[str, tuple[str, pa.DataType, Any]] = {
    "flag": ("boolean", pa.bool_(), st.booleans()),
    "tiny": ("smallint", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "whole": ("integer", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "big": ("bigint", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "single": ("real", pa.float32(), SMALL),
    "double": ("double precision", pa.float64(), FLOATS),
    "money": (
        "numeric(20,4)",
        pa.decimal128(20, 4),
        st.decimals(-(10**15), 10**15, places=4, allow_nan=False),
    ),
    "huge": (
        "numeric(60,10)",
        pa.decimal256(60, 10),
        st.decimals(-(10**40), 10**40, places=10, allow_nan=False),
    ),
    "words": ("text", pa.string(), TEXTS | ODD_TEXTS),
    "short": ("varchar(20)", pa.string(), TEXTS | ODD_TEXTS),
    "raw": ("bytea", pa.binary(), st.binary(max_size=20)),
    "day": ("date", pa.date32(), st.dates()),
    "clock": ("time", pa.time64("us"), st.times()),
    "local": ("timestamp", pa.timestamp("us"), TIMES),
    "instant": (
        "timestamptz",
        pa.timestamp("us", "UTC"),
        TIMES.map(lambda t: t.replace(tzinfo=dt.UTC)),
    ),
    "id": ("uuid", pa.string(), st.uuids().map(str)),
    "mood": ("mood", pa.string(), st.sampled_from(["fine", 'so "so"'])),
    "size": ("positive", pa.int32(), st.integers(1, 1000)),
    "numbers": (
        "bigint[]",
        pa.list_(pa.int64()),
        st.lists(st.none() | st.integers(-9, 9), max_size=3),
    ),
    "names": ("text[]", pa.list_(pa.string()), st.lists(st.none() | TEXTS | ODD_TEXTS, max_size=3)),
    "instants": (
        "timestamptz[]",
        pa.list_(pa.timestamp("us", "UTC")),
        st.lists(TIMES.map(lambda t: t.replace(tzinfo=dt.UTC)), max_size=2),
    ),
    "bits": ("bytea[]", pa.list_(pa.binary()), st.lists(st.binary(max_size=4), max_size=2)),
}

SCHEMA = pa.schema([("key", pa.int64()), *((n, t) for n, (_, t, _) in COLUMNS.items())])
ROWS = st.lists(
    st.fixed_dictionaries({n: st.none() | values for n, (_, _, values) in COLUMNS.items()}),
    min_size=1,
    max_size=4,
)


def make_table(database: Database) -> None:
    columns = ", ".join(f'"{n}" {sql_type}' for n, (sql_type, _, _) in COLUMNS.items())
    database.run(
        "CREATE TYPE mood AS ENUM ('fine', 'so \"so\"')",
        "CREATE DOMAIN positive AS integer CHECK (value > 0)",
        f"CREATE TABLE things (key bigint PRIMARY KEY, {columns})",
        "ALTER TABLE things REPLICA IDENTITY FULL",
    )


def plain(row: Any) -> str:
    """Comparable, NaN included; a zero has its sign."""
    return repr(tuple(row))


def test_all_types_both_ways(database: Database) -> None:
    make_table(database)
    captured = PostgresCdcSource(database.conninfo, "things", slot=f"slot_{database.name}")
    assert captured.schema.remove(len(SCHEMA)).equals(SCHEMA)
    sink = PostgresSink(database.conninfo, "things", "at_least_once")
    expected: list[Any] = []
    with Reading(captured) as reading:
        made = writer(sink)

        @settings(
            max_examples=examples(40),
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(ROWS)
        def write_and_read(rows: list[dict[str, Any]]) -> None:
            start = len(expected)
            batch = pa.RecordBatch.from_pylist(
                [{"key": start + i, **row} for i, row in enumerate(rows)], SCHEMA
            )
            expected.extend(map(plain, ColumnBatch(batch).rows()))
            made.write(ColumnBatch(batch))
            prepare(made, 1)
            reading.read(len(expected))
            found = [plain(row[:-1]) for row in reading.rows[start:]]
            assert found == expected[start:]

        try:
            write_and_read()
        finally:
            made.close()
    with Reading(captured, batch_size=50) as again:
        again.read(len(expected))
    assert [plain(row[:-1]) for row in again.rows] == expected


def test_types_without_a_type_of_their_own(database: Database) -> None:
    """Wider and nested types of Arrow find a column of PostgreSQL that holds them."""
    database.run(
        "CREATE TABLE things (a int, b int, c numeric, d text, e bytea, f timestamp, g interval, "
        "h jsonb, i jsonb, j int[], k real, l text, m timestamp, n int)"
    )
    at = dt.datetime(2024, 5, 6, 7, 8, 9)
    berlin = pa.array([at.replace(tzinfo=dt.UTC)], pa.timestamp("ms", "Europe/Berlin"))
    columns = {
        "a": pa.array([255], pa.uint8()),
        "b": pa.array([-7], pa.int8()),
        "c": pa.array([2**64 - 1], pa.uint64()),
        "d": pa.array(["x"]).dictionary_encode(),
        "e": pa.array([b"12"], pa.binary(2)),
        "f": pa.array([1_000], pa.timestamp("s")),
        "g": pa.array([dt.timedelta(days=-1, seconds=5)], pa.duration("us")),
        "h": pa.array([{"x": 1, "y": [Decimal("1.5"), None]}]),
        "i": pa.array([[("k", 1.5)]], pa.map_(pa.string(), pa.float64())),
        "j": pa.array([[1, None]], pa.large_list(pa.int8())),
        "k": pa.array([1.5], pa.float32()),
        "l": pa.array(["long"], pa.string_view()),
        "m": berlin,
        "n": pa.nulls(1),
    }
    made = writer(PostgresSink(database.conninfo, "things", "at_least_once"))
    made.write(ColumnBatch(pa.RecordBatch.from_pydict(columns)))
    prepare(made, 1)
    made.close()
    (row,) = database.run("SELECT * FROM things")
    interval = dt.timedelta(days=-1, seconds=5)
    epoch = dt.datetime(1970, 1, 1, 0, 16, 40)
    assert row == (
        255,
        -7,
        Decimal(2**64 - 1),
        "x",
        b"12",
        epoch,
        interval,
        {"x": 1, "y": ["1.5", None]},
        {"k": 1.5},
        [1, None],
        1.5,
        "long",
        at,
        None,
    )


def test_objects_and_a_schema(database: Database) -> None:
    database.run("CREATE TABLE things (a int, b text, c int DEFAULT 7)")
    schema = pa.schema([("a", pa.int32()), ("b", pa.string())])
    made = writer(PostgresSink(database.conninfo, "things", "at_least_once", schema=schema))
    made.write(ObjectBatch([(1, "x"), (2, None)]))
    prepare(made, 1)
    made.close()
    assert database.table("things") == [(1, "x", 7), (2, None, 7)]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([1], pa.timestamp("ns")), "would lose data"),
        (pa.array([{"a": b"x"}]), "JSON has no bytes"),
        (pa.array([{"a": float("nan")}]), "not JSON compliant"),
    ],
)
def test_what_has_no_text(column: pa.Array, words: str) -> None:
    with pytest.raises(TypeMismatchError, match=f"column 'x' of type .*{words}"):
        to_text(column, "x")


def test_arrays_that_are_no_list() -> None:
    for text in ("{{1},{2}}", "[0:1]={1,2}"):
        with pytest.raises(ValueError, match="array of one dimension"):
            parse_array(text)


def test_numbers_without_a_precision_stay_text() -> None:
    assert arrow_type(1700, -1) == pa.string()
    assert arrow_type(1700, ((10 << 16) | 2) + 4) == pa.decimal128(10, 2)
    assert arrow_type(1700, ((90 << 16) | 2) + 4) == pa.string()

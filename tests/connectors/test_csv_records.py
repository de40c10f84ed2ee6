"""CSV in Kafka's records: decoded and encoded in batches, without a broker."""

from __future__ import annotations

import csv
import datetime as dt
import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import Types
from strom.api.types.type_info import schema_of
from strom.connectors.csv_text import CsvDialect
from strom.connectors.kafka.csv_format import CsvEncoder, CsvFormat
from strom.connectors.kafka.csv_schemas import CsvRowSerializationSchema
from strom.core.batch import ColumnBatch, ObjectBatch, to_columns
from strom.core.errors import ConfigurationError, TypeMismatchError

AB = pa.schema([("a", pa.int64()), ("b", pa.string())])


def decoded(form: CsvFormat, values: list[Any]) -> tuple[list[Any], list[int], list[str]]:
    """Rows, which are malformed, and why each is."""
    made = form.decode(pa.array(values, pa.binary()))
    bad = [] if made.bad is None else made.bad.nonzero()[0].tolist()
    assert len(made.whys) == len(bad)
    assert made.data.num_rows == len(values) - len(bad)
    assert made.data.schema.equals(form.schema)
    rows = [tuple(row) for row in ColumnBatch(made.data).rows()]
    return rows, bad, list(made.whys)


def encoded(batch: pa.RecordBatch, dialect: CsvDialect | None = None) -> list[bytes]:
    made = CsvEncoder(dialect=dialect).encode(ColumnBatch(batch))
    return [text.as_py().encode() for text in made]


def test_each_value_is_a_line() -> None:
    rows, bad, _ = decoded(CsvFormat(AB), [b"1,x", b"2,", b'3,"a,""b"""\n', b'4,"two\nlines"\r\n'])
    assert rows == [(1, "x"), (2, ""), (3, 'a,"b"'), (4, "two\nlines")]
    assert bad == []


def test_malformed_records_and_why_each_is() -> None:
    values: list[Any] = [
        b"1,x",
        b"one,x",
        None,
        b"2,y,z",
        b"3",
        b"",
        b'4,"open',
        b"5,a\n6,b",
        b"7,z",
    ]
    rows, bad, whys = decoded(CsvFormat(AB), values)
    assert rows == [(1, "x"), (7, "z")]
    assert bad == [1, 2, 3, 4, 5, 6, 7]
    assert "int64" in whys[0]
    assert "Expected 2 columns, got 3" in whys[2]
    assert whys[-1] == "1 CSV lines were read as 3"


def test_a_quote_that_never_closes_swallows_nobody() -> None:
    """The first quote is in the middle of a field, where it means itself."""
    values = [b'1,x"y', b'2,"abc', b"3,z", b'4,"d"', b'5,"e']
    rows, bad, _ = decoded(CsvFormat(AB), values)
    assert rows == [(1, 'x"y'), (3, "z"), (4, "d")]
    assert bad == [1, 4]
    for value in (b'1,a\n2,"b', b'1,"', b'"1\n",a\n'):
        assert decoded(CsvFormat(AB), [value])[1] == [0], value


def test_options() -> None:
    dialect = CsvDialect("|", "'", "\\", "n/a", ":", comments=True)
    form = CsvFormat({"a": pa.int64(), "b": pa.string(), "c": pa.list_(pa.int32())}, dialect)
    values = [b"1|'x|y'|1:2", b"n/a|n/a|n/a", b"# nothing\n2|a\\|b|", b"# 3|x|1", b"4|'n/a'|5:n/a"]
    rows, bad, whys = decoded(form, values)
    assert rows == [(1, "x|y", [1, 2]), (None, None, None), (2, "a|b", []), (4, "n/a", [5, None])]
    assert bad == [3]
    assert whys


def test_types() -> None:
    names = ["i", "f", "t", "d", "time", "at", "dec", "day"]
    kinds = [
        Types.SHORT(),
        Types.DOUBLE(),
        Types.BOOLEAN(),
        Types.STRING(),
        Types.SQL_TIME(),
        Types.SQL_TIMESTAMP(),
        Types.BIG_DEC(),
        Types.SQL_DATE(),
    ]
    form = CsvFormat(Types.ROW_NAMED(names, kinds))
    line = b"7,1.5,true,x,12:30:00.5,2024-01-31 12:00:00,1.50,2024-01-31"
    at = dt.datetime(2024, 1, 31, 12)
    rows, bad, _ = decoded(form, [line, line.replace(b"7", b"70000", 1)])
    assert rows == [(7, 1.5, True, "x", dt.time(12, 30, 0, 500000), at, Decimal("1.50"), at.date())]
    assert str(rows[0][6]) == "1.50"
    assert bad == [1]


FIELDS = st.text(st.sampled_from("ab ,;|\"'\\\n\r#é\t"), max_size=6) | st.just("NULL")
DIALECTS = [
    CsvDialect(null_literal="NULL"),
    CsvDialect("|", "'", null_literal="NULL", line_delimiter=""),
    CsvDialect(";", '"', "\\", "NULL", ":", line_delimiter="\r\n"),
    CsvDialect(null_literal=""),
    CsvDialect(null_literal="0"),
]


@settings(max_examples=examples(150), deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.none() | FIELDS, st.none() | st.integers(-9, 9), st.none() | FIELDS),
        min_size=1,
        max_size=6,
    ),
    dialect=st.sampled_from(DIALECTS),
)
def test_what_is_written_is_read_again(rows: list[Any], dialect: CsvDialect) -> None:
    schema = pa.schema([("s", pa.string()), ("n", pa.int64()), ("t", pa.string())])
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    values = encoded(batch, dialect)
    found, bad, whys = decoded(CsvFormat(schema, dialect), values)
    assert bad == [], whys
    assert found == rows


@settings(max_examples=examples(150), deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 9),
            st.none() | st.lists(st.none() | st.sampled_from(["", "a", "NULL", ","]), max_size=3),
        ),
        min_size=1,
        max_size=3,
    ),
    dialect=st.sampled_from(DIALECTS),
)
def test_arrays_are_read_again_or_refused(rows: list[Any], dialect: CsvDialect) -> None:
    schema = pa.schema([("n", pa.int64()), ("a", pa.list_(pa.string()))])
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)]
    try:
        values = encoded(pa.RecordBatch.from_arrays(columns, schema=schema), dialect)
    except TypeMismatchError:
        told = [x for _, held in rows for x in held or ()]
        assert {dialect.null_literal, "", None}.intersection(told)
        return
    found, bad, whys = decoded(CsvFormat(schema, dialect), values)
    assert bad == [], whys
    assert found == rows


def test_one_empty_text_is_no_empty_array() -> None:
    with pytest.raises(TypeMismatchError, match="array of column 'a' holds one empty text and no"):
        encoded(pa.RecordBatch.from_pydict({"n": [1], "a": [[""]]}))


def test_texts_like_the_null_literal() -> None:
    def write(values: Any, **options: Any) -> list[bytes]:
        return encoded(pa.RecordBatch.from_pydict({"v": values}), CsvDialect(**options))

    assert write(["NULL", None], null_literal="NULL") == [b'"NULL"\n', b"NULL\n"]
    assert write([0, None], null_literal="0") == [b'"0"\n', b"0\n"]
    with pytest.raises(TypeMismatchError, match="column 'v' holds 'NULL', which is the null lit"):
        write(["NULL"], null_literal="NULL", quote=None)
    with pytest.raises(TypeMismatchError, match=r"the null literal 'a,b' has a delimiter"):
        write([None], null_literal="a,b")
    with pytest.raises(TypeMismatchError, match="an array of column 'v' holds 'NULL', which is"):
        write([["NULL", "x"]], null_literal="NULL")


def test_by_default_nulls_are_empty_as_for_flink() -> None:
    row = Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.LIST(Types.STRING())])
    builder = CsvRowSerializationSchema.Builder(row)
    batch = to_columns(ObjectBatch([(None, None), ("", ["", "x"])]), schema_of(row))
    lines = builder.build().encoder.encode(batch).to_pylist()
    assert lines == [",\n", '"",;x\n']
    plain = builder.disable_quote_character().build().encoder.encode(batch).to_pylist()
    assert plain == [",\n", ",;x\n"]


def test_no_value_is_no_line() -> None:
    form = CsvFormat({"v": pa.string()})
    assert decoded(form, [b"", None, b"x"]) == (
        [("",), ("x",)],
        [1],
        ["a null value is no CSV line"],
    )


def test_another_parser_reads_it_too() -> None:
    rows = [["a,b", 'c"d', "e\nf"], ["", " ", "#"]]
    batch = pa.RecordBatch.from_arrays([pa.array(c) for c in zip(*rows, strict=True)], list("abc"))
    text = b"".join(encoded(batch, CsvDialect())).decode()
    assert list(csv.reader(io.StringIO(text, newline=""))) == rows
    assert text.endswith("#\n")


def test_what_cannot_be_written_is_refused() -> None:
    def write(values: pa.Array, **options: Any) -> list[bytes]:
        return encoded(pa.RecordBatch.from_arrays([values], ["v"]), CsvDialect(**options))

    with pytest.raises(TypeMismatchError, match=r"column 'v' holds a null.*null literal"):
        write(pa.array([1, None]))
    with pytest.raises(TypeMismatchError, match="column 'v' of type binary has no form in CSV"):
        write(pa.array([b"x"]))
    with pytest.raises(TypeMismatchError, match="text of column 'v' holds a delimiter"):
        write(pa.array(["a,b"]), quote=None)
    with pytest.raises(TypeMismatchError, match="array of column 'v' cannot be told apart by"):
        write(pa.array([["a;b", "c"]]))
    with pytest.raises(TypeMismatchError, match="an array of column 'v' holds a null"):
        write(pa.array([[1, None]]))
    assert write(pa.array([[1, 2], []])) == [b"1;2\n", b"\n"]
    assert write(pa.array(["a,b"]), quote=None, escape="\\") == [b"a\\,b\n"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ",,"}, "field delimiter must be one ASCII character"),
        ({"quote": "\n"}, "quote character must be one ASCII character and no line break"),
        ({"escape": "é"}, "escape character must be one ASCII"),
        ({"delimiter": '"'}, "are the same character"),
        ({"line_delimiter": ";"}, "line delimiter must be a line break or empty"),
    ],
)
def test_options_that_are_none(options: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        CsvDialect(**options)


def test_types_without_a_form_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="column 'b' of type binary has no form in CSV"):
        CsvFormat({"b": pa.binary()})
    with pytest.raises(ConfigurationError, match="needs the columns' names and types"):
        CsvFormat(None)

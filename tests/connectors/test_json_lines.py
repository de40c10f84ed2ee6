"""JSON Lines: what is written is read back exactly, or refused by name."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strom.api.connectors.base import WriterContext
from strom.connectors.files import FileSink, FileSource
from strom.connectors.files.object_lines import ObjectLines
from strom.core.batch import ColumnBatch
from strom.core.errors import ConfigurationError, ConnectorError, TypeMismatchError

DAY = dt.date(2024, 1, 31)
NOON = dt.datetime(2024, 1, 31, 12, 0, 0, 123456)
DATES = pa.list_(pa.date32())

EXACT: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, None, False]),
    (pa.int8(), [-128, None]),
    (pa.uint64(), [2**64 - 1, None]),
    (pa.float32(), [0.1, None]),
    (pa.float64(), [0.1, 1e300, None]),
    (pa.float16(), [0.5, None]),
    (pa.string(), ['é"\n}{', "", None]),
    (pa.large_string(), ["a", None]),
    (pa.decimal128(38, 18), [Decimal("1.5"), None]),
    (pa.decimal64(10, 2), [Decimal("1.50"), None]),
    (pa.date32(), [DAY, None, dt.date(1, 1, 1)]),
    (pa.date64(), [DAY, None]),
    (pa.time32("s"), [dt.time(1, 2, 3), None]),
    (pa.time32("ms"), [dt.time(23, 59, 59, 999000), dt.time(0), None]),
    (pa.time64("us"), [dt.time(1, 2, 3, 456789), None]),
    (pa.timestamp("us"), [NOON, None]),
    (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=dt.UTC), None]),
    (pa.list_(pa.int64()), [[1, None], None, []]),
    (pa.large_list(pa.string()), [["a"], None, []]),
    (pa.list_(pa.int64(), 2), [[1, 2], None]),
    (DATES, [[DAY, None], None, []]),
    (pa.struct([("d", pa.date32()), ("n", pa.int64())]), [{"d": DAY, "n": None}, None]),
    (pa.list_(pa.struct([("t", pa.time64("us"))])), [[{"t": dt.time(1)}, None], None]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", None, "b", "a"]),
    (pa.dictionary(pa.int32(), pa.int64()), [7, None, 7]),
]

REFUSED = [
    pa.binary(),
    pa.binary(2),
    pa.decimal256(50, 2),
    pa.duration("us"),
    pa.map_(pa.string(), pa.int64()),
    pa.list_(pa.binary()),
    pa.struct([("d", pa.duration("s"))]),
    pa.dictionary(pa.int8(), pa.binary()),
]


def write(context: WriterContext, sink: FileSink, *batches: pa.RecordBatch) -> None:
    writer = sink.create_writer(context)
    try:
        for batch in batches:
            writer.write(ColumnBatch(batch))
        prepared = writer.prepare_commit(1)
        writer.commit(prepared() if callable(prepared) else prepared)
    finally:
        writer.close()


@pytest.mark.parametrize(("kind", "values"), EXACT, ids=lambda given: str(given)[:40])
def test_read_back_as_it_was(
    run: Any, writer_context: Any, tmp_path: Path, kind: pa.DataType, values: list[Any]
) -> None:
    schema = pa.schema([("n", pa.int64()), ("v", kind)])
    data = pa.RecordBatch.from_arrays(
        [pa.array(range(len(values))), pa.array(values, kind)], schema=schema
    )
    write(writer_context(), FileSink(str(tmp_path), "jsonl", schema), data)
    source = FileSource(tmp_path, "jsonl", schema=schema)
    batches = [b.data for b in run(source).finish().batches[0] if len(b)]
    found = pa.Table.from_batches(batches, schema)
    found.validate(full=True)
    assert found.to_pylist() == data.to_pylist()


@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_types_without_a_form_are_refused(
    writer_context: Any, tmp_path: Path, kind: pa.DataType
) -> None:
    schema = pa.schema([("n", pa.int64()), ("v", kind)])
    with pytest.raises(ConfigurationError, match=r"column 'v' of type .* has no form in JSON"):
        FileSink(str(tmp_path), "jsonl", schema)
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.nulls(1, kind)], schema=schema)
    with pytest.raises(TypeMismatchError, match=r"column 'v' of type .* has no form in JSON"):
        write(writer_context(), FileSink(str(tmp_path), "jsonl"), batch)


@pytest.mark.parametrize(
    "kind",
    [pa.duration("us"), pa.map_(pa.string(), pa.int64()), pa.list_(pa.duration("s"))],
    ids=str,
)
def test_types_that_cannot_be_read_are_refused(tmp_path: Path, kind: pa.DataType) -> None:
    with pytest.raises(ConfigurationError, match=r"column 'v' is declared as .* no form"):
        FileSource(tmp_path, "jsonl", schema=pa.schema([("v", kind)]))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1.5, float("nan")]),
        pa.array([float("-inf"), None]),
        pa.array([[1.0, float("inf")]]),
        pa.array([{"x": float("nan")}]),
        pa.array([float("inf")]).dictionary_encode(),
    ],
    ids=["nan", "inf", "list", "struct", "dictionary"],
)
def test_numbers_without_a_form_are_refused(
    writer_context: Any, tmp_path: Path, values: pa.Array
) -> None:
    batch = pa.RecordBatch.from_arrays([values], names=["x"])
    with pytest.raises(TypeMismatchError, match="column 'x' holds NaN or an infinity"):
        write(writer_context(), FileSink(str(tmp_path), "jsonl"), batch)


@pytest.mark.parametrize("text", ["2024-13-01", "31.1.2024", ""])
def test_text_that_is_no_date_is_named(run: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"d":"{text}"}}\n')
    source = FileSource(tmp_path, "jsonl", schema=pa.schema([("d", pa.date32())]))
    with pytest.raises(ConnectorError, match=r"a\.jsonl.*date32"):
        run(source).finish()


def read(text: bytes, size: int) -> bytes:
    lines, found = ObjectLines(io.BytesIO(text)), b""
    while piece := lines.read(size):
        found += piece
    return found


@pytest.mark.parametrize(
    "line", [b'{"a":1}{"a":2}', b'{"a":1} \t{"a":2}', b'{"a":{}}5', b'{"a":"}"}null']
)
@given(before=st.integers(0, 3), after=st.integers(0, 3), size=st.integers(1, 40))
def test_two_objects_on_a_line_are_refused_however_they_are_read(
    line: bytes, before: int, after: int, size: int
) -> None:
    other = b'{"a":"}{ }5","b":[{},{"c":{}} ]}\n'
    good = other * before + b"\n" + other * after
    assert read(good, size) == good
    with pytest.raises(pa.ArrowInvalid, match="more than one JSON object"):
        read(other * before + line + (b"\n" + other * after if after else b""), size)


def test_two_objects_on_a_line_fail_the_source(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a":1}{"a":2}\n{"a":3}\n')
    with pytest.raises(ConnectorError, match=r"a\.jsonl.*more than one JSON object"):
        run(FileSource(tmp_path, "jsonl", schema=pa.schema([("a", pa.int64())]))).finish()

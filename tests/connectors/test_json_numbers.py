"""BIG_DEC and BIG_INT in JSON: exactly what was written, as text or as numbers."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from kafka_kit import decoded
from strom import Row, StreamExecutionEnvironment, Types
from strom.connectors.files import FileSink, FileSource
from strom.connectors.json_numbers import quoted
from strom.connectors.kafka import JsonRowDeserializationSchema, JsonRowSerializationSchema
from strom.connectors.kafka.formats import JsonFormat
from strom.core.batch import ColumnBatch, ObjectBatch
from typed_kit import exact

LONG = Types.LONG()
PAIR = Types.TUPLE([Types.BIG_INT(), Types.DOUBLE()])
INFO = Types.ROW_NAMED(
    ["n", "price", "whole", "list", "pair", "fixed"],
    [LONG, Types.BIG_DEC(), Types.BIG_INT(), Types.LIST(Types.BIG_DEC()), PAIR, Types.STRING()],
)
FORM = JsonFormat(INFO)

DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
WHOLE = st.integers(-(10**60), 10**60)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def optional(values: Any) -> Any:
    return st.none() | values


FIELDS = Row("n", "price", "whole", "list", "pair", "fixed")
ROWS = st.builds(
    FIELDS,
    st.integers(-(2**63), 2**63 - 1),
    optional(DECIMALS),
    optional(WHOLE),
    optional(st.lists(optional(DECIMALS), max_size=3)),
    optional(st.tuples(optional(WHOLE), optional(FLOATS))),
    optional(st.text(st.characters(codec="utf-8"), max_size=5)),
)


def text_of(row: Row, numbers: bool) -> bytes:
    """As another program writes it, numbers as numbers."""

    def number(value: Any) -> str:
        return "null" if value is None else str(value) if numbers else f'"{value}"'

    parts = {
        "n": str(row.n),
        "price": number(row.price),
        "whole": number(row.whole),
        "fixed": json.dumps(row.fixed),
        "unknown": '{"a": 1e5, "price": [1.50]}',
        "list": "null" if row.list is None else f"[{','.join(map(number, row.list))}]",
        "pair": "null"
        if row.pair is None
        else f'{{"f0": {number(row.pair[0])}, "f1": {json.dumps(row.pair[1])}}}',
    }
    return f"{{{', '.join(f'{json.dumps(k)}: {v}' for k, v in parts.items())}}}".encode()


def rows_of(values: list[bytes | None]) -> tuple[list[Any], list[bool]]:
    found = FORM.decode(pa.array(values, pa.binary()))
    bad = [False] * len(values) if found.bad is None else found.bad.tolist()
    return [exact(row) for row in ColumnBatch(found.data).rows()], bad


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(ROWS, st.booleans()), min_size=1, max_size=5))
def test_numbers_and_texts_are_read_exactly(drawn: list[tuple[Row, bool]]) -> None:
    rows, bad = rows_of([text_of(row, numbers) for row, numbers in drawn])
    assert not any(bad)
    assert rows == [exact(row) for row, _ in drawn]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=5))
def test_what_is_written_is_read_again(rows: list[Row]) -> None:
    written = JsonRowSerializationSchema.builder().with_type_info(INFO).build().encoder
    read = JsonRowDeserializationSchema.builder().type_info(INFO).build().format
    texts = written.encode(ObjectBatch(rows))
    assert isinstance(read, JsonFormat)
    found, bad = rows_of([text.encode() for text in texts.to_pylist()])
    assert not any(bad)
    assert found == [exact(row) for row in rows]


WRONG = [
    b'{"n": 1, "price": "1_0"}',
    b'{"n": 1, "price": " 1"}',
    b'{"n": 1, "price": ""}',
    b'{"n": 1, "price": true}',
    b'{"n": 1, "price": [1]}',
    b'{"n": 1, "price": {}}',
    b'{"n": 1, "price": "1E99999999999999999999"}',
    b'{"n": 1, "price": 1, "price": 2}',
    b'{"n": 1, "price": 01}',
    b'{"n": 1, "price": NaN}',
    b'{"n": 1, "whole": 1.5}',
    b'{"n": 1, "whole": "x"}',
    b'{"n": 1, "list": [1, "x"]}',
    b'{"n": 1.0, "price": 1}',
    b'{"n": "1", "price": 1}',
    b'{"n": 1, "pair": {"f0": 1, "f1": "1"}}',
    b'{"n": 1, "fixed": 1, "price": 1}',
    b"null",
    None,
]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("good", [b'{"n": 5, "price": 1.50}', b'{"n": 5, "price": "1.50"}'])
def test_a_malformed_record_costs_no_other(wrong: bytes | None, good: bytes) -> None:
    """Whatever its neighbours are: Arrow reads those alone, or numbers are made text of before."""
    rows, bad, why = decoded(FORM, [good, wrong, good])
    assert bad == [False, True, False]
    assert [str(row["price"]) for row in rows] == ["1.50", "1.50"]
    assert why


def test_what_no_number_is_stays_as_it_is() -> None:
    text = rb'{"fixed": "\ud800 \" 1.50", "n": 1.50, "price": 1.50, "d": 1E400}'
    schema = FORM.schema
    expected = rb'{"fixed":"\ud800 \" 1.50","n":1.50,"price":"1.50","d":1E400}'
    assert quoted(text, schema) == expected
    for other in (b"[1]", b"{", b'{"price": 1} 2', b"[" * 100_000, b'{"a": 1, "a": 2}'):
        assert quoted(other, schema) == other


@pytest.mark.parametrize("numbers", [True, False])
def test_json_lines_are_read_exactly(numbers: bool, tmp_path: Path) -> None:
    rows = [
        Row("n", "price", "whole", "list", "pair", "fixed")(
            1, Decimal("1.50"), 10**40, [Decimal("0.10")], (1, 0.5), "a"
        ),
        Row("n", "price", "whole", "list", "pair", "fixed")(2, None, None, None, None, None),
    ]
    lines = [text_of(row, numbers) for row in rows]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n" * (not numbers))
    env = StreamExecutionEnvironment.get_execution_environment()
    source = FileSource(str(tmp_path), format="jsonl", schema=INFO)
    found = list(env.from_source(source).execute_and_collect())
    assert list(map(exact, found)) == list(map(exact, rows))


def test_a_sink_of_json_lines_takes_a_schema_of_them(tmp_path: Path) -> None:
    info = Types.ROW_NAMED(["n", "price"], [Types.INT(), Types.BIG_DEC()])
    env = StreamExecutionEnvironment.get_execution_environment()
    sink = FileSink(str(tmp_path / "out"), format="jsonl", schema=info)
    env.from_collection([(1, Decimal("1.50"))]).sink_to(sink)
    env.execute()
    read = FileSource(str(tmp_path / "out"), format="jsonl", schema=info)
    [found] = env.from_source(read).execute_and_collect()
    assert str(found.price) == "1.50"

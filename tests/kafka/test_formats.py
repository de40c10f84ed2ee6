"""How bytes become columns: JSON against Python's own parser, malformed records, Avro, text."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_kit import decoded
from strom import ConfigurationError, ConnectorError, Types
from strom.connectors.kafka.formats import BytesFormat, JsonFormat, StringFormat
from strom.connectors.kafka.json_kernels import frame_objects
from strom.connectors.kafka.message_kernels import gather

JSON = JsonFormat(pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.list_(pa.int64()))]))


def is_one_object(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False


def test_what_arrow_lets_pass_is_malformed_all_the_same() -> None:
    """Texts that are no UTF-8, also within lists, and decimals with more digits than declared."""
    form = JsonFormat(pa.schema([("s", pa.list_(pa.string())), ("d", pa.decimal128(5, 2))]))
    values = [b'{"s":["a"],"d":999.99}', b'{"s":["x\xff\xc3"]}', b'{"d":1000}', b'{"d":-1}']
    rows, bad, why = decoded(form, values)
    assert bad == [False, True, True, False]
    assert [row["d"] for row in rows] == [Decimal("999.99"), Decimal("-1.00")]
    assert "UTF" in why.upper()


OBJECTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(OBJECTS, max_size=6), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_what_is_one_object_is_framed(values: list[Any], indent: Any, ascii_only: bool) -> None:
    texts = [json.dumps(v, indent=indent, ensure_ascii=ascii_only).encode() for v in values]
    framed, ends, shaped = frame_objects(pa.array(texts, pa.binary()))
    assert shaped.tolist() == [isinstance(value, dict) for value in values]
    for at, text in enumerate(texts):
        line = framed[ends[at] : ends[at + 1]].tobytes()
        if shaped[at]:
            assert line.endswith(b"\n")
            assert line.count(b"\n") == 1
            assert json.loads(line) == json.loads(text)
        else:
            assert line == b""


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(
        st.binary(max_size=12)
        | st.sampled_from(
            [
                b"{}",
                b" {} ",
                b"{}{}",
                b'{"a":1}{',
                b'{"a":"}"}',
                b'{"a":"\\""}',
                b"[{}]",
                b"{]",
                b"{}}",
                b"null",
                b'{"a":1}\n{"a":2}',
            ]
        ),
        max_size=8,
    )
)
def test_only_single_objects_are_framed(values: list[bytes]) -> None:
    """A frame may hold what is no JSON; but never more or less than what one object is."""
    framed, ends, shaped = frame_objects(pa.array(values, pa.binary()))
    for at, value in enumerate(values):
        if is_one_object(value):
            assert shaped[at]
        if shaped[at]:
            line = framed[ends[at] : ends[at + 1]].tobytes()
            decoder = json.JSONDecoder()
            try:
                _, end = decoder.raw_decode(line.decode(errors="replace"))
            except ValueError:
                continue
            assert line.decode(errors="replace")[end:].strip() == ""


def test_columns_of_objects() -> None:
    values = [b'{"a": 1, "b": "x", "c": [1, 2], "d": {"e": 1}}', b'{\n "b": null}', b'{"a": -5}']
    rows, bad, _ = decoded(JSON, list(values))
    assert rows == [
        {"a": 1, "b": "x", "c": [1, 2]},
        {"a": None, "b": None, "c": None},
        {"a": -5, "b": None, "c": None},
    ]
    assert not any(bad)


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"   ",
        b"null",
        b"[]",
        b'"text"',
        b'{"a": 1',
        b'{"a": 1}}',
        b'{"a": 1} {"a": 2}',
        b'{"a": "text"}',
        b'{"a": 1.5}',
        b'{"c": 3}',
        b'{"a" 1}',
        b"{a: 1}",
        b"\xff\xfe",
        None,
    ],
)
def test_a_malformed_record_costs_no_other(wrong: bytes | None) -> None:
    good = [b'{"a": %d}' % n for n in range(20)]
    for place in (0, 7, 20):
        values: list[bytes | None] = [*good[:place], wrong, *good[place:]]
        rows, bad, why = decoded(JSON, values)
        assert [row["a"] for row in rows] == list(range(20))
        assert bad == [at == place for at in range(21)]
        assert why


def test_two_malformed_records_that_make_up_for_each_other() -> None:
    """One holds two objects, one none: the count of rows is right, and neither may pass."""
    values: list[bytes | None] = [b'{"a": 1}', b'{"a": 2}{"a": 3}', b"", b'{"a": 4}']
    rows, bad, _ = decoded(JSON, values)
    assert [row["a"] for row in rows] == [1, 4]
    assert bad == [False, True, True, False]


def test_many_malformed_records_among_good_ones() -> None:
    chance = random.Random(3)
    values: list[bytes | None] = []
    expected: list[int] = []
    for n in range(500):
        if chance.random() < 0.3:
            values.append(chance.choice([b"", b"x", b'{"a": "x"}', b'{"a": [', None]))
        else:
            values.append(b'{"a": %d, "b": "\\u00e9 %d"}' % (n, n))
            expected.append(n)
    rows, bad, _ = decoded(JSON, values)
    assert [row["a"] for row in rows] == expected
    assert [values[at] for at in np.flatnonzero(~np.array(bad))] == [
        b'{"a": %d, "b": "\\u00e9 %d"}' % (n, n) for n in expected
    ]


def test_json_needs_columns() -> None:
    with pytest.raises(ConfigurationError, match="names and types"):
        JsonFormat(pa.schema([]))
    row = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])
    assert JsonFormat(row).schema.names == ["a", "b"]


def test_text_that_is_none() -> None:
    rows, bad, why = decoded(StringFormat(), [b"a", b"\xff", None, "é".encode()])
    assert [row["value"] for row in rows] == ["a", None, "é"]
    assert bad == [False, True, False, False]
    assert "UTF-8" in why


def test_bytes_stay_what_they_are() -> None:
    values: list[bytes | None] = [b"\xff", None, b""]
    rows, bad, _ = decoded(BytesFormat(), values)
    assert [row["value"] for row in rows] == values
    assert not any(bad)


def test_the_reason_is_that_of_the_first_malformed_record() -> None:
    """Whether its shape is wrong or what is in it, and whatever is wrong with those behind it."""
    early: list[bytes | None] = [b'{"a": 1}', b'{"a": "text"}', b"no object"]
    _, bad, why = decoded(JSON, early)
    assert bad == [False, True, True]
    assert "JSON parse error" in why
    _, bad, why = decoded(JSON, early[:1] + early[:0:-1])
    assert bad == [False, True, True]
    assert why == "the value is not exactly one JSON object"


def test_more_than_a_column_holds_is_refused() -> None:
    """2 GiB of one batch: 32 bits would wrap, and the copies go anywhere."""
    sizes = np.array([2**31 - 1, 1], dtype=np.int64)
    for keys, what in ((True, "keys"), (False, "values")):
        with pytest.raises(ConnectorError, match=f"{what} of one batch of Kafka records have 214"):
            gather(np.zeros(2, dtype=np.int64), sizes, keys)
    untouched = np.zeros(2**31 - 1, dtype=np.uint8)
    ends = np.array([0, 2**31 - 1], dtype=np.int32)
    texts = pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(ends), pa.py_buffer(untouched)]
    )
    with pytest.raises(ConnectorError, match="JSON texts of one batch"):
        frame_objects(texts)


@pytest.mark.parametrize(
    "kind",
    [pa.duration("s"), pa.month_day_nano_interval(), pa.union([pa.field("a", pa.int8())], "dense")],
)
def test_types_that_json_has_not_are_refused_at_once(kind: pa.DataType) -> None:
    """Else all records would be malformed, and `malformed="skip"` would drop them in silence."""
    with pytest.raises(ConfigurationError, match="JSON has no values"):
        JsonFormat(pa.schema([("a", pa.int64()), ("b", kind)]))

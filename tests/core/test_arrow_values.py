"""Values become columns exactly, and come back as they were; what cannot is refused by name."""

from __future__ import annotations

import datetime as dt
import io
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from strom import Row, RowKind, Types
from strom.api.types.type_info import schema_of
from strom.core.arrow_values import to_array
from strom.core.batch import ColumnBatch, ObjectBatch, concat, to_columns
from strom.core.errors import TypeMismatchError
from strom.core.value_types import BigDecimal, empty_batch
from typed_kit import Records, exact, records

PAIR = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.INT()])
UTC = dt.UTC


def rows_of(values: list[Any], info: Any) -> list[Any]:
    return to_columns(ObjectBatch(values), schema_of(info)).rows()


def through_ipc(batch: ColumnBatch) -> ColumnBatch:
    file = io.BytesIO()
    with pa.ipc.new_stream(file, batch.data.schema) as writer:
        writer.write_batch(batch.data)
    return ColumnBatch(pa.ipc.open_stream(file.getvalue()).read_next_batch())


@settings(max_examples=examples(100), deadline=None)
@given(records())
def test_what_comes_out_of_columns_is_what_went_in(drawn: Records) -> None:
    schema = schema_of(drawn.type)
    assert schema is not None
    batch = to_columns(ObjectBatch(list(drawn.values)), schema)
    values, count = drawn.values, len(drawn.values)
    places = np.arange(count)[::-1].copy()
    even = places % 2 == 0
    ways = {
        "whole": (batch, values),
        "wire": (through_ipc(batch), values),
        "slice": (ColumnBatch(batch.data).slice(count // 2, count), values[count // 2 :]),
        "take": (batch.take(places), values[::-1]),
        "filter": (ColumnBatch(batch.data).filter(even), list(compress(values, even))),
        "concat": (concat([batch, batch]), values * 2),
        "wire of a slice": (through_ipc(batch.slice(1, count)), values[1:]),
        "again": (to_columns(ObjectBatch(batch.rows()), schema), values),
        "cast": (to_columns(ColumnBatch(batch.data.cast(schema)), schema), values),
        "none": (ColumnBatch(empty_batch(schema)), []),
    }
    for way, (found, expected) in ways.items():
        assert list(map(exact, found.rows())) == list(map(exact, expected)), way


def test_rows_are_mapped_by_name() -> None:
    point = namedtuple("point", "b a")

    @dataclass
    class Point:
        b: int
        a: int

    one_way = [Row("b", "a")(1, 2), point(1, 2), Point(1, 2), {"b": 1, "a": 2}]
    for values in ([one] for one in one_way):
        assert rows_of(values, PAIR) == [Row(a=2, b=1)]
    assert rows_of(one_way, PAIR) == [Row(a=2, b=1)] * 4
    assert rows_of([(1, 2), Row(3, 4), [5, 6]], PAIR) == [
        Row(a=1, b=2),
        Row(a=3, b=4),
        Row(a=5, b=6),
    ]


def test_nested_rows_are_mapped_by_name() -> None:
    within = Types.ROW_NAMED(
        ["row", "list", "map"], [PAIR, Types.LIST(PAIR), Types.MAP(Types.STRING(), PAIR)]
    )
    swapped = Row("b", "a")(1, 2)
    right = Row(a=2, b=1)
    [found] = rows_of([(swapped, [swapped, None], {"k": swapped})], within)
    assert exact(found) == exact(Row("row", "list", "map")(right, [right, None], {"k": right}))


def test_rows_of_other_names_are_refused() -> None:
    message = r"record Row\(x=1, a=2\) has the fields \['x', 'a'\].* are \['a', 'b'\]"
    with pytest.raises(TypeMismatchError, match=message):
        rows_of([Row("x", "a")(1, 2)], PAIR)
    with pytest.raises(TypeMismatchError, match=r"field 'p': record Row\(x=1, b=2\)"):
        rows_of([(Row("x", "b")(1, 2),)], Types.ROW_NAMED(["p"], [PAIR]))
    with pytest.raises(TypeMismatchError, match="does not have the 2 fields"):
        rows_of([(1,)], PAIR)


def test_rows_without_a_declared_type_are_mapped_by_name() -> None:
    batch = to_columns(
        ObjectBatch([Row(a=1, n=Row(b=2, c="x")), Row("n", "a")(Row("c", "b")("y", 3), 4)])
    )
    assert batch.rows() == [Row(a=1, n=Row(b=2, c="x")), Row(a=4, n=Row(b=3, c="y"))]
    with pytest.raises(TypeMismatchError, match="has the fields"):
        to_columns(ObjectBatch([Row(a=1), Row(b=1)]))


def test_a_tuple_takes_rows_of_any_names() -> None:
    found = rows_of([Row(x="a", y=1), ("b", 2)], Types.TUPLE([Types.STRING(), Types.INT()]))
    assert list(map(exact, found)) == list(map(exact, [("a", 1), ("b", 2)]))


def test_a_kind_of_row_that_columns_cannot_tell_is_refused() -> None:
    with pytest.raises(TypeMismatchError, match="a row of kind -D"):
        rows_of([Row.of_kind(RowKind.DELETE, a=1, b=2)], PAIR)


REFUSED: list[tuple[Any, Any]] = [
    (Types.INT(), 2**31),
    (Types.BYTE(), 200),
    (Types.INT(), "1"),
    (Types.INT(), True),
    (Types.LONG(), 1.5),
    (Types.LONG(), float("nan")),
    (Types.LONG(), Decimal("1.5")),
    (Types.DOUBLE(), 2**53 + 1),
    (Types.DOUBLE(), "1.0"),
    (Types.DOUBLE(), True),
    (Types.FLOAT(), 1e300),
    (Types.STRING(), b"text"),
    (Types.STRING(), 5),
    (Types.STRING(), "\ud800"),
    (Types.BOOLEAN(), 1),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), "bytes"),
    (Types.BIG_DEC(), 1.5),
    (Types.BIG_INT(), Decimal("1.5")),
    (Types.BIG_INT(), True),
    (Types.SQL_DATE(), dt.datetime(2020, 1, 1, 5)),
    (Types.SQL_DATE(), 18_000),
    (Types.SQL_TIME(), dt.time(5, tzinfo=UTC)),
    (Types.SQL_TIMESTAMP(), dt.datetime(2020, 1, 1, tzinfo=UTC)),
    (Types.SQL_TIMESTAMP(), 5),
    (Types.LIST(Types.STRING()), "abc"),
    (Types.LIST(Types.LONG()), [1, 2.5]),
    (Types.LIST(Types.LONG()), {1: 2}),
    (Types.MAP(Types.STRING(), Types.LONG()), [1]),
    (Types.MAP(Types.STRING(), Types.LONG()), {"a": 1.5}),
    (Types.MAP(Types.STRING(), Types.LONG()), {None: 1}),
    (Types.PICKLED_BYTE_ARRAY(), (one for one in ())),
]


@pytest.mark.parametrize(("info", "value"), REFUSED, ids=lambda one: str(one)[:30])
def test_what_is_not_of_the_type_is_refused(info: Any, value: Any) -> None:
    declared = Types.ROW_NAMED(["k", "v"], [Types.INT(), info])
    with pytest.raises(TypeMismatchError, match=r"field 'v': .*value"):
        rows_of([(1, None), (2, value)], declared)


@pytest.mark.parametrize("kind", [pa.timestamp("ms"), pa.time32("ms"), pa.duration("s")])
def test_times_finer_than_their_column_are_refused(kind: pa.DataType) -> None:
    value: Any = {
        "timestamp": dt.datetime(2020, 1, 1, 0, 0, 0, 5),
        "time32": dt.time(0, 0, 0, 5),
        "duration": dt.timedelta(microseconds=5),
    }[str(kind).partition("[")[0]]
    with pytest.raises(TypeMismatchError, match="finer"):
        to_columns(ObjectBatch([(value,)]), pa.schema([("v", kind)]))


@pytest.mark.parametrize(
    ("info", "value", "comes_out"),
    [
        (Types.LONG(), np.int64(5), 5),
        (Types.LONG(), 3.0, 3),
        (Types.DOUBLE(), 3, 3.0),
        (Types.BIG_DEC(), 3, Decimal(3)),
        (Types.BIG_INT(), Decimal(3), 3),
        (Types.BIG_DEC(), Decimal("NaN"), Decimal("NaN")),
        (Types.INSTANT(), dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=UTC)),
        (Types.SQL_DATE(), dt.datetime(2020, 1, 1), dt.date(2020, 1, 1)),
        (Types.LIST(Types.LONG()), np.array([1, 2]), [1, 2]),
        (Types.LIST(Types.LONG()), (1, 2), [1, 2]),
        (Types.MAP(Types.STRING(), Types.LONG()), [("a", 1)], {"a": 1}),
    ],
)
def test_what_is_equal_in_another_type_is_taken(info: Any, value: Any, comes_out: Any) -> None:
    [(found,)] = rows_of([(value,)], Types.ROW([info]))
    assert exact(found) == exact(comes_out)


def test_fixed_size_lists() -> None:
    kind = pa.list_(Types.TUPLE([Types.INT()]).arrow, 2)
    schema = pa.schema([("v", kind)])
    values = [([(1,), None],), (None,), ([(2,), (3,)],)]
    batch = to_columns(ObjectBatch(list(values)), schema)
    assert list(map(exact, batch.slice(1, 2).rows())) == [
        exact(Row(v=None)),
        exact(Row(v=[(2,), (3,)])),
    ]


def test_a_fixed_size_list_of_another_size_is_quoted() -> None:
    with pytest.raises(TypeMismatchError, match=r"value \[2, 3, 4\].*it has 3 items"):
        to_array([[0, 1], None, [2, 3, 4]], pa.list_(pa.int64(), 2))


@pytest.mark.parametrize(
    "value",
    [Decimal("1.50"), dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.date(2026, 1, 2), "word"],
)
def test_dictionaries_of_every_type(value: Any) -> None:
    """Arrow makes those of some types only."""
    kinds = {
        Decimal: pa.decimal128(5, 2),
        dt.datetime: pa.timestamp("us", "UTC"),
        dt.date: pa.date32(),
        str: pa.string_view(),
    }
    kind = pa.dictionary(pa.int8(), kinds[type(value)])
    made = to_array([value, None, value], kind)
    assert (made.type, made.to_pylist()) == (kind, [value, None, value])
    with pytest.raises(TypeMismatchError, match=r"value 1\.25 does not fit"):
        to_array([value, 1.25], kind)


def test_big_decimals_in_columns_are_readable_text() -> None:
    column = BigDecimal().array([Decimal("1.50"), None])
    assert column.storage.to_pylist() == ["1.50", None]


def test_whole_numbers_longer_than_python_writes() -> None:
    value = 10**5000
    assert rows_of([(value,), (-value,)], Types.ROW([Types.BIG_INT()])) == [(value,), (-value,)]


def test_columns_of_text_become_decimals_if_they_are_such() -> None:
    schema = pa.schema([("v", BigDecimal())])
    texts = ColumnBatch(pa.RecordBatch.from_pydict({"v": ["1.50", None]}))
    found = to_columns(texts, schema).rows()
    assert list(map(exact, found)) == list(map(exact, [Row(v=Decimal("1.50")), Row(v=None)]))
    with pytest.raises(TypeMismatchError, match="BIG_DEC holds what is no such value"):
        to_columns(ColumnBatch(pa.RecordBatch.from_pydict({"v": ["abc"]})), schema)


class Unspeakable:
    """As users may have them."""

    def __repr__(self) -> str:
        raise RuntimeError("never")


def test_a_value_that_cannot_say_what_it_is_is_refused_all_the_same() -> None:
    said = r"\((Unspeakable|Row), whose repr raises RuntimeError: never\)"
    for info in (Types.INT(), Types.LIST(Types.INT()), PAIR):
        with pytest.raises(TypeMismatchError, match=said):
            rows_of([Row(a=Unspeakable())], Types.ROW_NAMED(["a"], [info]))
    with pytest.raises(TypeMismatchError, match=said):
        rows_of([Row(c=Unspeakable())], PAIR)

"""Declared types -> Arrow schemas."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, Optional, TypedDict

import numpy as np
import pyarrow as pa
import pytest
from strom import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    InstantTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from strom.api.types.type_classes import type_of_columns
from strom.api.types.type_info import TypeInfo, Types, schema_of
from strom.core.batch import ObjectBatch, to_columns
from strom.core.errors import ConfigurationError, TypeMismatchError
from strom.core.value_types import BigDecimal, BigInteger, Pickled


@dataclass
class Point:
    x: float
    y: float


@dataclass
class Flight:
    number: int
    carrier: str
    delay: float | None
    departed: dt.datetime
    day: dt.date
    stops: list[str]
    fares: dict[str, float]
    price: Decimal
    raw: bytes
    late: bool
    gate: Annotated[int, pa.int16()]
    seats: np.int32
    origin: Point
    alias: Optional[str] = None  # noqa: UP045


class Pair(NamedTuple):
    name: str
    value: int


class Entry(TypedDict):
    name: str
    ids: tuple[int, ...]


def test_dataclass() -> None:
    assert schema_of(Flight) == pa.schema(
        {
            "number": pa.int64(),
            "carrier": pa.string(),
            "delay": pa.float64(),
            "departed": pa.timestamp("us"),
            "day": pa.date32(),
            "stops": pa.list_(pa.string()),
            "fares": pa.map_(pa.string(), pa.float64()),
            "price": pa.decimal128(38, 18),
            "raw": pa.binary(),
            "late": pa.bool_(),
            "gate": pa.int16(),
            "seats": pa.int32(),
            "origin": pa.struct({"x": pa.float64(), "y": pa.float64()}),
            "alias": pa.string(),
        }
    )


def test_named_tuple_typed_dict_and_dict() -> None:
    assert schema_of(Pair) == pa.schema({"name": pa.string(), "value": pa.int64()})
    assert schema_of(Entry) == pa.schema({"name": pa.string(), "ids": pa.list_(pa.int64())})
    declared = {"a": int, "b": pa.int8(), "c": Types.FLOAT()}
    assert schema_of(declared) == pa.schema({"a": pa.int64(), "b": pa.int8(), "c": pa.float32()})


def test_schemas_and_arrow_types_are_taken_as_they_are() -> None:
    schema = pa.schema({"a": pa.int8()})
    assert schema_of(schema) is schema
    assert schema_of(pa.struct({"a": pa.int8()})) == schema
    assert schema_of(pa.int8()) is None


@pytest.mark.parametrize(
    "scalar", [None, int, str, list[int], Types.LONG(), Types.PICKLED_BYTE_ARRAY()]
)
def test_scalars_leave_records_as_objects(scalar: Any) -> None:
    assert schema_of(scalar) is None


@pytest.mark.parametrize(
    ("info", "arrow"),
    [
        (Types.STRING(), pa.string()),
        (Types.BYTE(), pa.int8()),
        (Types.BOOLEAN(), pa.bool_()),
        (Types.SHORT(), pa.int16()),
        (Types.INT(), pa.int32()),
        (Types.LONG(), pa.int64()),
        (Types.FLOAT(), pa.float32()),
        (Types.DOUBLE(), pa.float64()),
        (Types.CHAR(), pa.string()),
        (Types.BIG_INT(), BigInteger()),
        (Types.BIG_DEC(), BigDecimal()),
        (Types.INSTANT(), pa.timestamp("us", tz="UTC")),
        (Types.SQL_DATE(), pa.date32()),
        (Types.SQL_TIME(), pa.time64("us")),
        (Types.SQL_TIMESTAMP(), pa.timestamp("us")),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), pa.binary()),
        (Types.PRIMITIVE_ARRAY(Types.INT()), pa.list_(pa.int32())),
        (Types.BASIC_ARRAY(Types.STRING()), pa.list_(pa.string())),
        (Types.OBJECT_ARRAY(Types.LONG()), pa.list_(pa.int64())),
        (Types.LIST(Types.DOUBLE()), pa.list_(pa.float64())),
        (Types.MAP(Types.STRING(), Types.LONG()), pa.map_(pa.string(), pa.int64())),
        (Types.PICKLED_BYTE_ARRAY(), None),
        (Types.LIST(Types.PICKLED_BYTE_ARRAY()), pa.list_(Pickled())),
    ],
)
def test_arrow_types(info: TypeInfo, arrow: pa.DataType | None) -> None:
    assert info.arrow == arrow


def test_row_types() -> None:
    named = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    assert schema_of(named) == pa.schema({"a": pa.int32(), "b": pa.string()})
    assert named.get_field_names() == ["a", "b"]
    assert str(named) == "ROW_NAMED(a: INT, b: STRING)"
    for make in (Types.ROW, Types.TUPLE):
        schema = schema_of(make([Types.LONG(), named]))
        assert schema is not None
        assert schema.names == ["f0", "f1"]
        assert pa.types.is_struct(schema.field("f1").type)


def test_pickled_fields_are_columns() -> None:
    named = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.PICKLED_BYTE_ARRAY()])
    expected = pa.schema({"a": pa.int32(), "b": Pickled()})
    assert schema_of(named) == schema_of({"a": Types.INT(), "b": Types.PICKLED_BYTE_ARRAY()})
    assert schema_of(named) == expected


def test_row_and_tuple_types_are_asked_for_their_parts() -> None:
    types = [Types.INT(), Types.STRING()]
    named = Types.ROW_NAMED(["a", "b"], types)
    assert isinstance(named, RowTypeInfo)
    assert named == RowTypeInfo(types, ["a", "b"]) != RowTypeInfo(types)
    assert (named.get_field_types(), named.get_field_index("b")) == (types, 1)
    assert named.get_field_index("z") == -1
    assert Types.ROW(types).get_field_names() == ["f0", "f1"]
    pair = Types.TUPLE(types)
    assert isinstance(pair, TupleTypeInfo)
    assert (pair, pair.get_field_types()) == (TupleTypeInfo(types), types)
    assert pair != Types.ROW(types)
    assert len({pair, TupleTypeInfo(types), named, Types.ROW(types)}) == 3


def test_all_types_have_pyflinks_classes() -> None:
    item = Types.LONG()
    made = {
        ListTypeInfo(item): Types.LIST(item),
        MapTypeInfo(Types.STRING(), item): Types.MAP(Types.STRING(), item),
        PrimitiveArrayTypeInfo(item): Types.PRIMITIVE_ARRAY(item),
        BasicArrayTypeInfo(item): Types.BASIC_ARRAY(item),
        ObjectArrayTypeInfo(item): Types.OBJECT_ARRAY(item),
        PickledBytesTypeInfo(): Types.PICKLED_BYTE_ARRAY(),
        SqlTimeTypeInfo.DATE(): Types.SQL_DATE(),
        SqlTimeTypeInfo.TIME(): Types.SQL_TIME(),
        SqlTimeTypeInfo.TIMESTAMP(): Types.SQL_TIMESTAMP(),
        BasicTypeInfo.INSTANT_TYPE_INFO(): Types.INSTANT(),
    }
    for basic in BasicType:
        if basic is not BasicType.INSTANT:
            made[BasicTypeInfo(basic)] = getattr(Types, basic.name)()
            made[getattr(BasicTypeInfo, f"{basic.name}_TYPE_INFO")()] = BasicTypeInfo(basic)
    for one, other in made.items():
        assert one == other
        assert isinstance(one, TypeInformation)
    assert TypeInfo is TypeInformation
    assert isinstance(Types.INSTANT(), InstantTypeInfo)
    assert len(set(made)) == 10 + len(BasicType) - 1


@pytest.mark.parametrize(
    "kind", [pa.date64(), pa.decimal128(10, 2), pa.uint8(), pa.large_list(pa.int8())]
)
def test_columns_of_other_types_have_a_type(kind: pa.DataType) -> None:
    found = type_of_columns(pa.schema([("x", kind)]))
    assert isinstance(found, RowTypeInfo)
    assert found.arrow == pa.struct([("x", kind)])


def test_declared_values_survive_a_round_trip() -> None:
    info = Types.ROW_NAMED(
        ["n", "big", "tags"],
        [Types.INT(), Types.BIG_INT(), Types.MAP(Types.STRING(), Types.LIST(Types.LONG()))],
    )
    values = [(1, 10**30, {"a": [1, 2]}), (2, -5, {})]
    assert to_columns(ObjectBatch(list(values)), schema_of(info)).rows() == values


def test_maps_within_lists_and_structs_come_back_as_dicts() -> None:
    schema = schema_of({"deep": list[dict[str, int]]})
    rows = to_columns(ObjectBatch([([{"a": 1}],)]), schema).rows()
    assert rows == [([{"a": 1}],)]


class Opaque:
    pass


@pytest.mark.parametrize(
    ("declared", "error", "message"),
    [
        (3, ConfigurationError, "3 declares no type"),
        (Opaque, ConfigurationError, "declares no type"),
        ({"a": Opaque}, TypeMismatchError, "field 'a': no Arrow type"),
        ({"a": int | str}, TypeMismatchError, "field 'a'"),
        ({"a": tuple[int, str]}, TypeMismatchError, "field 'a'"),
    ],
)
def test_what_cannot_be_mapped(declared: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        schema_of(declared)


def test_bad_type_factories() -> None:
    with pytest.raises(ConfigurationError, match="2 field names but 1 field types"):
        Types.ROW_NAMED(["a", "b"], [Types.INT()])
    with pytest.raises(ConfigurationError, match="not distinct"):
        Types.ROW_NAMED(["a", "a"], [Types.INT(), Types.INT()])
    wrong: Any = int
    with pytest.raises(ConfigurationError, match=r"Types\.LIST"):
        Types.LIST(wrong)


def test_unresolvable_annotations() -> None:
    @dataclass
    class Lost:
        a: Hidden  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigurationError, match="Hidden"):
        schema_of(Lost)


def test_fields_without_annotation() -> None:
    from collections import namedtuple

    bare = namedtuple("bare", "a b")
    with pytest.raises(ConfigurationError, match="have no annotation"):
        schema_of(bare)

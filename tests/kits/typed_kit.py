"""Random types, and random values of them as operators give them back: exactly these."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
from strom import Row, RowTypeInfo, TupleTypeInfo, TypeInformation, Types

Values = st.SearchStrategy[Any]

TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
NAMES = ("a", "b", "c", "count", "f1")
YEARS: Any = {"min_value": dt.datetime(1, 1, 2), "max_value": dt.datetime(9999, 12, 30)}
MOMENTS = st.datetimes(**YEARS).map(lambda t: t.replace(fold=0))

PLAIN: list[tuple[TypeInformation, Values]] = [
    (Types.STRING(), TEXTS),
    (Types.BYTE(), st.integers(-128, 127)),
    (Types.SHORT(), st.integers(-(2**15), 2**15 - 1)),
    (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    (Types.LONG(), st.integers(-(2**63), 2**63 - 1)),
    (Types.FLOAT(), st.floats(width=32, allow_nan=False)),
    (Types.DOUBLE(), st.floats(allow_nan=False)),
    (Types.BOOLEAN(), st.booleans()),
    (Types.CHAR(), st.text(st.characters(codec="utf-8"), min_size=1, max_size=1)),
    (Types.BIG_INT(), st.integers(-(10**60), 10**60)),
    (Types.BIG_DEC(), st.decimals(allow_nan=False, allow_infinity=False)),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times().map(lambda t: t.replace(fold=0))),
    (Types.SQL_TIMESTAMP(), MOMENTS),
    (Types.INSTANT(), MOMENTS.map(lambda t: t.replace(tzinfo=dt.UTC))),
    (Types.PICKLED_BYTE_ARRAY(), st.sets(st.integers(), max_size=2) | st.complex_numbers()),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=5)),
]
NO_NAN = {"PICKLED_BYTE_ARRAY": st.sets(st.integers(), max_size=2)}

Typed = tuple[TypeInformation, Values]


@dataclass(frozen=True)
class Records:
    """Records of one type; `records` have an int first, which tests take for the key."""

    type: TypeInformation
    values: list[Any]


def optional(values: Values) -> Values:
    return st.none() | values


@st.composite
def typed(draw: st.DrawFn, depth: int) -> Typed:
    """A type and the values of it, None among them, nested at most so deep."""
    kind = draw(st.sampled_from(["one", "row", "tuple"] if depth else ["one"]))
    if kind == "one":
        info, values = draw(single(depth))
        return info, optional(values)
    fields = draw(st.lists(typed(depth - 1), min_size=1, max_size=3))
    return compound(draw, fields, kind == "tuple", optional)


@st.composite
def single(draw: st.DrawFn, depth: int) -> Typed:
    """A type of no fields, and the values of it, nested at most so deep."""
    kind = draw(st.sampled_from(["plain", "list", "map"] if depth else ["plain"]))
    if kind == "plain":
        info, values = draw(st.sampled_from(PLAIN))
        return info, NO_NAN.get(str(info), values)
    info, values = draw(typed(depth - 1))
    if kind == "list":
        make = draw(st.sampled_from([Types.LIST, Types.OBJECT_ARRAY, Types.BASIC_ARRAY]))
        return make(info), st.lists(values, max_size=3)
    return Types.MAP(Types.STRING(), info), st.dictionaries(TEXTS, values, max_size=3)


def compound(draw: st.DrawFn, fields: list[Typed], tuples: bool, wrap: Any) -> Typed:
    infos = [info for info, _ in fields]
    values = st.tuples(*(values for _, values in fields))
    if tuples:
        return Types.TUPLE(infos), wrap(values)
    named = draw(st.booleans())
    names = NAMES[: len(infos)] if named else tuple(f"f{at}" for at in range(len(infos)))
    info = Types.ROW_NAMED(names, infos) if named else Types.ROW(infos)
    return info, wrap(values.map(lambda found: Row(*names)(*found)))


@st.composite
def records(draw: st.DrawFn) -> Records:
    """Some records of a random row or tuple type."""
    key: Typed = (Types.INT(), st.integers(0, 3))
    fields = [key, *draw(st.lists(typed(2), min_size=1, max_size=3))]
    info, values = compound(draw, fields, draw(st.booleans()), lambda plain: plain)
    assert isinstance(info, (RowTypeInfo, TupleTypeInfo))
    return Records(info, draw(st.lists(values, min_size=1, max_size=6)))


@st.composite
def single_values(draw: st.DrawFn) -> Records:
    """Some records that are one value each, of a random type."""
    info, values = draw(single(2))
    return Records(info, draw(st.lists(values, min_size=1, max_size=6)))


def exact(value: Any) -> Any:
    """Equal for values that nobody can tell apart."""
    if isinstance(value, Row):
        return ("Row", value._fields, tuple(map(exact, value)))
    if isinstance(value, (tuple, list)):
        return (type(value), [exact(one) for one in value])
    if isinstance(value, dict):
        return {key: exact(value[key]) for key in sorted(value)}
    if isinstance(value, set):
        return (set, sorted(value))
    if isinstance(value, Decimal):
        return (Decimal, value.as_tuple())
    if isinstance(value, dt.datetime):
        return (dt.datetime, value.replace(tzinfo=None), value.utcoffset())
    if isinstance(value, float):
        return (float, value.hex())
    return (type(value), value)

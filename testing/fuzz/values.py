"""Columns of random types, with the values that are most often mistaken."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ...core.union_type import OfKind, UnionType

DAY = dt.date(1969, 12, 30)
NOON = dt.datetime(1970, 1, 1, 12)
NAN, INFINITY = math.nan, math.inf


@dataclass(frozen=True)
class Kind:
    """A column type and the values that are drawn for it."""

    type: pa.DataType
    pool: tuple[Any, ...]
    adds: bool = False
    """Whether sum, mean and variance take it."""
    ordered: bool = True


def _integers(type_: pa.DataType, low: int, high: int) -> Kind:
    return Kind(type_, (0, 1, 2, 3, high // 2, high, low, low // 2), adds=True)


_TEXTS = ("", "a", "b", "ab", "é", "a" * 13, "long text that is not inlined")
_BYTES = (*(text.encode() for text in _TEXTS), b"\x00", b"\xff\x00")
_WHEN = tuple(NOON + dt.timedelta(seconds=s) for s in (-86_400_000, -1, 0, 1, 3600, 10**9))
_ZONED = tuple(when.replace(tzinfo=dt.UTC) for when in _WHEN)
_CLOCK = tuple(dt.time(h, m, s) for h, m, s in ((0, 0, 0), (0, 0, 1), (12, 30, 0), (23, 59, 59)))
_SPANS = tuple(dt.timedelta(milliseconds=ms) for ms in (-(10**9), -1, 0, 1, 86_400_000))
_DATES = tuple(DAY + dt.timedelta(days=n) for n in (-40_000, 0, 1, 2, 3, 20_000))
_FLOATS = (0.0, -0.0, 0.25, -1.5, 3.0, 1024.0, NAN, INFINITY, -INFINITY)

KINDS: dict[str, Kind] = {
    "int8": _integers(pa.int8(), -128, 127),
    "int16": _integers(pa.int16(), -(2**15), 2**15 - 1),
    "int32": _integers(pa.int32(), -(2**31), 2**31 - 1),
    "int64": _integers(pa.int64(), -(2**53), 2**53 - 1),
    "uint8": _integers(pa.uint8(), 0, 255),
    "uint16": _integers(pa.uint16(), 0, 2**16 - 1),
    "uint32": _integers(pa.uint32(), 0, 2**32 - 1),
    "many": Kind(pa.int64(), tuple(range(-100, 200)), adds=True),
    "many_texts": Kind(pa.string(), tuple(f"the name of {i}" for i in range(300))),
    "uint64": Kind(pa.uint64(), (0, 1, 2, 7, 2**53, 2**50 + 1), adds=True),
    "float16": Kind(pa.float16(), (0.0, -0.0, 0.25, -1.5, 3.0, NAN, INFINITY), adds=True),
    "float32": Kind(pa.float32(), _FLOATS, adds=True),
    "float64": Kind(pa.float64(), _FLOATS, adds=True),
    "finite": Kind(pa.float64(), (0.0, -0.0, 0.25, -1.5, 3.0, 7.75, 1024.0), adds=True),
    "bool": Kind(pa.bool_(), (True, False), adds=True),
    "string": Kind(pa.string(), _TEXTS),
    "large_string": Kind(pa.large_string(), _TEXTS),
    "string_view": Kind(pa.string_view(), _TEXTS),
    "binary": Kind(pa.binary(), _BYTES),
    "large_binary": Kind(pa.large_binary(), _BYTES),
    "binary_view": Kind(pa.binary_view(), _BYTES),
    "fixed": Kind(pa.binary(3), (b"abc", b"abd", b"\x00\x00\x00", b"\xff\xff\xff")),
    "date32": Kind(pa.date32(), _DATES),
    "date64": Kind(pa.date64(), _DATES),
    "time32s": Kind(pa.time32("s"), _CLOCK),
    "time32ms": Kind(pa.time32("ms"), _CLOCK),
    "time64us": Kind(pa.time64("us"), _CLOCK),
    "timestamp_s": Kind(pa.timestamp("s"), _WHEN),
    "timestamp_ms": Kind(pa.timestamp("ms"), _WHEN),
    "timestamp_us": Kind(pa.timestamp("us"), _WHEN),
    "timestamp_utc": Kind(pa.timestamp("us", "UTC"), _ZONED),
    "duration": Kind(pa.duration("ms"), _SPANS),
    "decimal": Kind(pa.decimal128(10, 2), tuple(map(Decimal, ("0.00", "-1.50", "3.25", "99.99")))),
    "dictionary": Kind(pa.dictionary(pa.int32(), pa.string()), _TEXTS),
    "small_codes": Kind(pa.dictionary(pa.int8(), pa.int64()), (0, 1, 5, -7)),
}

KEYS = tuple(KINDS)
"""All of them may be keys."""

_KINDS = UnionType.of(
    {
        "named": pa.struct([("a", pa.int64()), ("b", pa.string())]),
        "listed": pa.struct([("c", pa.list_(pa.float64())), ("d", pa.string_view())]),
        "bare": pa.struct([("a", pa.timestamp("ms"))]),
    }
)
_OF_KINDS = (
    OfKind("named", {"a": 1, "b": "x" * 20}),
    OfKind("named", {"a": None, "b": None}),
    OfKind("listed", {"c": [1.5, None], "d": "a text that is not inlined"}),
    OfKind("listed", {"c": [], "d": ""}),
    OfKind("bare", {"a": NOON}),
    OfKind("bare", {"a": None}),
)

_PAIR = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
_LISTS: tuple[Any, ...] = ([], [0.0], [-0.0], [NAN], [None], [0.0, NAN], [1.5, -1.5])

NESTED: dict[str, Kind] = {
    "list": Kind(pa.list_(pa.float64()), _LISTS),
    "large_list": Kind(pa.large_list(pa.string()), ([], ["a"], ["a", "b"], [None], ["ab"])),
    "struct": Kind(_PAIR, ({"a": 1, "b": None}, {"a": None, "b": ["x"]}, {"a": 2, "b": []})),
    "structs": Kind(pa.list_(_PAIR), ([], [{"a": 1, "b": ["y", None]}, None])),
    "pairs": Kind(pa.list_(pa.int8(), 2), ([1, 2], [None, 3])),
    "amounts": Kind(pa.list_(pa.decimal128(5, 2)), ([], [Decimal("1.50")], [Decimal("-1.50")])),
    "nothing": Kind(pa.null(), (None,)),
    "of_kinds": Kind(_KINDS, _OF_KINDS),
}
"""Of columns that records have beside the others."""

_SET_BACK = tuple(dt.datetime(2024, 11, 3, hour, 30, tzinfo=dt.UTC) for hour in (5, 6, 7))
"""In New York the first two are half past one."""

RARE: dict[str, Kind] = {
    "set_back": Kind(pa.timestamp("s", "America/New_York"), _SET_BACK),
    "beyond_63": Kind(pa.uint64(), (0, 1, 2**63 - 1, 2**63, 2**64 - 1)),
    "wide": Kind(pa.decimal128(38, 0), (Decimal(0), Decimal(10**37), Decimal(-(10**37)))),
    "amount_codes": Kind(
        pa.dictionary(pa.int8(), pa.decimal128(5, 2)), (Decimal("1.50"), Decimal(0))
    ),
    "float_codes": Kind(pa.dictionary(pa.int16(), pa.float64()), (0.0, -0.0, NAN, 1.5)),
    "microseconds": Kind(pa.duration("us"), (dt.timedelta(0), dt.timedelta(microseconds=1))),
    "long": Kind(pa.string(), ("x" * 99_999, "x" * 99_998 + "y", "")),
}
"""Of keys that some cases have beside the others."""

LIST_KEYS = ("list", "large_list", "amounts", "pairs")
"""Of these keys may be, where no dict of Python has them."""


def draw_values(
    rng: random.Random, kind: Kind, count: int, distinct: int, nulls: float
) -> list[Any]:
    """`count` values out of at most `distinct` of the kind's, null with probability `nulls`."""
    pool = rng.sample(kind.pool, min(distinct, len(kind.pool)))
    return [None if rng.random() < nulls else rng.choice(pool) for _ in range(count)]


def pick(rng: random.Random, wanted: Callable[[Kind], bool] = lambda kind: True) -> str:
    """The name of a kind."""
    return rng.choice([name for name, kind in KINDS.items() if wanted(kind)])


def to_array(values: list[Any], type_: pa.DataType) -> pa.Array:
    """As `pa.array`, for dictionaries of other than 32-bit codes and for unions, too."""
    if isinstance(type_, UnionType):
        return type_.array(values)
    if pa.types.is_dictionary(type_):
        return pa.array(values, type_.value_type).dictionary_encode().cast(type_)
    return pa.array(values, type_)

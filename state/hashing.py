"""The stable hash of keys, row path. docs/key-hash.md is the specification.

Every checkpoint depends on these values for ever: a key's group is its hash modulo the maximal
parallelism. The hash of a value is `xxh64(payload, seed=tag)`: the tag names the type, the payload
is a canonical encoding of the value (below, beside each function). It depends on nothing but the
value: not on the process, platform, Python version or PYTHONHASHSEED. Values of a type without a
canonical encoding have no stable hash; they raise TypeMismatchError rather than scatter state.

The column path (`hash_columns`) gives the same value for a column's cell as this path gives for
the Python value that `to_pylist()` makes of it.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import numpy as np
from xxhash import xxh64_intdigest

from ..core.errors import TypeMismatchError
from ..core.key_kinds import HeldKey

TAG_NONE: Final = 0
TAG_BOOL: Final = 1
TAG_INT: Final = 2
TAG_BIG_INT: Final = 3
TAG_FLOAT: Final = 4
TAG_STR: Final = 5
TAG_BYTES: Final = 6
TAG_TUPLE: Final = 7
TAG_DATE: Final = 8
TAG_TIME: Final = 9
TAG_DATETIME: Final = 10
TAG_DATETIME_UTC: Final = 11
TAG_TIMEDELTA: Final = 12
TAG_DECIMAL: Final = 13
TAG_ENUM: Final = 14
TAG_DATACLASS: Final = 15
TAG_UUID: Final = 16

CANONICAL_NAN: Final = 0x7FF8000000000000
"""The bits every NaN hashes as."""

_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_pack_double = struct.Struct("<d").pack
_pack_nan = struct.Struct("<Q").pack(CANONICAL_NAN)


def stable_hash(key: Any) -> int:
    """The 64-bit hash of a key, 0 <= hash < 2**64.

    Raises TypeMismatchError naming the type if values of that type have no stable hash.
    """
    hasher = _HASHERS.get(type(key))
    return hasher(key) if hasher is not None else _resolve(key)(key)


def _hash_none(key: None) -> int:
    """Empty."""
    return _NONE


def _hash_bool(key: bool) -> int:
    """One byte, 0 or 1."""
    return _TRUE if key else _FALSE


def _hash_int(key: int) -> int:
    """In the int64 range: 8 bytes, little-endian, two's complement. Else, under TAG_BIG_INT: as
    few bytes as hold the two's complement, little-endian."""
    try:
        return xxh64_intdigest(key.to_bytes(8, "little", signed=True), TAG_INT)
    except OverflowError:
        return xxh64_intdigest(_minimal(key), TAG_BIG_INT)


def _hash_float(key: float) -> int:
    """8 bytes, IEEE 754 double, little-endian; -0.0 as 0.0, every NaN as CANONICAL_NAN."""
    payload = _pack_double(key + 0.0) if key == key else _pack_nan
    return xxh64_intdigest(payload, TAG_FLOAT)


def _hash_str(key: str) -> int:
    """UTF-8; lone surrogates as three bytes each."""
    try:
        return xxh64_intdigest(key.encode(), TAG_STR)
    except UnicodeEncodeError:
        return xxh64_intdigest(key.encode("utf-8", "surrogatepass"), TAG_STR)


def _hash_bytes(key: bytes) -> int:
    """The bytes."""
    return xxh64_intdigest(key, TAG_BYTES)


def _hash_sequence(key: Any) -> int:
    """Tuples (named or not), lists, rows: the elements' hashes, 8 bytes little-endian each."""
    hashes = [stable_hash(item) for item in key]
    return xxh64_intdigest(struct.pack(f"<{len(hashes)}Q", *hashes), TAG_TUPLE)


def _hash_date(key: dt.date) -> int:
    """Days since 1970-01-01, as an int64 (8 bytes little-endian)."""
    return xxh64_intdigest(_int64(key.toordinal() - _EPOCH_DAY), TAG_DATE)


def _hash_time(key: dt.time) -> int:
    """Microseconds since midnight, as an int64. Only times without a zone."""
    if key.tzinfo is not None:
        raise TypeMismatchError(
            f"key {key!r}: a time of day with a zone has no stable hash; use a datetime, or drop "
            "the zone"
        )
    seconds = (key.hour * 60 + key.minute) * 60 + key.second
    return xxh64_intdigest(_int64(seconds * 1_000_000 + key.microsecond), TAG_TIME)


def _hash_datetime(key: dt.datetime) -> int:
    """Microseconds since the epoch, as an int64: under TAG_DATETIME of the wall clock if there is
    no zone, under TAG_DATETIME_UTC of the instant (in UTC) if there is one. Finer times (pandas)
    append the nanoseconds within the microsecond, 1..999, as two bytes little-endian."""
    nanosecond = getattr(key, "nanosecond", 0)
    if nanosecond:
        key = key.to_pydatetime(warn=False)  # type: ignore[attr-defined]
    offset = key.utcoffset()
    wall = key.replace(tzinfo=None) - _EPOCH
    tag = TAG_DATETIME if offset is None else TAG_DATETIME_UTC
    micros = (wall if offset is None else wall - offset) // _MICROSECOND
    return xxh64_intdigest(_int64(micros) + _nanos(nanosecond), tag)


def _hash_timedelta(key: dt.timedelta) -> int:
    """Microseconds as an int64, or as few bytes as hold them if that is too small. Finer ones
    (pandas) append the nanoseconds within the (floored) microsecond as for datetimes."""
    nanosecond = getattr(key, "nanoseconds", 0)
    seconds = key.days * 86_400 + key.seconds
    micros = seconds * 1_000_000 + key.microseconds
    return xxh64_intdigest(_int64(micros) + _nanos(nanosecond), TAG_TIMEDELTA)


def _hash_decimal(key: Decimal) -> int:
    """ASCII "<coefficient>E<exponent>", the coefficient without trailing zeros, so that equal
    decimals hash alike; zero is "0E0", not-a-number "NaN", infinities "Infinity", "-Infinity"."""
    return xxh64_intdigest(_decimal_text(key).encode(), TAG_DECIMAL)


def _hash_enum(key: Enum) -> int:
    """UTF-8 of "<qualified class name>.<member name>", without the module."""
    return xxh64_intdigest(f"{type(key).__qualname__}.{key.name}".encode(), TAG_ENUM)


def _hash_dataclass(key: Any) -> int:
    """The hash of the qualified class name (a str), then those of the fields that take part in
    comparison, 8 bytes little-endian each."""
    fields = [getattr(key, f.name) for f in dataclasses.fields(key) if f.compare]
    hashes = [_hash_str(type(key).__qualname__), *[stable_hash(field) for field in fields]]
    return xxh64_intdigest(struct.pack(f"<{len(hashes)}Q", *hashes), TAG_DATACLASS)


def _hash_uuid(key: uuid.UUID) -> int:
    """The 16 bytes in order of the text form."""
    return xxh64_intdigest(key.bytes, TAG_UUID)


def _decimal_text(key: Decimal) -> str:
    if key.is_nan():
        return "NaN"
    if key.is_infinite():
        return "Infinity" if key > 0 else "-Infinity"
    sign, digits, exponent = key.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    kept = text.rstrip("0")
    if not kept:
        return "0E0"
    return f"{'-' if sign else ''}{kept}E{exponent + len(text) - len(kept)}"


def _minimal(value: int) -> bytes:
    magnitude = value if value >= 0 else ~value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "little", signed=True)


def _int64(value: int) -> bytes:
    if -(2**63) <= value < 2**63:
        return value.to_bytes(8, "little", signed=True)
    return _minimal(value)


def _nanos(nanosecond: int) -> bytes:
    return nanosecond.to_bytes(2, "little") if nanosecond else b""


Hasher = Callable[[Any], int]

_NONE = xxh64_intdigest(b"", TAG_NONE)
_FALSE = xxh64_intdigest(b"\x00", TAG_BOOL)
_TRUE = xxh64_intdigest(b"\x01", TAG_BOOL)

_HASHERS: dict[type, Hasher] = {
    type(None): _hash_none,
    bool: _hash_bool,
    int: _hash_int,
    float: _hash_float,
    str: _hash_str,
    bytes: _hash_bytes,
    tuple: _hash_sequence,
    list: _hash_sequence,
    dt.date: _hash_date,
    dt.time: _hash_time,
    dt.datetime: _hash_datetime,
    dt.timedelta: _hash_timedelta,
    Decimal: _hash_decimal,
    uuid.UUID: _hash_uuid,
    HeldKey: lambda held: stable_hash(held.key),
}
"""Exact type to hasher; `_resolve` adds subclasses as it meets them."""

_SUBCLASSES: tuple[tuple[type, Hasher], ...] = (
    (int, _hash_int),
    (str, _hash_str),
    (bytes, _hash_bytes),
    (float, _hash_float),
    (Enum, _hash_enum),
    (tuple, _hash_sequence),
    (list, _hash_sequence),
    (dt.datetime, _hash_datetime),
    (dt.date, _hash_date),
    (dt.time, _hash_time),
    (dt.timedelta, _hash_timedelta),
    (Decimal, _hash_decimal),
    (uuid.UUID, _hash_uuid),
    (np.bool_, lambda key: _hash_bool(bool(key))),
    (np.integer, lambda key: _hash_int(int(key))),
    (np.floating, lambda key: _hash_float(float(key))),
)
"""In this order: an IntEnum or StrEnum is equal to its value, so it hashes as its value."""

_UNSTABLE = (np.timedelta64, np.longdouble)
"""Subclasses of supported numpy kinds whose values do not survive the conversion."""


def _resolve(key: Any) -> Hasher:
    kind = type(key)
    for base, hasher in _SUBCLASSES:
        if isinstance(key, base) and not issubclass(kind, _UNSTABLE):
            _HASHERS[kind] = hasher
            return hasher
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        _HASHERS[kind] = _hash_dataclass
        return _hash_dataclass
    raise TypeMismatchError(
        f"a key of type {kind.__module__}.{kind.__qualname__} has no stable hash (key {key!r}); "
        "use None, bool, int, float, str, bytes, datetime types, Decimal, UUID, an Enum, a "
        "dataclass, or tuples of these"
    )

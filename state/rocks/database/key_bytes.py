"""Keys as bytes: equal keys, and only these, have equal bytes, within one process.

Two meanings of equal: state keys are held (`core.key_kinds`), where 1, 1.0 and True are three keys;
to a dict, and so among map keys and namespaces, they are one (`alike`). No key's bytes begin
another's, so several may stand one behind the other.

Subclasses of these types that leave equality to them, as of enumerations of texts, have the bytes
of what they are equal to. Keys of other types have no bytes here (None): they are kept in memory.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from ....core.key_kinds import HeldKey

_TEXT = struct.Struct(">cI")
_WORD = struct.Struct(">cq")
_DOUBLE = struct.Struct(">cd")
_NAN = b"f\x7f\xf8\x00\x00\x00\x00\x00\x00"
_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def key_bytes(key: Any) -> bytes | None:
    """Of a key as state holds it."""
    kind = type(key)
    make = _MAKERS.get(kind)
    if make is not None:
        return make(key)
    if kind is HeldKey:
        return key_bytes(key.key)
    if isinstance(key, tuple):
        return _sequence(key, key_bytes)
    if isinstance(key, np.generic) and kind not in _UNSTABLE:
        return _numpy(key, key_bytes)
    return _as_its_base(key, kind, key_bytes)


def alike_bytes(key: Any) -> bytes | None:
    """Of a map key or a namespace: what is one key to a dict has the same bytes."""
    kind = type(key)
    make = _ALIKE.get(kind)
    if make is not None:
        return make(key)
    if isinstance(key, tuple):
        return _sequence(key, alike_bytes)
    if isinstance(key, np.generic) and kind not in _UNSTABLE:
        return _numpy(key, alike_bytes)
    return _as_its_base(key, kind, alike_bytes)


def key_end(data: bytes, at: int) -> int:
    """Where a key ends that begins there, in bytes made here."""
    letter = data[at : at + 1]
    if letter in _SIZES:
        return at + _SIZES[letter]
    if letter == b"l":
        return key_end(data, at + 1)
    if letter == b"N":
        return key_end(data, at + 1) + 2
    _, count = _TEXT.unpack_from(data, at)
    at += _TEXT.size
    if letter != b"t":
        return at + int(count)
    for _ in range(count):
        at = key_end(data, at)
    return at


_SIZES = {b"n": 1, b"b": 2, b"u": 17} | dict.fromkeys((b"i", b"f", b"D", b"T", b"U", b"m"), 9)
"""Bytes of keys of one length, by their letter."""


def _int(key: int) -> bytes:
    try:
        return _WORD.pack(b"i", key)
    except struct.error:
        data = key.to_bytes(key.bit_length() // 8 + 1, "big", signed=True)
        return _TEXT.pack(b"I", len(data)) + data


def _float(key: float) -> bytes:
    return _DOUBLE.pack(b"f", key + 0.0) if key == key else _NAN


def _str(key: str) -> bytes:
    data = key.encode("utf-8", "surrogatepass")
    return _TEXT.pack(b"s", len(data)) + data


def _bytes(key: bytes) -> bytes:
    return _TEXT.pack(b"y", len(key)) + key


def _decimal(key: Decimal) -> bytes:
    """NaN, of which keys have one, and infinities, too."""
    from ...hashing import _decimal_text

    data = _decimal_text(key).encode()
    return _TEXT.pack(b"d", len(data)) + data


def _float_alike(key: float) -> bytes | None:
    return _int(int(key)) if key.is_integer() else None if key != key else _float(key)


def _decimal_alike(key: Decimal) -> bytes | None:
    if not key.is_finite():
        return None
    if key == key.to_integral_value():
        return _int(int(key))
    near = float(key)
    return _float(near) if Decimal(near) == key else _decimal(key)


def _datetime(key: dt.datetime) -> bytes | None:
    if key.tzinfo is None:
        return _WORD.pack(b"T", (key - _EPOCH) // _MICROSECOND)
    offset = key.utcoffset()
    if offset is None:
        return _datetime(key.replace(tzinfo=None))
    if type(key.tzinfo) is not dt.timezone and (
        key.replace(fold=0).utcoffset() != key.replace(fold=1).utcoffset()
    ):
        return None  # where a zone's clock is set, a time equals none of another zone
    return _WORD.pack(b"U", (key.replace(tzinfo=None) - offset - _EPOCH) // _MICROSECOND)


def _time(key: dt.time) -> bytes | None:
    if key.tzinfo is not None:
        return None
    seconds = (key.hour * 60 + key.minute) * 60 + key.second
    return _WORD.pack(b"m", seconds * 1_000_000 + key.microsecond)


def _timedelta(key: dt.timedelta) -> bytes:
    return b"l" + _int(key // _MICROSECOND)


def _finer(key: Any) -> bytes | None:
    """Of times of pandas, which have nanoseconds: of none, as of the time that it equals."""
    if isinstance(key, dt.timedelta):
        rest = key.nanoseconds  # type: ignore[attr-defined]
        same = dt.timedelta(key.days, key.seconds, key.microseconds)
        made: bytes | None = _timedelta(same)
    else:
        rest = key.nanosecond
        made = _datetime(key.to_pydatetime(warn=False))
    return made if made is None or not rest else b"".join((b"N", made, rest.to_bytes(2, "big")))


def _is_finer(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "pandas" and kind.__name__ in (
        "Timestamp",
        "Timedelta",
    )


def _numpy(key: Any, each: Callable[[Any], bytes | None]) -> bytes | None:
    """Of values of numpy, which are equal to those of Python."""
    if isinstance(key, (np.bool_, np.integer, np.floating, np.str_, np.bytes_)):
        return each(key.item())
    return None


def _sequence(key: tuple[Any, ...], each: Callable[[Any], bytes | None]) -> bytes | None:
    kind = type(key)
    if kind.__eq__ is not tuple.__eq__ or kind.__hash__ is not tuple.__hash__:
        return None
    parts = [_TEXT.pack(b"t", len(key))]
    for item in tuple.__iter__(key):
        part = each(item)
        if part is None:
            return None
        parts.append(part)
    return b"".join(parts)


def _as_its_base(key: Any, kind: type, each: Callable[[Any], bytes | None]) -> bytes | None:
    """Of a key that is equal to just what its value of a type known here is equal to."""
    if _is_finer(kind):
        return _finer(key)
    for base, plain in _BASES:
        if isinstance(key, base):
            same = kind.__eq__ is base.__eq__ and kind.__hash__ is base.__hash__
            return each(plain(key)) if same else None
    return None


_BASES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (bytes, lambda key: bytes.__getitem__(key, slice(None))),
    (Decimal, Decimal),
    (uuid.UUID, lambda key: uuid.UUID(int=key.int)),
)
"""Types that keys are subclasses of, and how one is made a plain value."""

_UNSTABLE = (np.timedelta64, np.datetime64, np.longdouble)

_MAKERS: dict[type, Callable[[Any], bytes | None]] = {
    type(None): lambda key: b"n",
    bool: lambda key: b"b\x01" if key else b"b\x00",
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
    Decimal: _decimal,
    dt.date: lambda key: _WORD.pack(b"D", key.toordinal()),
    dt.datetime: _datetime,
    dt.time: _time,
    dt.timedelta: _timedelta,
    uuid.UUID: lambda key: b"u" + key.bytes,
}

_ALIKE: dict[type, Callable[[Any], bytes | None]] = _MAKERS | {
    bool: lambda key: _int(int(key)),
    float: _float_alike,
    Decimal: _decimal_alike,
}

"""Keys as bytes that are equal if and only if state takes the keys for one.

Pickles are not: two equal tuples may have different ones. So what a delta says of a key goes by
these bytes. They mean something to the layers of one state only, which one process writes, and may
differ between versions of Python.
"""

from __future__ import annotations

import datetime as dt
import marshal
from collections.abc import Collection, Iterable
from decimal import Decimal
from itertools import chain
from typing import Any
from uuid import UUID

from ..core.key_kinds import HeldKey
from .hashing import _decimal_text

_AS_THEY_ARE = frozenset({type(None), bool, int, str, bytes})

_EQUAL = frozenset({type(None), int, str, bytes})

_VERSION = 0
"""Of marshal's formats the one without references, which depend on more than the value."""


class NotExactError(Exception):
    """A key has a type for which there are no such bytes."""


def exact_bytes(namespaces: Iterable[Any], keys: Iterable[Any]) -> list[bytes]:
    """Of each key, held or not, under its namespace: as keys, 1, 1.0 and True are three.
    NotExactError if it is neither None, a truth value, number, text, bytes, date or time without
    zone, duration, UUID or decimal, nor a tuple of such; of subclasses of these, such as numpy's
    numbers, there are none either."""
    pairs = zip(namespaces, keys, strict=True)
    return [marshal.dumps((_alike(space), _plain(key)), _VERSION) for space, key in pairs]


def equal_bytes(keys: Iterable[Any]) -> list[bytes]:
    """Likewise of keys of a dict: 1, 1.0 and True are one. There are none of decimals and NaN."""
    return [marshal.dumps(_alike(key), _VERSION) for key in keys]


def check_exact(keys: Collection[Any]) -> None:
    """NotExactError if one of these keys has no such bytes."""
    kinds = set(map(type, keys))
    if kinds == {tuple}:
        kinds = set(map(type, chain.from_iterable(keys)))
    if not kinds <= _AS_THEY_ARE:
        for key in keys:
            _plain(key)


def check_equal(keys: Collection[Any]) -> None:
    """The same of keys of a dict."""
    if not set(map(type, keys)) <= _EQUAL:
        for key in keys:
            _alike(key)


def _alike(key: Any) -> Any:
    """As `_plain`, for keys that are one if they are equal."""
    kind = type(key)
    if kind is str or kind is int or key is None:
        return key
    if kind is bool or (kind is float and key.is_integer()):
        return int(key)
    if kind is Decimal or key != key:
        raise NotExactError(kind)
    return tuple(map(_alike, key)) if _is_tuple(kind) else _plain(key)


def _is_tuple(kind: type) -> bool:
    """Whether these are equal to each other and to plain tuples by their elements."""
    return issubclass(kind, tuple) and kind.__eq__ is tuple.__eq__


def _plain(key: Any) -> Any:
    kind = type(key)
    if kind in _AS_THEY_ARE:
        return key
    if kind is HeldKey:
        return _plain(key.key)
    if _is_tuple(kind):
        return tuple(map(_plain, tuple.__iter__(key)))
    if kind is float:
        return key or 0.0
    if kind is dt.date:
        return (..., "date", key.toordinal())
    if kind in (dt.datetime, dt.time) and key.tzinfo is None:
        return (..., kind.__name__, key.replace(fold=0).isoformat())
    if kind is dt.timedelta:
        return (..., "timedelta", key.days, key.seconds, key.microseconds)
    if kind is UUID:
        return (..., "uuid", key.bytes)
    if kind is Decimal and not key.is_nan():
        return (..., "decimal", _decimal_text(key))
    raise NotExactError(kind)

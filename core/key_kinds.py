"""Keys as state holds them: 1, 1.0 and True are three keys, although they are one to a dict.

They have three stable hashes, so the exchange may send them to three subtasks. What is one key must
not depend on whether it does: keys that are equal but of another kind are other keys everywhere.
Texts, whole numbers, times and most else are unlike all that is of another kind, and are held as
they are. Others (truth values, floats, decimals, and what has such in it) are held as a `HeldKey`,
which is equal to one of the same kind only. Equal keys of one kind have one hash: 0.0 and -0.0,
Decimal("1.5") and Decimal("1.50"), a named tuple and the plain one. Where a zone's clock is set
back, two instants of one zone are equal to Python: their kind is how far they are from UTC.

Dicts, timers and codes have held keys. Users are given the keys themselves (`given`), and so are
snapshots.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from numbers import Number
from typing import Any
from uuid import UUID

import numpy as np


class HeldKey(tuple[Any, ...]):
    """(a mark that no user has, what tells kinds apart, the key). Hash and equality are the
    tuple's."""

    __slots__ = ()

    @property
    def key(self) -> Any:
        return tuple.__getitem__(self, 2)

    def __repr__(self) -> str:
        return repr(self.key)


def held_keys(keys: list[Any]) -> list[Any]:
    """These keys, as dicts of state have them; those that are held keys already as they are."""
    kinds = set(map(type, keys))
    if kinds <= _ALIKE:
        return keys
    if kinds == {datetime} and not any(key.tzinfo for key in keys):
        return keys
    if kinds == {float}:
        return [HeldKey((_MARK, float, key)) for key in keys]
    if kinds == {tuple} and set(map(type, chain.from_iterable(keys))) <= _ALIKE:
        return keys
    return [held_key(key) for key in keys]


def held_key(key: Any) -> Any:
    """One of them."""
    kind = None if type(key) is HeldKey else _kind_of(key)
    return key if kind is None else HeldKey((_MARK, kind, key))


def given(key: Any) -> Any:
    """The key itself."""
    return key.key if type(key) is HeldKey else key


def all_given(keys: Iterable[Any]) -> list[Any]:
    """The keys themselves."""
    return [key.key if type(key) is HeldKey else key for key in keys]


class _Mark:
    def __repr__(self) -> str:
        return "held"


_MARK = _Mark()

_ALIKE = frozenset({type(None), int, str, bytes, date, time, timedelta, UUID, HeldKey})
"""Types of keys that are held as they are, and of held keys."""

_KINDS: tuple[tuple[type, Any], ...] = (
    (bool, bool),
    (np.bool_, bool),
    (int, None),
    (np.integer, None),
    (str, None),
    (bytes, None),
    (float, float),
    (np.floating, float),
    (Decimal, Decimal),
)
"""In this order, which is that of the stable hash: an IntEnum is an int."""


def _kind_of(key: Any) -> Any:
    """What tells the key from equal ones of other kinds; None: there are none."""
    kind = type(key)
    if kind in _ALIKE:
        return None
    if isinstance(key, datetime):
        compares: Any = kind.__eq__  # those of pandas go by the instant
        return _set_clock(key) if compares is datetime.__eq__ else None
    for base, told in _KINDS:
        if isinstance(key, base):
            return told
    if isinstance(key, tuple):
        return _kinds_of(tuple.__iter__(key))
    if dataclasses.is_dataclass(key):
        return _kinds_of([getattr(key, f.name) for f in dataclasses.fields(key) if f.compare])
    return kind if isinstance(key, Number) else None


def _set_clock(key: datetime) -> timedelta | None:
    """Of a time that a zone's clock shows twice, or never, how far it is from UTC."""
    zone = key.tzinfo
    if zone is None or zone.utcoffset(None) is not None:
        return None
    offset = key.utcoffset()
    return None if key.replace(fold=1 - key.fold).utcoffset() == offset else offset


def _kinds_of(parts: Iterable[Any]) -> tuple[Any, ...] | None:
    kinds = tuple(map(_kind_of, parts))
    return None if all(kind is None for kind in kinds) else kinds

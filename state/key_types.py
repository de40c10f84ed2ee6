"""The type of the keys that a restored state of Python objects is kept under.

Keys of another type have another hash: what is stored under the number 1 would never be found under
the text "1", and nobody would notice. So the first keys that come behind a restore are compared
with those that were stored, of row-face state and of windows whose keys a function makes. Keys that
are columns have declared types, which states compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from ..core.errors import StateError, UnfitStateError
from ..core.key_kinds import all_given, given
from .encoding import PICKLE
from .object_reader import ObjectReader
from .pickling import loads
from .stored import StateTable

SAMPLE = 1000
"""So many keys of a restored state are looked at, about."""

_KINDS = frozenset({"value", "list", "map", "reducing", "aggregating", "timers"})

_ALIKE: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((bool, np.bool_), "bool"),
    ((int, np.integer), "int"),
    (str, "str"),
    (bytes, "bytes"),
    ((float, np.floating), "float"),
)
"""In this order: types of keys that have one hash where they are equal. An IntEnum is an int."""


class StoredKeyType:
    """Of all keys of the restored states, which have one type."""

    def __init__(self, state: str, shown: str) -> None:
        self._state = state
        self._shown = shown
        self._checked = False

    @staticmethod
    def of(tables: Iterable[StateTable]) -> StoredKeyType | None:
        """None if there are no such keys but None, or if they are of several types."""
        named: dict[str, str] = {}
        for table in tables:
            if table.kind in _KINDS:
                for shown in _stored(table):
                    named.setdefault(shown, table.name)
        if len(named) != 1:
            return None
        ((shown, state),) = named.items()
        return StoredKeyType(state, shown)

    @staticmethod
    def of_keys(state: str, keys: Iterable[Any]) -> StoredKeyType | None:
        """Of keys that are restored, and may be none; None likewise."""
        found = {_shown(key) for key in keys if key is not None}
        return StoredKeyType(state, found.pop()) if len(found) == 1 else None

    def check(self, keys: Sequence[Any]) -> None:
        """The keys of a batch, as held; those of the first one count. UnfitStateError if no one
        of them is of the type that was stored."""
        if self._checked:
            return
        shown = {_shown(key) for key in all_given(list(keys)) if key is not None}
        if shown and self._shown not in shown:
            raise UnfitStateError(
                f"state '{self._state}' was stored under keys of type {self._shown} and keys are "
                f"of type {' and '.join(sorted(shown))} now: what is stored would never be found, "
                "for other keys have another hash; keep the type of the key, give the operator a "
                "new uid, or allow_unmatched_state if keys are of several types"
            )
        self._checked = self._checked or bool(shown)


def one_of_each(keys: Iterable[Any]) -> list[Any]:
    """Of each type one of these keys, as held: `StoredKeyType.of_keys` asks no more of them."""
    return list({_shown(given(key)): key for key in keys}.values())


def _stored(table: StateTable) -> set[str]:
    """The types of some keys from all over the table; None is a key of any type."""
    encoding = table.metadata.get("key", PICKLE)
    column = table.data.column("key")
    if encoding != PICKLE:
        return {encoding} if column.null_count < len(column) else set()
    some = pa.array(range(0, len(column), len(column) // SAMPLE + 1), pa.int64())
    what = f"key of state '{table.name}'"
    reader = ObjectReader(what, fixed=True)
    try:
        keys = [loads(data, what, reader) for data in column.take(some).unique().to_pylist()]
    except StateError:
        return set()  # whoever asks for the state is told
    return {_shown(key) for key in keys if key is not None}


def _shown(key: Any) -> str:
    """A type as text, of which keys may be equal."""
    if isinstance(key, tuple):
        return f"tuple of {len(key)}"
    for types, name in _ALIKE:
        if isinstance(key, types):
            return name
    if isinstance(key, datetime):
        return "datetime" if key.utcoffset() is None else "datetime with a zone"
    return type(key).__name__

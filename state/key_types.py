"""The type of the keys that a restored state of Python objects is kept under.

Keys of another type have another hash: what is stored under the number 1 would never be found under
the text "1", and nobody would notice. So the first keys that come behind a restore are compared
with those that were stored, of row-face state and of windows whose keys a function makes. Keys that
are columns have declared types, which states compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..core.errors import StateError
from ..core.key_kinds import all_given, given
from .encoding import PICKLE
from .object_reader import ObjectReader
from .pickling import loads
from .stored import StateTable

_KINDS = frozenset({"value", "list", "map", "reducing", "aggregating", "timers"})


class StoredKeyType:
    """Of all keys of the restored states, which have one type."""

    def __init__(self, state: str, shown: str) -> None:
        self._state = state
        self._shown = shown
        self._checked = False

    @staticmethod
    def of(tables: Iterable[StateTable]) -> StoredKeyType | None:
        """None if there are no such keys, or if they are of several types."""
        known = {table.name: _stored(table) for table in tables if table.kind in _KINDS}
        found = {one for one in known.values() if one is not None}
        if len(found) != 1:
            return None
        return StoredKeyType(next(iter(known)), found.pop())

    @staticmethod
    def of_keys(state: str, keys: Iterable[Any]) -> StoredKeyType | None:
        """Of keys that are restored, and may be none; None likewise."""
        found = {_shown(key) for key in keys if key is not None}
        return StoredKeyType(state, found.pop()) if len(found) == 1 else None

    def check(self, keys: Sequence[Any]) -> None:
        """The keys of a batch, as held; those of the first one count. StateError if no one of them
        is of the type that was stored."""
        if self._checked:
            return
        shown = {_shown(key) for key in all_given(list(keys)) if key is not None}
        if shown and self._shown not in shown:
            raise StateError(
                f"state '{self._state}' was stored under keys of type {self._shown} and keys are "
                f"of type {' and '.join(sorted(shown))} now: what is stored would never be found, "
                "for other keys have another hash; keep the type of the key, give the operator a "
                "new uid, or allow_unmatched_state if keys are of several types"
            )
        self._checked = self._checked or bool(shown)


def one_of_each(keys: Iterable[Any]) -> list[Any]:
    """Of each type one of these keys, as held: `StoredKeyType.of_keys` asks no more of them."""
    return list({_shown(given(key)): key for key in keys}.values())


def _stored(table: StateTable) -> str | None:
    encoding = table.metadata.get("key", PICKLE)
    column = table.data.column("key")
    if encoding != PICKLE:
        return encoding if column.null_count < len(column) else None
    if not len(column):
        return None
    what = f"key of state '{table.name}'"
    try:
        return _shown(loads(column[0].as_py(), what, ObjectReader(what, fixed=True)))
    except StateError:
        return None  # whoever asks for the state is told


def _shown(key: Any) -> str:
    """A type as text, of which keys may be equal."""
    if isinstance(key, tuple):
        return f"tuple of {len(key)}"
    return type(key).__name__

"""Broadcast state: a map that is the same in every subtask, and has to stay so.

It holds values, not objects: what is put is taken as it is then, and what is read can be changed
without changing the state. Otherwise a function that changes in place what it got, on the side
where every subtask sees other records, would make the copies differ, and nobody would notice before
a restore gives all of them subtask 0's. Only values that cannot change are handed out themselves
(`copies`).

As what it holds never changes, freezing is a copy of the dict; pickling is done beside the task's
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

from ..core.errors import StateError
from .copies import copies_of, is_fixed, own
from .declared_types import DeclaredType
from .faces import BroadcastState, ReadOnlyBroadcastState
from .pickling import dumps


class _Copied:
    """A value that may be changed by who gets it: `make` gives a new one each time."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def _own_key(key: Any) -> Any:
    """The key for whom may change it, as a row can be."""
    return own(key, "key of broadcast state")


def _shown(kept: Any) -> Any:
    return kept.make() if type(kept) is _Copied else kept


class _Entries(ReadOnlyBroadcastState):
    """The reading part. `_entries`: values that cannot change themselves; of others a `_Copied`."""

    def __init__(self, entries: dict[Any, Any]) -> None:
        self._entries = entries

    def get(self, key: Any) -> Any:
        kept = self._entries.get(key)
        return kept.make() if type(kept) is _Copied else kept

    def contains(self, key: Any) -> bool:
        return key in self._entries

    def items(self) -> list[tuple[Any, Any]]:
        return [(_own_key(key), _shown(kept)) for key, kept in self._entries.items()]

    def keys(self) -> list[Any]:
        return [_own_key(key) for key in self._entries]

    def values(self) -> list[Any]:
        return [_shown(kept) for kept in self._entries.values()]

    def is_empty(self) -> bool:
        return not self._entries


class OperatorBroadcastState(_Entries, BroadcastState):
    """See the module. `keys`, `values`: declared types; None: anything."""

    def __init__(
        self,
        name: str,
        entries: Iterable[tuple[Any, Any]] = (),
        keys: DeclaredType | None = None,
        values: DeclaredType | None = None,
    ) -> None:
        self.name = name
        self.locked_by: str | None = None
        """Who is at work, and may not write; None: who may."""
        self._key_type = keys
        self._value_type = values
        super().__init__({_own_key(key): self._kept(value) for key, value in entries})

    def put(self, key: Any, value: Any) -> None:
        if self.locked_by is not None:
            raise _refusal(self.locked_by, f"put({key!r}, ...)", self.name)
        self._check(key, value)
        self._entries[_own_key(key)] = self._kept(value)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        if self.locked_by is not None:
            raise _refusal(self.locked_by, "put_all(...)", self.name)
        added = dict(dict_value)
        for key, value in added.items():
            self._check(key, value)
        self._entries.update({_own_key(key): self._kept(value) for key, value in added.items()})

    def remove(self, key: Any) -> None:
        if self.locked_by is not None:
            raise _refusal(self.locked_by, f"remove({key!r})", self.name)
        self._entries.pop(key, None)

    def clear(self) -> None:
        if self.locked_by is not None:
            raise _refusal(self.locked_by, "clear()", self.name)
        self._entries.clear()

    def freeze(self) -> Callable[[], list[bytes]]:
        """What a snapshot stores, (key, value) pairs pickled one by one; made later, on any
        thread, and as it is now."""
        entries, what = list(self._entries.items()), self._what()
        return lambda: [dumps((key, _shown(kept)), what) for key, kept in entries]

    @property
    def count(self) -> int:
        """Entries."""
        return len(self._entries)

    def contents(self) -> Iterator[tuple[Any, Any]]:
        """Keys and values, one by one."""
        return ((key, _shown(kept)) for key, kept in self._entries.items())

    def read_only(self, who: str) -> ReadOnlyView:
        """A view of it for those who may not write it. `who`: the operator and its subtask."""
        return ReadOnlyView(self.name, self._entries, who)

    def _check(self, key: Any, value: Any) -> None:
        keys, values = self._key_type, self._value_type
        if keys is not None and key is not None and not keys.fits(key):
            keys.refuse(key)
        if values is not None and value is not None and not values.fits(value):
            values.refuse(value)

    def _kept(self, value: Any) -> Any:
        return value if is_fixed(value) else _Copied(copies_of(value, self._what()))

    def _what(self) -> str:
        return f"value of broadcast state '{self.name}'"


class ReadOnlyView(_Entries):
    """Shows a broadcast state, and refuses to write it."""

    def __init__(self, name: str, entries: dict[Any, Any], who: str) -> None:
        super().__init__(entries)
        self._name = name
        self._who = who

    def put(self, key: Any, value: Any) -> NoReturn:
        self._refuse(f"put({key!r}, ...)")

    def put_all(self, dict_value: Mapping[Any, Any]) -> NoReturn:
        self._refuse("put_all(...)")

    def remove(self, key: Any) -> NoReturn:
        self._refuse(f"remove({key!r})")

    def clear(self) -> NoReturn:
        self._refuse("clear()")

    __setitem__ = put
    __delitem__ = remove

    def _refuse(self, call: str) -> NoReturn:
        raise _refusal(self._who, call, self._name)


def _refusal(who: str, call: str, name: str) -> StateError:
    return StateError(
        f"{who}: {call} on broadcast state '{name}', which is read-only here: only "
        "process_broadcast_element may write it, for it alone sees the same elements in every "
        "subtask"
    )

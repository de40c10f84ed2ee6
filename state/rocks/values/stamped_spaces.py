"""The keys of an expiring state that are in memory (`expiring`): ordered dicts, to whom they are
given, that look in RocksDB as well."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Protocol

from .spaces import ABSENT


class StampedKeys(Protocol):
    """What a space asks of the state that it is one of."""

    cold: bool
    """Whether RocksDB has any of it."""
    gone: dict[tuple[Any, Any], None]
    """(namespace, key) of what is to be deleted there."""

    def load(self, namespace: Any, key: Any) -> Any:
        """What RocksDB has under a key that is not in memory; ABSENT if nothing."""

    def of(self, namespace: Any, space: StampedSpace) -> StampedSpace:
        """The keys in memory of this namespace: `space`, if there are none yet."""


class StampedSpace(OrderedDict[Any, Any]):
    """The keys of one namespace that are in memory, in the order in which they were last stamped
    or came back. Whoever asks for another one is given what RocksDB has; what is removed is so
    there, too."""

    def __init__(self, state: StampedKeys, namespace: Any) -> None:
        super().__init__()
        self._state = state
        self.namespace = namespace

    def get(self, key: Any, default: Any = None) -> Any:
        found = super().get(key, ABSENT)
        if found is not ABSENT:
            return found
        state = self._state
        found = state.load(self.namespace, key) if state.cold else ABSENT
        if found is ABSENT:
            return default
        state.of(self.namespace, self)[key] = found
        return found

    def pop(self, key: Any, default: Any = None) -> Any:
        if self._state.cold:
            self._state.gone[self.namespace, key] = None
        return super().pop(key, default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        found = self.get(key, ABSENT)
        if found is ABSENT:
            found = self[key] = default
        return found


class StampedSpaces(dict[Any, StampedSpace]):
    """Namespace -> its keys in memory. One that is asked for is there, for the one who asks."""

    def __init__(self, state: StampedKeys) -> None:
        super().__init__()
        self._state = state
        self[None] = StampedSpace(state, None)

    def get(self, namespace: Any, default: Any = None) -> StampedSpace:
        found = super().get(namespace)
        return StampedSpace(self._state, namespace) if found is None else found

    def setdefault(self, namespace: Any, default: Any = None) -> StampedSpace:
        made = (
            default if isinstance(default, StampedSpace) else StampedSpace(self._state, namespace)
        )
        return super().setdefault(namespace, made)

"""The row face of keyed state, under PyFlink's names. The current key is implied.

Values read from state belong to the state: a function that changes one in place must `update` it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any


class State(ABC):
    @abstractmethod
    def clear(self) -> None:
        """Remove what is stored under the current key."""


class ValueState(State):
    @abstractmethod
    def value(self) -> Any:
        """The current value, None if there is none."""

    @abstractmethod
    def update(self, value: Any) -> None:
        """Replace the value; None clears it."""


class BulkValueState(ABC):
    """A ValueState under many keys at a time: one access per distinct key of a batch, whatever the
    backend. Keys and values are those of the ValueState of the same name."""

    @abstractmethod
    def fetch(self, keys: Iterable[Any]) -> MutableMapping[Any, Any]:
        """What is stored, for reading and writing under these keys (others must not be touched); a
        key without value is absent. Valid until `commit`."""

    @abstractmethod
    def commit(self) -> None:
        """What was written to the mapping is stored. After each `fetch`."""


class AppendingState(State):
    @abstractmethod
    def get(self) -> Any: ...
    @abstractmethod
    def add(self, value: Any) -> None: ...


class ListState(AppendingState):
    @abstractmethod
    def get(self) -> Iterator[Any]:
        """The elements in the order added; empty if there are none."""

    @abstractmethod
    def update(self, values: Iterable[Any]) -> None: ...
    @abstractmethod
    def add_all(self, values: Iterable[Any]) -> None: ...


class ReducingState(AppendingState):
    """`get` gives the reduction so far, None if nothing was added."""


class AggregatingState(AppendingState):
    """`get` gives the aggregate function's result so far, None if nothing was added."""


class MapState(State):
    @abstractmethod
    def get(self, key: Any) -> Any:
        """The value under `key`, None if there is none."""

    @abstractmethod
    def put(self, key: Any, value: Any) -> None: ...
    @abstractmethod
    def put_all(self, dict_value: dict[Any, Any]) -> None: ...
    @abstractmethod
    def remove(self, key: Any) -> None: ...
    @abstractmethod
    def contains(self, key: Any) -> bool: ...
    @abstractmethod
    def items(self) -> Iterable[tuple[Any, Any]]: ...
    @abstractmethod
    def keys(self) -> Iterable[Any]: ...
    @abstractmethod
    def values(self) -> Iterable[Any]: ...
    @abstractmethod
    def is_empty(self) -> bool: ...


class BroadcastState(MapState):
    """Operator state that is the same in every subtask."""

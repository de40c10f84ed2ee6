"""The row face of keyed state, under PyFlink's names. The current key is implied.

Values read from state belong to the state: a function that changes one in place must `update` it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigurationError

if TYPE_CHECKING:
    from .descriptors import ListStateDescriptor, MapStateDescriptor


class State(ABC):
    """What all states have. `ValueState[int]` and the like may be written in annotations."""

    def __class_getitem__(cls, types: Any) -> GenericAlias:
        return GenericAlias(cls, types)

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
    def fetch(
        self, keys: Sequence[Any], times: Sequence[int] | None = None
    ) -> MutableMapping[Any, Any]:
        """What is stored, for reading and writing under these keys (others must not be touched); a
        key without value is absent. Valid until `commit`. `times`: of an access under each key,
        for state that expires by event time; whether something has expired is asked at the first
        under its key."""

    @abstractmethod
    def commit(self) -> None:
        """What was written to the mapping is stored. After each `fetch`."""


class AppendingState(State):
    @abstractmethod
    def get(self) -> Any: ...
    @abstractmethod
    def add(self, value: Any) -> None: ...


class MergingState(AppendingState):
    """State of which two can be made one."""


class ListState(MergingState):
    @abstractmethod
    def get(self) -> Iterator[Any]:
        """The elements in the order added; empty if there are none."""

    @abstractmethod
    def update(self, values: Iterable[Any]) -> None: ...
    @abstractmethod
    def add_all(self, values: Iterable[Any]) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())


class ReducingState(MergingState):
    """`get` gives the reduction so far, None if nothing was added."""


class AggregatingState(MergingState):
    """`get` gives the aggregate function's result so far, None if nothing was added."""


class _ReadMap(State):
    """What is read of a map, whoever may write it."""

    @abstractmethod
    def get(self, key: Any) -> Any:
        """The value under `key`, None if there is none."""

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

    def __getitem__(self, key: Any) -> Any:
        """As `get`: None if there is none."""
        return self.get(key)

    def __contains__(self, key: Any) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[Any]:
        """The map keys."""
        return iter(self.keys())

    def __len__(self) -> int:
        return sum(1 for _ in self.keys())

    def __bool__(self) -> bool:
        """True, also of an empty map: `if self.state:` asks whether there is a state, as it does of
        the other kinds. Whether a map is empty says `is_empty`."""
        return True


class _WrittenMap(_ReadMap):
    """What may be written, too."""

    @abstractmethod
    def put(self, key: Any, value: Any) -> None: ...
    @abstractmethod
    def put_all(self, dict_value: Mapping[Any, Any]) -> None: ...
    @abstractmethod
    def remove(self, key: Any) -> None: ...

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        """As `remove`: no error if there is none."""
        self.remove(key)


class MapState(_WrittenMap):
    """A map under the current key."""


class ReadOnlyBroadcastState(_ReadMap):
    """A map that is the same in every subtask, for those who may only read it.

    It holds values as they were when they were put: what is read may be a copy, so changing it in
    place changes nothing, in no subtask."""


class BroadcastState(ReadOnlyBroadcastState, _WrittenMap):
    """The same for those who write it: with the same elements in the same order in every subtask.
    A value that is read and changed in place is put again."""


class OperatorStateStore(ABC):
    """State of a subtask that belongs to no key. Asked twice for a name, the same state; a name is
    of one kind for ever."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState:
        """A map of which every subtask gets the same copy at a restore: subtask 0's."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        """A list whose elements are dealt out over the subtasks at a restore."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        """A list of which every subtask gets the elements of all at a restore."""


def elements(values: Any, method: str) -> list[Any]:
    """What a list state is given several of. ConfigurationError if it is no iterable."""
    try:
        return list(values)
    except TypeError as error:
        if isinstance(values, Iterable):
            raise
        raise ConfigurationError(
            f"a list state's {method} takes an iterable of elements, got {values!r}: for none give "
            "an empty list, or clear() the state"
        ) from error

"""The row face over `spaces`: state of one value per key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from ...backend import CurrentKey, NamespacedState
from ...declared_types import DeclaredType
from ...faces import AggregatingState, BulkValueState, ReducingState, ValueState
from .spaces import ABSENT, ColdSpaces, ColdState, Space

Self = TypeVar("Self", bound="_ColdRow")


class _ColdRow(NamespacedState):
    """One view of a state, bound to a namespace, moved to another one by `of`.

    Invariant: `_data` is in `_spaces`, or empty.
    """

    def __init__(
        self, cell: CurrentKey, spaces: ColdSpaces, declared: DeclaredType | None = None
    ) -> None:
        self._cell = cell
        self._spaces = spaces
        self._declared = declared
        self._data = spaces[None]

    def of(self: Self, namespace: Any) -> Self:
        data = self._spaces.get(namespace)
        self._data = Space(self._spaces.state, namespace) if data is None else data
        return self

    def clear(self) -> None:
        data = self._data
        data.remove(self._cell.key)
        if data.empty:
            self._spaces.state.drop(data)

    def _store(self, stored: Any) -> None:
        data = self._data
        if data.below and data.namespace is not None and self._cell.key not in data:
            data.remove(self._cell.key)  # RocksDB's entry, if there is one, does not count twice
        if not data:
            data = self._data = self._spaces.setdefault(data.namespace, data)
        data[self._cell.key] = stored

    def _stored(self) -> Any:
        """ABSENT if there is nothing."""
        data, key = self._data, self._cell.key
        stored = data.get(key, ABSENT)
        return data.find(key) if stored is ABSENT and data.below else stored

    def _check(self, values: Iterable[Any]) -> None:
        declared = self._declared
        if declared is not None:
            for value in values:
                if value is not None and not declared.fits(value):
                    declared.refuse(value)


class ColdValueState(_ColdRow, ValueState):
    def value(self) -> Any:
        data = self._data
        stored = data.get(self._cell.key)
        if stored is None and data.below:
            stored = data.find(self._cell.key)
            return None if stored is ABSENT else stored
        return stored

    def update(self, value: Any) -> None:
        data, declared = self._data, self._declared
        if value is None:
            self.clear()
        elif declared is not None and not declared.fits(value):
            declared.refuse(value)
        elif data and (data.namespace is None or not data.below):
            data[self._cell.key] = value
        else:
            self._store(value)


class ColdBulkValueState(BulkValueState):
    """What is fetched is hot, so the mapping is the hot entries."""

    def __init__(self, state: ColdState) -> None:
        self._state = state
        self._data = state.spaces[None]

    def fetch(self, keys: Sequence[Any], times: Sequence[int] | None = None) -> dict[Any, Any]:
        if self._data.below:
            self._state.load_many(keys)
        return self._data

    def commit(self) -> None:
        pass


class ColdReducingState(_ColdRow, ReducingState):
    def __init__(
        self,
        cell: CurrentKey,
        spaces: ColdSpaces,
        function: Any,
        declared: DeclaredType | None = None,
    ) -> None:
        super().__init__(cell, spaces, declared)
        self._reduce = getattr(function, "reduce", function)

    def get(self) -> Any:
        stored = self._stored()
        return None if stored is ABSENT else stored

    def add(self, value: Any) -> None:
        so_far = self._stored()
        reduced = value if so_far is ABSENT else self._reduce(so_far, value)
        if self._declared is not None:
            self._check((value, reduced))
        self._store(reduced)


class ColdAggregatingState(_ColdRow, AggregatingState):
    def __init__(
        self,
        cell: CurrentKey,
        spaces: ColdSpaces,
        function: Any,
        declared: DeclaredType | None = None,
    ) -> None:
        super().__init__(cell, spaces, declared)
        self._function = function

    def get(self) -> Any:
        accumulator = self._stored()
        return None if accumulator is ABSENT else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        accumulator = self._stored()
        if accumulator is ABSENT:
            accumulator = self._function.create_accumulator()
        accumulator = self._function.add(value, accumulator)
        if self._declared is not None:
            self._check((accumulator,))
        self._store(accumulator)

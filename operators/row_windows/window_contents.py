"""What a window holds between firings: one folded value, or the list of its records.

Both live in keyed state under (key, state window). `get` returns None for a window that holds
nothing, and the elements to hand to the window function otherwise. (`slot_contents` has built-in
functions.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

from ...state.backend import KeyedStateBackend
from ...state.descriptors import ListStateDescriptor, ValueStateDescriptor
from .window_namespace import Namespace

_NAME = "__window_contents"


class Fold(Protocol):
    """An incremental aggregation. An accumulator may be changed in place by `add` and `merge`."""

    method: str
    """The name of the function's method that is given the records."""

    def first(self, value: Any) -> Any:
        """The accumulator of one value."""
        ...

    def add(self, accumulator: Any, value: Any) -> Any: ...
    def merge(self, left: Any, right: Any) -> Any: ...
    def result(self, accumulator: Any) -> Any: ...


class WindowContents(ABC):
    """Contents of the current key's windows."""

    row: int = 0
    """Which record of the batch is being added."""

    def recall(self) -> None:
        """A timer of the current key is next: it may ask for any of the key's windows."""
        return None

    @abstractmethod
    def add(self, namespace: Namespace, value: Any) -> None: ...
    @abstractmethod
    def get(self, namespace: Namespace) -> Any:
        """What the emitter takes: see the module."""

    @abstractmethod
    def merge(self, target: Namespace, sources: Sequence[Namespace]) -> None:
        """Fold the contents of `sources` into `target`, and forget `sources`."""

    @abstractmethod
    def clear(self, namespace: Namespace) -> None: ...


class _Held(Enum):
    """Stands in state for an accumulator that is None, which state cannot hold."""

    NONE = "none"


class FoldedContents(WindowContents):
    """One accumulator per window."""

    def __init__(self, state: KeyedStateBackend, fold: Fold) -> None:
        self._state = state.namespaced(ValueStateDescriptor(_NAME))
        self.fold = fold

    def add(self, namespace: Namespace, value: Any) -> None:
        state = self._state.of(namespace)
        held = state.value()
        if held is None:
            held = self.fold.first(value)
        else:
            held = self.fold.add(None if held is _Held.NONE else held, value)
        state.update(_Held.NONE if held is None else held)

    def get(self, namespace: Namespace) -> Sequence[Any] | None:
        held = self._state.of(namespace).value()
        if held is None:
            return None
        return [self.fold.result(None if held is _Held.NONE else held)]

    def merge(self, target: Namespace, sources: Sequence[Namespace]) -> None:
        merged = self._state.of(target).value()
        for source in sources:
            held = self._state.of(source).value()
            if held is not None:
                self._state.of(source).clear()
                merged = held if merged is None else self._merge(merged, held)
        if merged is not None:
            self._state.of(target).update(merged)

    def clear(self, namespace: Namespace) -> None:
        self._state.of(namespace).clear()

    def _merge(self, left: Any, right: Any) -> Any:
        merged = self.fold.merge(
            None if left is _Held.NONE else left, None if right is _Held.NONE else right
        )
        return _Held.NONE if merged is None else merged


class ListedContents(WindowContents):
    """All records, in the order of arrival (after merging: window by window)."""

    def __init__(self, state: KeyedStateBackend) -> None:
        self._state = state.namespaced(ListStateDescriptor(_NAME))

    def add(self, namespace: Namespace, value: Any) -> None:
        self._state.of(namespace).add(value)

    def get(self, namespace: Namespace) -> Sequence[Any] | None:
        return list(self._state.of(namespace).get()) or None

    def merge(self, target: Namespace, sources: Sequence[Namespace]) -> None:
        for source in sources:
            values = list(self._state.of(source).get())
            self._state.of(source).clear()
            self._state.of(target).add_all(values)

    def clear(self, namespace: Namespace) -> None:
        self._state.of(namespace).clear()


class ReduceFold:
    """Folds with a reduce function; the accumulator is the reduction so far."""

    method = "reduce"

    def __init__(self, reduce: Any) -> None:
        self.add = reduce
        self.merge = reduce

    def first(self, value: Any) -> Any:
        return value

    def result(self, accumulator: Any) -> Any:
        return accumulator


class AggregateFold:
    """Folds with an AggregateFunction."""

    method = "add"

    def __init__(self, function: Any) -> None:
        self._function = function
        self.merge = function.merge
        self.result = function.get_result

    def first(self, value: Any) -> Any:
        return self._function.add(value, self._function.create_accumulator())

    def add(self, accumulator: Any, value: Any) -> Any:
        return self._function.add(value, accumulator)

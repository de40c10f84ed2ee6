"""The row face in memory: one dict per namespace, from key to what is stored under it.

Stored per kind: value, the value; list, a list; map, a dict; reducing, the reduction so far;
aggregating, the accumulator. A key is absent rather than stored empty. No call hashes a key more
than the dict does: key groups matter only to snapshots.

What a state with a declared type is to store (`declared_types`) is looked at before it is stored;
TypeMismatchError leaves the state as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from .backend import CurrentKey, NamespacedState
from .declared_types import DeclaredType
from .faces import (
    AggregatingState,
    BulkValueState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
    elements,
)
from .row_changes import MapMarks, Marks, RowChanges

Spaces = dict[Any, dict[Any, Any]]
"""namespace -> key -> stored. `None` is always present, any other only while not empty."""


_ABSENT = object()
_NOTHING: dict[Any, Any] = {}

Self = TypeVar("Self", bound="_RowState")


class _RowState(NamespacedState):
    """One view of a state: bound to a namespace, moved to another one by `of`.

    Invariant: `_data` is `_spaces[_namespace]`, or an empty dict that is not in there (yet).

    Where changes are recorded, the key is noted in `_marks` before what is stored under it may
    change, and in `_reads` before a stored value is given away.
    """

    _changes: RowChanges | None = None
    _marks: Marks | None = None
    """Of the namespace; None: nothing is recorded."""
    _reads: Marks | None = None
    """The same, if what is read may be changed in place."""
    _whole: Any = True
    """The mark of a key of which all may have changed."""

    def __init__(
        self, cell: CurrentKey, spaces: Spaces, declared: DeclaredType | None = None
    ) -> None:
        self._cell = cell
        self._spaces = spaces
        self._declared = declared
        """Of what is stored: value, element, map value, reduction, accumulator. None: anything."""
        self._namespace: Any = None
        self._data = spaces.setdefault(None, {})

    def of(self: Self, namespace: Any) -> Self:
        self._namespace = namespace
        data = self._spaces.get(namespace)
        self._data = {} if data is None else data
        if self._marks is not None:
            self.record()
        return self

    def noting(self: Self, changes: RowChanges) -> Self:
        """The same view, which notes there what it changes."""
        self._changes = changes
        changes.writers.append(self)
        self.record()
        return self

    def record(self) -> None:
        """As `Recording` says."""
        changes = self._changes
        if changes is not None:
            self._marks = marks = changes.marks(self._namespace)
            self._reads = marks if changes.mutable else None

    def clear(self) -> None:
        data = self._data
        if data.pop(self._cell.key, _ABSENT) is not _ABSENT and self._marks is not None:
            assert self._changes is not None
            self._changes.removed(self._marks, self._cell.key)
        if not data and self._namespace is not None:
            self._spaces.pop(self._namespace, None)

    def _store(self, stored: Any) -> None:
        data = self._data
        if not data:
            data = self._data = self._spaces.setdefault(self._namespace, data)
        key = self._cell.key
        data[key] = stored
        if self._marks is not None:
            self._marks[key] = self._whole

    def _note_read(self) -> None:
        """What is stored is given away, or to a function that may change it."""
        if self._reads is not None and self._cell.key in self._data:
            self._reads[self._cell.key] = self._whole

    def _check(self, values: Iterable[Any]) -> None:
        declared = self._declared
        if declared is not None:
            for value in values:
                if value is not None and not declared.fits(value):
                    declared.refuse(value)


class MemoryValueState(_RowState, ValueState):
    def value(self) -> Any:
        if self._reads is not None:
            self._reads[self._cell.key] = True
        return self._data.get(self._cell.key)

    def update(self, value: Any) -> None:
        data, declared = self._data, self._declared
        if value is None:
            self.clear()
        elif declared is not None and not declared.fits(value):
            declared.refuse(value)
        elif data:
            key = self._cell.key
            data[key] = value
            if self._marks is not None:
                self._marks[key] = True
        else:
            self._store(value)


class MemoryBulkValueState(BulkValueState):
    """The mapping is the state itself: there is nothing to fetch and nothing to write back."""

    def __init__(self, spaces: Spaces, changes: RowChanges | None = None) -> None:
        self._data = spaces.setdefault(None, {})
        self._changes = changes
        self._marks: Marks | None = None
        if changes is not None:
            changes.writers.append(self)
            self.record()

    def record(self) -> None:
        """As `Recording` says."""
        if self._changes is not None:
            self._marks = self._changes.marks(None)

    def fetch(self, keys: Sequence[Any], times: Sequence[int] | None = None) -> dict[Any, Any]:
        if self._marks is not None:
            self._marks |= dict.fromkeys(keys, True)
        return self._data

    def commit(self) -> None:
        pass


class MemoryListState(_RowState, ListState):
    _whole = 0

    def get(self) -> Iterator[Any]:
        self._note_read()
        return iter(list(self._data.get(self._cell.key, ())))

    def add(self, value: Any) -> None:
        declared = self._declared
        if declared is not None and value is not None and not declared.fits(value):
            declared.refuse(value)
        stored = self._data.get(self._cell.key)
        if stored is None:
            self._store([value])
        else:
            if self._marks is not None:
                self._marks.setdefault(self._cell.key, len(stored))
            stored.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        added = elements(values, "add_all")
        self._check(added)
        stored = self._data.get(self._cell.key)
        if stored is not None:
            if self._marks is not None:
                self._marks.setdefault(self._cell.key, len(stored))
            stored.extend(added)
        elif added:
            self._store(added)

    def update(self, values: Iterable[Any]) -> None:
        replaced = elements(values, "update")
        self._check(replaced)
        if replaced:
            self._store(replaced)
        else:
            self.clear()


class MemoryMapState(_RowState, MapState):
    _whole = None

    def __init__(
        self,
        cell: CurrentKey,
        spaces: Spaces,
        declared: DeclaredType | None = None,
        declared_key: DeclaredType | None = None,
    ) -> None:
        super().__init__(cell, spaces, declared)
        self._declared_key = declared_key

    def _entries(self) -> dict[Any, Any]:
        return self._data.get(self._cell.key) or {}

    def get(self, key: Any) -> Any:
        found = self._entries().get(key)
        if self._reads is not None and found is not None:
            MapMarks.written(self._reads, self._cell.key, key)
        return found

    def put(self, key: Any, value: Any) -> None:
        declared, declared_key = self._declared, self._declared_key
        if declared is not None and value is not None and not declared.fits(value):
            declared.refuse(value)
        if declared_key is not None and key is not None and not declared_key.fits(key):
            declared_key.refuse(key)
        stored = self._data.get(self._cell.key)
        if stored is None:
            self._store({key: value})
        else:
            if self._marks is not None:
                noted = self._marks.get(self._cell.key, _NOTHING)
                if noted is not None and (key not in noted or key not in stored):
                    MapMarks.written(self._marks, self._cell.key, key, key not in stored)
            stored[key] = value

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        dict_value = dict(dict_value)
        self._check(dict_value.values())
        if self._declared_key is not None:
            for key in dict_value:
                if key is not None and not self._declared_key.fits(key):
                    self._declared_key.refuse(key)
        stored = self._data.get(self._cell.key)
        if stored is not None:
            if self._marks is not None:
                for key in dict_value:
                    MapMarks.written(self._marks, self._cell.key, key, key not in stored)
            stored.update(dict_value)
        elif dict_value:
            self._store(dict_value)

    def remove(self, key: Any) -> None:
        stored = self._data.get(self._cell.key)
        if stored is not None and stored.pop(key, _ABSENT) is not _ABSENT:
            if self._marks is not None:
                MapMarks.removed(self._marks, self._cell.key, key)
            if not stored:
                self.clear()

    def contains(self, key: Any) -> bool:
        return key in self._entries()

    def items(self) -> Iterable[tuple[Any, Any]]:
        self._note_read()
        return list(self._entries().items())

    def keys(self) -> Iterable[Any]:
        return list(self._entries())

    def values(self) -> Iterable[Any]:
        self._note_read()
        return list(self._entries().values())

    def is_empty(self) -> bool:
        return not self._entries()


class MemoryReducingState(_RowState, ReducingState):
    def __init__(
        self,
        cell: CurrentKey,
        spaces: Spaces,
        function: Any,
        declared: DeclaredType | None = None,
    ) -> None:
        super().__init__(cell, spaces, declared)
        self._reduce = getattr(function, "reduce", function)

    def get(self) -> Any:
        self._note_read()
        return self._data.get(self._cell.key)

    def add(self, value: Any) -> None:
        so_far = self._data.get(self._cell.key, _ABSENT)
        self._note_read()
        reduced = value if so_far is _ABSENT else self._reduce(so_far, value)
        if self._declared is not None:
            self._check((value, reduced))
        self._store(reduced)


class MemoryAggregatingState(_RowState, AggregatingState):
    def __init__(
        self,
        cell: CurrentKey,
        spaces: Spaces,
        function: Any,
        declared: DeclaredType | None = None,
    ) -> None:
        super().__init__(cell, spaces, declared)
        self._function = function

    def get(self) -> Any:
        self._note_read()
        accumulator = self._data.get(self._cell.key, _ABSENT)
        return None if accumulator is _ABSENT else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        self._note_read()
        accumulator = self._data.get(self._cell.key, _ABSENT)
        if accumulator is _ABSENT:
            accumulator = self._function.create_accumulator()
        accumulator = self._function.add(value, accumulator)
        if self._declared is not None:
            self._check((accumulator,))
        self._store(accumulator)

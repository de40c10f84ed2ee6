"""Operator state: lists and broadcast maps that belong to a subtask rather than to a key.

A rescale deals the items of a split list evenly over the new subtasks, gives every item of a union
list to every subtask, and copies a broadcast map to all of them. Items are pickled one by one, so
a redistribution moves bytes and never needs the user's classes.

Two-phase-commit sinks make their committables beside the task's thread: `set_deferred` puts a
function into the next snapshot, whose asynchronous part runs it once and appends what it returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..core.errors import StateError
from .backend import OperatorStateMode, OperatorStateTable
from .descriptors import ListStateDescriptor, MapStateDescriptor
from .faces import BroadcastState, ListState
from .pickling import dumps, loads

Deferred = Callable[[], Sequence[Any]]


class OperatorListState(ListState):
    """A list of this subtask. Items must not be changed in place: replace them with `update`."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._items: list[Any] = list(items)

    def get(self) -> Iterator[Any]:
        return iter(list(self._items))

    def add(self, value: Any) -> None:
        self._items.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        self._items.extend(values)

    def update(self, values: Iterable[Any]) -> None:
        self._items = list(values)

    def clear(self) -> None:
        self._items = []

    def contents(self) -> Iterable[Any]:
        """What a snapshot stores, item by item."""
        return self._items


class OperatorBroadcastState(BroadcastState):
    """A map that is the same in every subtask, because each gets the same elements in one order."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[Any, Any]] = ()) -> None:
        self._entries: dict[Any, Any] = dict(entries)

    def get(self, key: Any) -> Any:
        return self._entries.get(key)

    def put(self, key: Any, value: Any) -> None:
        self._entries[key] = value

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        self._entries.update(dict_value)

    def remove(self, key: Any) -> None:
        self._entries.pop(key, None)

    def contains(self, key: Any) -> bool:
        return key in self._entries

    def items(self) -> Iterable[tuple[Any, Any]]:
        return list(self._entries.items())

    def keys(self) -> Iterable[Any]:
        return list(self._entries)

    def values(self) -> Iterable[Any]:
        return list(self._entries.values())

    def is_empty(self) -> bool:
        return not self._entries

    def clear(self) -> None:
        self._entries.clear()

    def contents(self) -> Iterable[Any]:
        """What a snapshot stores: (key, value) pairs."""
        return self._entries.items()


class OperatorStateSnapshot:
    """A point-in-time copy. `tables` may run on any thread; it runs deferred functions once."""

    def __init__(
        self, tables: list[OperatorStateTable], deferred: dict[str, list[Deferred]]
    ) -> None:
        self._tables = tables
        self._deferred = deferred
        self._lock = threading.Lock()
        self._failure: BaseException | None = None

    def tables(self) -> list[OperatorStateTable]:
        """All operator state, in order of first use. Called again, the same tables.

        An error of a deferred function is raised here, again on every call: the function is not
        run a second time, because it may have published half of its work.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._deferred:
                try:
                    self._tables = [self._completed(table) for table in self._tables]
                except BaseException as error:
                    self._failure = error
                    raise
                self._deferred = {}
            return list(self._tables)

    def _completed(self, table: OperatorStateTable) -> OperatorStateTable:
        late = [
            dumps(item, f"item of operator state '{table.name}'")
            for function in self._deferred.get(table.name, ())
            for item in function()
        ]
        if not late:
            return table
        return OperatorStateTable(table.name, table.mode, (*table.items, *late))


class OperatorStateBackend:
    """All operator state of one operator in one subtask. Single-threaded.

    Asking twice for a name gives the same state; asking for it with another mode (split, union,
    broadcast) raises StateError naming both.
    """

    def __init__(self) -> None:
        self._states: dict[str, OperatorListState | OperatorBroadcastState] = {}
        """Those asked for. Every name is also in `_modes`."""
        self._modes: dict[str, OperatorStateMode] = {}
        self._restored: dict[str, list[bytes]] = {}
        """Pickled items of restored names not asked for yet; disjoint from `_states`."""
        self._deferred: dict[str, list[Deferred]] = {}

    def get_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState:
        """A list whose items are dealt evenly over the subtasks at a restore."""
        return self._list(descriptor.name, "split")

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> OperatorListState:
        """A list of which every subtask gets all items of all subtasks at a restore."""
        return self._list(descriptor.name, "union")

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> OperatorBroadcastState:
        """A map of which every subtask gets one and the same copy at a restore."""
        name = descriptor.name
        items = self._claim(name, "broadcast")
        state = self._states.get(name)
        if not isinstance(state, OperatorBroadcastState):
            state = self._states[name] = OperatorBroadcastState(items)
        return state

    def set_deferred(self, name: str, function: Deferred) -> None:
        """Append what `function()` returns to list state `name` in the next snapshot only.

        Runs on the thread that calls the snapshot's `tables()`, exactly once. The list state must
        have been asked for before; it does not itself grow.
        """
        if not isinstance(self._states.get(name), OperatorListState):
            raise StateError(
                f"operator state '{name}' is not a list in use here (known: "
                f"{sorted(self._states)}): get the list state before deferring items to it"
            )
        self._deferred.setdefault(name, []).append(function)

    def snapshot(self) -> OperatorStateSnapshot:
        """The synchronous part: items are pickled now, later changes do not show."""
        tables = []
        for name, mode in self._modes.items():
            state = self._states.get(name)
            if state is None:
                items = tuple(self._restored[name])
            else:
                what = f"item of operator state '{name}'"
                items = tuple([dumps(item, what) for item in state.contents()])
            tables.append(OperatorStateTable(name, mode, items))
        deferred, self._deferred = self._deferred, {}
        return OperatorStateSnapshot(tables, deferred)

    def restore(self, tables: Iterable[OperatorStateTable]) -> None:
        """Before first use: this subtask's share, as `redistribute` gives it. Several tables of one
        name are joined in order. Names never asked for go into later snapshots unchanged."""
        if self._states:
            raise StateError(
                f"operator state {sorted(self._states)} is in use already: restore before using it"
            )
        for table in tables:
            _check_mode(table.name, self._modes.setdefault(table.name, table.mode), table.mode)
            self._restored.setdefault(table.name, []).extend(table.items)

    def _list(self, name: str, mode: OperatorStateMode) -> OperatorListState:
        items = self._claim(name, mode)
        state = self._states.get(name)
        if not isinstance(state, OperatorListState):
            state = self._states[name] = OperatorListState(items)
        return state

    def _claim(self, name: str, mode: OperatorStateMode) -> list[Any]:
        """Check the mode; the restored items of the name, decoded, at its first use."""
        _check_mode(name, self._modes.setdefault(name, mode), mode)
        return [
            loads(item, f"item of operator state '{name}'") for item in self._restored.pop(name, ())
        ]


def redistribute(
    per_subtask: Sequence[Sequence[OperatorStateTable]], parallelism: int
) -> list[list[OperatorStateTable]]:
    """Each new subtask's tables, from those of the former subtasks (in order of their index).

    split: all items in order, cut into `parallelism` runs whose lengths differ by at most one;
    union: every item to everyone; broadcast: the first non-empty copy to everyone. Every subtask
    gets a table for every name, possibly empty.
    """
    modes: dict[str, OperatorStateMode] = {}
    copies: dict[str, list[tuple[bytes, ...]]] = {}
    for tables in per_subtask:
        for table in tables:
            _check_mode(table.name, modes.setdefault(table.name, table.mode), table.mode)
            copies.setdefault(table.name, []).append(table.items)
    dealt = {name: _deal(modes[name], copies[name], parallelism) for name in modes}
    return [
        [OperatorStateTable(name, modes[name], dealt[name][subtask]) for name in modes]
        for subtask in range(parallelism)
    ]


def _deal(
    mode: OperatorStateMode, copies: list[tuple[bytes, ...]], parallelism: int
) -> list[tuple[bytes, ...]]:
    if mode == "broadcast":
        return [next((copy for copy in copies if copy), ())] * parallelism
    items = tuple(item for copy in copies for item in copy)
    if mode == "union":
        return [items] * parallelism
    count = len(items)
    cuts = [subtask * count // parallelism for subtask in range(parallelism + 1)]
    return [items[cuts[i] : cuts[i + 1]] for i in range(parallelism)]


def _check_mode(name: str, known: OperatorStateMode, asked: OperatorStateMode) -> None:
    if known != asked:
        raise StateError(
            f"operator state '{name}' is '{known}' and is asked for as '{asked}': use one kind, "
            "or another name"
        )

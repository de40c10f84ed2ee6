"""Operator state: lists and broadcast maps that belong to a subtask rather than to a key.

A rescale deals the items of a split list evenly over the new subtasks, gives every item of a union
list to every subtask, and copies a broadcast map to all of them. Items are pickled one by one, so
a redistribution moves bytes and never needs the user's classes. Of a broadcast map, which all
subtasks have alike at a barrier, subtask 0 alone stores its copy.

Two-phase-commit sinks make their committables beside the task's thread: `set_deferred` puts a
function into the next snapshot, whose asynchronous part runs it once and appends what it returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ..core.errors import StateError
from .backend import OperatorStateMode, OperatorStateTable
from .broadcast_state import OperatorBroadcastState
from .declared_types import DeclaredType, declared_type
from .descriptors import ListStateDescriptor, MapStateDescriptor
from .faces import ListState, OperatorStateStore, elements
from .migration import NO_MIGRATION, StateMigration
from .pickling import dumps, loads
from .stored_values import StoredValues

Deferred = Callable[[], Sequence[Any]]

SAMPLED = 8
"""So many items of a state tell how large they are."""


class OperatorListState(ListState):
    """A list of this subtask. Items must not be changed in place: replace them with `update`.
    `declared`: the type of its items; None: anything."""

    __slots__ = ("_declared", "_items")

    def __init__(self, items: Iterable[Any] = (), declared: DeclaredType | None = None) -> None:
        self._items: list[Any] = list(items)
        self._declared = declared

    def get(self) -> Iterator[Any]:
        return iter(list(self._items))

    def add(self, value: Any) -> None:
        self._items += self._checked([value])

    def add_all(self, values: Iterable[Any]) -> None:
        self._items += self._checked(elements(values, "add_all"))

    def update(self, values: Iterable[Any]) -> None:
        self._items = self._checked(elements(values, "update"))

    def clear(self) -> None:
        self._items = []

    @property
    def count(self) -> int:
        """Items."""
        return len(self._items)

    def contents(self) -> Iterable[Any]:
        """What a snapshot stores, item by item."""
        return self._items

    def _checked(self, values: list[Any]) -> list[Any]:
        declared = self._declared
        if declared is not None:
            for value in values:
                if value is not None and not declared.fits(value):
                    declared.refuse(value)
        return values


class OperatorStateSnapshot:
    """A point-in-time copy. `tables` may run on any thread; it runs deferred functions once."""

    def __init__(
        self,
        tables: list[OperatorStateTable],
        deferred: dict[str, list[Deferred]],
        frozen: dict[str, Callable[[], list[bytes]]],
    ) -> None:
        """`frozen`: the items of broadcast states, to be pickled."""
        self._tables = tables
        self._deferred = deferred
        self._frozen = frozen
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
            if self._deferred or self._frozen:
                try:
                    self._tables = [self._completed(table) for table in self._tables]
                except BaseException as error:
                    self._failure = error
                    raise
                self._deferred, self._frozen = {}, {}
            return list(self._tables)

    def _completed(self, table: OperatorStateTable) -> OperatorStateTable:
        late = [
            dumps(item, f"item of operator state '{table.name}'")
            for function in self._deferred.get(table.name, ())
            for item in function()
        ]
        if table.name in self._frozen:
            late += self._frozen[table.name]()
        if not late:
            return table
        return OperatorStateTable(table.name, table.mode, (*table.items, *late))


class OperatorStateBackend(OperatorStateStore):
    """All operator state of one operator in one subtask. Single-threaded.

    `subtask`: its index; broadcast maps are stored by subtask 0.

    Asking twice for a name gives the same state; asking for it with another mode (split, union,
    broadcast) raises StateError naming both.
    """

    def __init__(self, subtask: int = 0) -> None:
        self._stores_broadcast = subtask == 0
        self._states: dict[str, OperatorListState | OperatorBroadcastState] = {}
        """Those asked for. Every name is also in `_modes`."""
        self._modes: dict[str, OperatorStateMode] = {}
        self._restored: dict[str, list[bytes]] = {}
        """Pickled items of restored names not asked for yet; disjoint from `_states`."""
        self._deferred: dict[str, list[Deferred]] = {}
        self._sizes: dict[str, tuple[int, float]] = {}
        """Items of a state when it was last looked at, and how large they were."""
        self._migrations: Mapping[str | None, StateMigration] = {}

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> OperatorListState:
        """A list whose items are dealt evenly over the subtasks at a restore."""
        return self._list(_lasting(state_descriptor), "split")

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> OperatorListState:
        """A list of which every subtask gets all items of all subtasks at a restore."""
        return self._list(_lasting(state_descriptor), "union")

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> OperatorBroadcastState:
        """A map of which every subtask gets one and the same copy at a restore."""
        name = _lasting(state_descriptor).name
        items = self._claim(name, "broadcast", state_descriptor)
        state = self._states.get(name)
        if not isinstance(state, OperatorBroadcastState):
            what = f"broadcast state '{name}'"
            keys = declared_type(f"the map key of {what}", state_descriptor.type_info)
            values = declared_type(what, state_descriptor.value_type_info)
            state = self._states[name] = OperatorBroadcastState(name, items, keys, values)
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

    def snapshot(self, for_itself: bool = False) -> OperatorStateSnapshot:
        """The synchronous part: items of lists are pickled now, later changes do not show.
        `for_itself`: of this subtask, with its copies of broadcast maps, beside the one that a
        checkpoint gets, to which deferred items are left."""
        tables = []
        frozen: dict[str, Callable[[], list[bytes]]] = {}
        for name, mode in self._modes.items():
            state = self._states.get(name)
            items: tuple[bytes, ...] = ()
            if mode == "broadcast" and not (self._stores_broadcast or for_itself):
                pass
            elif state is None:
                items = tuple(self._restored[name])
            elif isinstance(state, OperatorBroadcastState):
                frozen[name] = state.freeze()
            else:
                what = f"item of operator state '{name}'"
                items = tuple([dumps(item, what) for item in state.contents()])
            tables.append(OperatorStateTable(name, mode, items))
        deferred: dict[str, list[Deferred]] = {}
        if not for_itself:
            deferred, self._deferred = self._deferred, {}
        return OperatorStateSnapshot(tables, deferred, frozen)

    def restore(
        self,
        tables: Iterable[OperatorStateTable],
        migrations: Mapping[str | None, StateMigration] | None = None,
    ) -> None:
        """Before first use: this subtask's share, as `redistribute` gives it. Several tables of one
        name are joined in order. Names never asked for go into later snapshots unchanged.
        `migrations`: what the program says of the operator's states."""
        self._migrations = migrations or {}
        if self._states:
            raise StateError(
                f"operator state {sorted(self._states)} is in use already: restore before using it"
            )
        for table in tables:
            _check_mode(table.name, self._modes.setdefault(table.name, table.mode), table.mode)
            self._restored.setdefault(table.name, []).extend(table.items)

    def report(self, gauge: Callable[[str, float], None]) -> None:
        """Tell how many items there are, and their bytes, about: at each report of the task. All of
        it is in memory, whatever the backend of keyed state."""
        counts = {name: state.count for name, state in self._states.items()}
        if not any(counts.values()):
            if self._sizes:
                gauge("state.entries.operator", 0)
                gauge("state.bytes.operator", 0)
            return
        for name, state in self._states.items():
            if counts[name] and self._sizes.get(name, (0, 0.0))[0] != counts[name]:
                self._sizes[name] = counts[name], _mean_size(state)
        gauge("state.entries.operator", sum(counts.values()))
        gauge(
            "state.bytes.operator", sum(n * self._sizes[name][1] for name, n in counts.items() if n)
        )

    def migration(self, name: str) -> StateMigration:
        """What the program says of the records that the operator keeps under this name."""
        return self._migrations.get(name, self._migrations.get(None, NO_MIGRATION))

    def _list(self, descriptor: ListStateDescriptor, mode: OperatorStateMode) -> OperatorListState:
        name = descriptor.name
        items = self._claim(name, mode, descriptor)
        state = self._states.get(name)
        if not isinstance(state, OperatorListState):
            declared = declared_type(f"operator state '{name}'", descriptor.type_info)
            state = self._states[name] = OperatorListState(items, declared)
        return state

    def _claim(
        self,
        name: str,
        mode: OperatorStateMode,
        descriptor: ListStateDescriptor | MapStateDescriptor,
    ) -> list[Any]:
        """Check the mode; the restored items of the name, decoded, at its first use."""
        _check_mode(name, self._modes.setdefault(name, mode), mode)
        what = f"item of operator state '{name}'"
        if isinstance(descriptor, MapStateDescriptor):
            kind = descriptor.value_type_info
        else:
            kind = descriptor.type_info
        said = descriptor.migration
        if said is NO_MIGRATION and (mode == "broadcast" or name in self._migrations):
            said = self.migration(name)
        read = StoredValues(what, kind, said)
        items = [loads(item, what, read.reader) for item in self._restored.get(name, ())]
        if mode == "broadcast":
            values = read.fitted([value for _, value in items])
            items = [(key, value) for (key, _), value in zip(items, values, strict=True)]
        else:
            items = read.fitted(items)
        self._restored.pop(name, None)
        return items


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


def kept(
    per_subtask: Sequence[Sequence[OperatorStateTable]], subtask: int
) -> list[OperatorStateTable]:
    """What one subtask begins with again while those of the others go on: of split lists what it
    had itself, of all else as `redistribute` at the same parallelism."""
    mine = {table.name: table for table in per_subtask[subtask]}
    return [
        table
        if table.mode != "split"
        else mine.get(table.name, OperatorStateTable(table.name, "split", ()))
        for table in redistribute(per_subtask, len(per_subtask))[subtask]
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


def _mean_size(state: OperatorListState | OperatorBroadcastState) -> float:
    """Bytes of an item of a state that has some, from a few of them."""
    from .rocks.database.sizes import size_of

    sizes = [size_of(item) for item in islice(state.contents(), SAMPLED)]
    return sum(sizes) / len(sizes)


def _check_mode(name: str, known: OperatorStateMode, asked: OperatorStateMode) -> None:
    if known != asked:
        raise StateError(
            f"operator state '{name}' is '{known}' and is asked for as '{asked}': use one kind, "
            "or another name"
        )


def _lasting(descriptor: Any) -> Any:
    """The descriptor; StateError if it has a time to live."""
    if descriptor.ttl_config is not None:
        raise StateError(
            f"operator state '{descriptor.name}' has a time to live, but only keyed state expires: "
            "remove what is old in snapshot_state"
        )
    return descriptor

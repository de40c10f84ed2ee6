"""The seam between operators and keyed state: one store, a row face and a column face.

Row face: per-record operators set the current key (and namespace) and use `ValueState` and its
siblings. Column face: kernels turn a batch's keys into dense slots and work on whole accumulator
columns. Both snapshot into the same `StateTable`s, grouped by key group, so a snapshot taken at one
parallelism restores at any other, and into any backend.

Namespace: row face, any hashable picklable value (None = no namespace, a window = (start, end));
column face, an int64 (0 = no namespace; windows use the slice's end).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ..core.errors import StateError
from ..core.ids import KeyGroupRange
from .column_face import BufferState, EntryState, TableState
from .descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from .expiry import StateTime
from .faces import AggregatingState, BulkValueState, ListState, MapState, ReducingState, ValueState
from .increments import Since
from .stored import KEY_GROUP as KEY_GROUP
from .stored import AccColumn as AccColumn
from .stored import StateTable as StateTable
from .stored_files import InheritedFiles, StoredFiles
from .stores import CountedFace, KeyedValuesFace, RowsFace, SeenFace

if TYPE_CHECKING:
    from .away import Due
    from .key_types import StoredKeyType
    from .object_keys import ObjectKeys
    from .rows.chunks import KeysOf, RowChunks
    from .rows.format import GroupsOf
    from .rows.log import RowLog
    from .value_store import MakeStores

COLUMN_STATE = ("state.hash_kernels", "state.index_kernels")
"""Modules that every operator preloads that keeps state by key columns."""


class KeyedSnapshot(ABC):
    """A point-in-time view; `tables()` may run on another thread while the backend goes on
    changing. Taken on the task's thread: of columns in milliseconds, whatever their size; of the
    row face and of timers in time that grows with them, for they are copied, or with what changed
    in them, if a snapshot is continued."""

    continued: Collection[str] = ()
    """Names of states of which this holds, as a delta, what changed since the snapshot that it was
    told to continue; nothing if nothing did. Of all others it holds everything."""

    database: StoredFiles | None = None
    """Files of a local database, over which the tables lie."""

    @abstractmethod
    def tables(self) -> Iterable[StateTable]:
        """Encode, once: what has been read is let go. Each table is sorted by KEY_GROUP (stable:
        insertion order within a group)."""


class NoSnapshot(KeyedSnapshot):
    """Of state that nobody will read again."""

    def tables(self) -> Iterable[StateTable]:
        return ()


class TimerQueue(ABC):
    """Timers (timestamp ms, key, namespace) in time order; a timer registered twice is one
    timer."""

    @abstractmethod
    def register(self, timestamp: int, key: Any, namespace: Any = None) -> None: ...
    @abstractmethod
    def delete(self, timestamp: int, key: Any, namespace: Any = None) -> None: ...
    @abstractmethod
    def peek(self) -> int | None:
        """The earliest timestamp, None when empty."""

    @abstractmethod
    def pop_due(self, until: int) -> tuple[int, Any, Any] | None:
        """Remove and return the earliest timer with timestamp <= until (ties: in order of
        registration), None when there is none."""


class NoKey:
    """Stands for the key before the first one is set: using it as a key says so."""

    def __hash__(self) -> int:
        raise StateError("keyed state was used outside the processing of a record: no current key")


class CurrentKey:
    """The cell all states of a backend read the current key from, as it is held (`core.key_kinds`).
    A hot loop sets `key` itself."""

    __slots__ = ("key",)

    def __init__(self) -> None:
        self.key: Any = NoKey()


class NamespacedState(ABC):
    """Row-face state with explicit namespace, for window operators: `of(ns)` selects the namespace
    for the calls that follow, under the current key, and returns the state itself."""

    @abstractmethod
    def of(self, namespace: Any) -> Any: ...


class KeyedStateBackend(ABC):
    """All keyed state of one operator in one subtask.

    Single-threaded, but for `KeyedSnapshot.tables()`. Asking twice for a name gives the same state;
    asking for a name with another kind raises StateError naming both kinds.
    """

    key_groups: KeyGroupRange
    max_parallelism: int
    current: CurrentKey
    time: StateTime
    """What state with a time to live expires by; the task tells it of batches and watermarks."""
    stored_keys: StoredKeyType | None = None
    """Of the keys of row-face state that another job stored, with which those that come are
    compared. None: they are not."""
    of_another_job: bool = False
    """Whether what was restored is another job's, so that keys of another type are a mistake."""

    def check_keys(self, keys: Sequence[Any]) -> None:
        """The keys of a batch, as held, by operators that keep row-face state. UnfitStateError if
        they are of another type than `stored_keys`."""
        if self.stored_keys is not None:
            self.stored_keys.check(keys)

    @abstractmethod
    def set_current_key(self, key: Any) -> None: ...
    @abstractmethod
    def get_current_key(self) -> Any: ...
    @abstractmethod
    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState: ...
    @abstractmethod
    def get_bulk_state(self, descriptor: ValueStateDescriptor) -> BulkValueState:
        """The ValueState of this descriptor, for operators that handle a batch at once."""

    @abstractmethod
    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState: ...
    @abstractmethod
    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState: ...
    @abstractmethod
    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState: ...
    @abstractmethod
    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState: ...
    @abstractmethod
    def keys_of(self, descriptor: StateDescriptor) -> list[Any]:
        """The keys that have something in this state, outside namespaces; as they are now, and as
        they are held."""

    @abstractmethod
    def namespaced(
        self,
        descriptor: ValueStateDescriptor
        | ListStateDescriptor
        | MapStateDescriptor
        | ReducingStateDescriptor
        | AggregatingStateDescriptor,
    ) -> NamespacedState:
        """Like the getters, but the namespace is chosen per call with `.of(namespace)`."""

    @abstractmethod
    def timers(self, name: str) -> TimerQueue: ...
    @abstractmethod
    def table(
        self,
        name: str,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        key_columns: int | None = None,
        values: MakeStores | None = None,
        cold: bool = False,
    ) -> TableState:
        """`key_columns`: how many leading columns of `keys` are the key itself and decide the key
        group; those behind tell entries of one key apart. None: all are.

        `values`: makes what the numbers of some columns stand for, which snapshots hold; each
        namespace has its own (`SlotTable.stores`).

        `cold`: the operator asks for the slots of each batch anew, and for `keys` before it counts
        slots or reads columns of all: so between two batches rows may lie elsewhere, and those that
        stay get new slots. Codes (`values`) are of tables that are all in memory."""

    @abstractmethod
    def object_keys(self, owner: str) -> ObjectKeys:
        """The codes of keys that are Python objects: `kind` of it is a type of key columns, for
        tables, entries and buffers. One for all states; `owner` names the operator in errors."""

    @abstractmethod
    def forget_object_keys(self) -> None:
        """Now and then: forget the codes of keys that no state holds. The caller holds no column of
        codes that is not in a state, nor will it give out one made before. So it is called at the
        start of a batch only, when no work is parked: parked work holds codes in its variables."""

    @abstractmethod
    def entries(
        self,
        name: str,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        owner: str,
        values: MakeStores | None = None,
        due: Due | None = None,
    ) -> EntryState:
        """Any number of entries per key, numbered by the operator. `owner`: the column (or word of
        one) that says whose an entry is, negative for none.

        `due`: the operator sees to entries that may lie elsewhere until then (`EntryState.away`);
        those with codes (`values`) are all in memory."""

    @abstractmethod
    def buffer(self, name: str, schema: pa.Schema, cold: bool = False) -> BufferState:
        """`cold`: rows may be many, and are asked for once their namespace is due: until then they
        may lie elsewhere, those of the greatest namespaces first. Snapshots that continue others
        have those that came since."""

    @abstractmethod
    def rows(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[int],
        numbers: Sequence[AccColumn] = (),
        ordered: bool = True,
    ) -> RowsFace:
        """Rows kept whole at positions that are used again; those restored are in it. `keys`: the
        columns that decide a row's key group. `ordered`: restored in order of arrival."""

    @abstractmethod
    def counted_values(
        self, name: str, keys: pa.Schema, kind: pa.DataType, views: int
    ) -> CountedFace:
        """Values of the slots of a table with these keys, with how often each is there."""

    @abstractmethod
    def seen_values(self, name: str, keys: pa.Schema, kind: pa.DataType, views: int) -> SeenFace:
        """The same where values only come, in less memory. It restores what `counted_values` of
        the name stored, and the other way round, with counts of one."""

    def keyed_values(
        self, name: str, keys: pa.Schema, kind: pa.DataType, views: int, extremes: int
    ) -> KeyedValuesFace | None:
        """Values of keys, which are found by their keys, so that any of them may lie elsewhere than
        in memory; None where they cannot. It restores what `counted_values` and `seen_values` of
        the name stored, and the other way round. `extremes`: so many values are held per key."""
        return None

    @abstractmethod
    def log(
        self,
        name: str,
        schema: pa.Schema,
        groups_of: GroupsOf,
        numbers: Sequence[AccColumn] = (),
        marks: Sequence[AccColumn] = (),
    ) -> RowLog:
        """Rows numbered as they arrive; those restored are in it, those of a key in order of
        arrival. `numbers`: given with each row and never changed; `marks`: may be written."""

    @abstractmethod
    def chunks(self, name: str, schema: pa.Schema, keys_of: KeysOf) -> RowChunks:
        """Rows that are needed until a time of theirs has passed; those restored are in it."""

    @abstractmethod
    def snapshot(self, since: Since | None = None) -> KeyedSnapshot:
        """The synchronous part of a checkpoint. `since`: what it may leave out (`increments`);
        None: nothing, and what later ones leave out is as if this one had not been taken. A backend
        that records no changes gives all of its state whichever it is told."""

    @abstractmethod
    def restore(self, tables: Iterable[StateTable]) -> None:
        """Before first use, once: the tables (possibly several of one name, from several former
        subtasks), already cut to this subtask's key groups. Decoding a name happens when it is
        first
        asked for or snapshotted; state never asked for is carried along into later snapshots."""

    @property
    def inherits(self) -> bool:
        """Whether `inherit` may be called."""
        return False

    def inherit(self, files: InheritedFiles) -> None:
        """Before `restore`, once: begin with the files of local databases that backends like this,
        of the same operator, had at a checkpoint. What is restored counts over what is in them."""
        raise AssertionError("a backend without files was given some")

    def inherited_samples(self) -> list[StateTable]:
        """Some rows of each state in these files that may be asked for."""
        return []

    def report(self, gauge: Callable[[str, float], None]) -> None:
        """Tell figures of its own, where it has any: at each report of the task."""

    def close(self) -> None:
        """The task is over."""


OperatorStateMode = Literal["split", "union", "broadcast"]


@dataclass(frozen=True)
class OperatorStateTable:
    """One operator state of one subtask: pickled elements ("split", "union") or one pickled
    (key, value) pair each ("broadcast")."""

    name: str
    mode: OperatorStateMode
    items: tuple[bytes, ...]

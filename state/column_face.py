"""The column face of keyed state: kernels turn a batch's keys into dense slots, and work on whole
accumulator columns.

A namespace is an int64 here (0 = no namespace; windows use the slice's end). `state.backend` makes
what is here; `state.memory` and `state.rocks` carry it out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Bools, Slots

if TYPE_CHECKING:
    from .away import AwayEntries
    from .value_store import Stores


class SlotTable(ABC):
    """What is stored per key: key -> dense slot, one numpy array per column.

    **A slot is touched before it is written**: `slots` has touched those it returns, until the
    operator's next snapshot; for any other there is `touch`. That is how a snapshot needs no copy
    (`slot_columns`). A snapshot may be taken at every pause `IN_STATE`, and before every call of
    the operator: work that goes on behind such a pause touches its slots again."""

    stores: Stores
    """What the codes in some of its columns stand for, by column."""

    @abstractmethod
    def slots(self, keys: pa.RecordBatch) -> Slots:
        """The slot of each row's key (int64, one per row); new keys get the next free slots, in
        order of first appearance, with initial accumulators. Null keys are keys like any other."""

    @abstractmethod
    def find(self, keys: pa.RecordBatch) -> Slots:
        """The slot of each row's key, -1 for keys that are not there; touches and adds nothing."""

    def recall(self, keys: pa.RecordBatch) -> None:
        """Have slots for those of these keys that are there, wherever they are kept: only keys that
        are not get new ones next."""
        return None

    @abstractmethod
    def column(self, name: str) -> npt.NDArray[Any]:
        """The accumulator array, length >= len(self), writable at touched slots. Valid until the
        next `slots()`."""

    @abstractmethod
    def touch(self, slots: Slots) -> None:
        """These slots are about to be written; negative ones are none."""

    @abstractmethod
    def touch_all(self) -> None:
        """Any slot may be written until the next snapshot."""

    @abstractmethod
    def gather(self, slots: Slots) -> SlotTable:
        """Copies of these slots, in a table of its own that is no state, numbered from 0."""

    @abstractmethod
    def keys(self) -> pa.RecordBatch:
        """The keys in slot order, len(self) rows, with the schema given to `table`. Where rows lie
        elsewhere, they are brought here first, and then `len` counts them."""

    def scan(self, *names: str) -> Iterator[tuple[npt.NDArray[Any], ...]]:
        """These columns of numbers, of all rows wherever they lie, in parts; with those of slots
        that are gone, which are initial."""
        yield tuple(self.column(name)[: len(self)] for name in names)

    def bring(self, column: str, wanted: Callable[[npt.NDArray[Any]], Bools]) -> None:
        """Have slots for all rows of which `wanted` says so by their numbers in this column."""
        return None

    def forget(self, column: str, gone: Callable[[npt.NDArray[Any]], Bools]) -> None:
        """The rows without slots of which `gone` says so are no more."""
        return None

    def freeze_keys(self) -> Callable[[], list[pa.Array]]:
        """`keys` as they are now, made later, on any thread: columns of their storage types."""
        columns = self.keys().columns
        return lambda: columns

    @abstractmethod
    def take_keys(self, slots: Slots) -> list[pa.Array]:
        """The key columns of these slots, in time proportional to their number."""

    @abstractmethod
    def release(self, slots: Slots) -> None:
        """These keys (distinct slots) are gone: their columns are initial, and snapshots leave them
        out. A key that comes again may get its old slot or a new one."""

    @abstractmethod
    def tidy(self) -> Slots | None:
        """Now and then: forget keys that are gone, and values no slot refers to. Where that gives
        slots new numbers, the new number of each old slot, -1 for those that are gone."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of slots given out."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of keys, columns and values."""


class TableState(ABC):
    """A named family of SlotTables, one per namespace.

    All of them are durable, those too in which keys are only numbered or partial results merged: a
    namespace used so is dropped before the work that filled it pauses or returns, or a snapshot
    holds it and a restored operator finds it filled."""

    leaves: ClassVar[bool] = False
    """Whether rows may lie elsewhere between two batches, so that slots are of one batch alone."""

    @abstractmethod
    def table(self, namespace: int = 0) -> SlotTable:
        """The table of this namespace, made on first use."""

    @abstractmethod
    def namespaces(self) -> list[int]:
        """Those that hold a table, ascending."""

    @abstractmethod
    def drop(self, namespace: int) -> None:
        """Forget a namespace; not an error if absent."""

    def expire(
        self,
        column: str,
        gone: Callable[[Slots], Bools],
        forgotten: Callable[[pa.RecordBatch], None] | None = None,
    ) -> None:
        """What is kept elsewhere than in slots may be forgotten without being asked for, once
        `gone` says so of its numbers in this column: of what has slots the operator sees to it.
        `forgotten`: told of the keys, between two batches."""
        return None


class EntryState(SlotTable):
    """Entries of keys, in slots that the operator gives out; see `KeyedStateBackend.entries`.

    After a restore the entries of all former subtasks that are not away lie in slots 0, 1, ... The
    operator calls `resize` before it uses new slots, and `touch` before it writes any."""

    @property
    def away(self) -> AwayEntries | None:
        """What may lie elsewhere than in slots; None: nothing, ever."""
        return None

    @abstractmethod
    def reserve(self, size: int) -> None:
        """Have room for so many slots: arrays stay as they are up to there."""

    @abstractmethod
    def resize(self, size: int) -> None:
        """Have slots 0..size-1; new ones are initial."""

    @abstractmethod
    def reset(self, slots: Slots) -> None:
        """Touch these slots and make them as new."""

    @abstractmethod
    def numbers(self, keys: pa.RecordBatch) -> Slots:
        """The number of each row's key, which is what the owner column holds."""

    @abstractmethod
    def take_owners(self, numbers: Slots) -> list[pa.Array]:
        """The key columns of these keys, of their declared types."""

    @property
    @abstractmethod
    def owners(self) -> int:
        """Keys that have numbers, also those without entries."""

    @abstractmethod
    def tidy_owners(self, used: int, live: Callable[[], Slots]) -> Slots | None:
        """Now and then: forget keys but those `live` gives, of which there are `used`. Where that
        gives keys new numbers, the new number of each old one, -1 for those forgotten; the owner
        column is rewritten."""


class BufferState(ABC):
    """Rows kept as they are, per namespace, each with the key group it belongs to."""

    @abstractmethod
    def append(
        self, namespace: int, rows: pa.RecordBatch, key_groups: npt.NDArray[np.int32]
    ) -> None: ...

    @abstractmethod
    def get(self, namespace: int) -> tuple[pa.Table, npt.NDArray[np.int32]]:
        """The rows in the order appended and their key groups; empty if absent. So much is in
        memory at once, wherever rows lie."""

    @abstractmethod
    def count(self, namespace: int) -> int:
        """How many rows there are, without reading them."""

    @abstractmethod
    def replace(
        self, namespace: int, rows: pa.Table, key_groups: npt.NDArray[np.int32]
    ) -> None: ...
    @abstractmethod
    def namespaces(self) -> list[int]: ...
    @abstractmethod
    def drop(self, namespace: int) -> None: ...

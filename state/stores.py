"""The seam to rows kept whole, and to the values of a table's slots.

All of it is in snapshots by itself: nothing is copied when one is taken, and what one shows is what
there was then, whatever is written meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Bools, Int64s, Slots


class RowsFace(ABC):
    """Rows of fixed columns at positions, which are used again, with numbers that may change."""

    @abstractmethod
    def __len__(self) -> int:
        """Rows in use."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of all arrays."""

    @abstractmethod
    def add(
        self, rows: pa.RecordBatch, numbers: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> Int64s:
        """Positions of new rows, which have the types of the schema or their storage types.
        `numbers`: those that do not begin with their initial value."""

    @abstractmethod
    def column(self, index: int, positions: Int64s) -> pa.Array:
        """One column of the rows at these positions, in this order."""

    def columns(self, indices: Iterable[int], positions: Int64s) -> list[pa.Array]:
        """Some columns of the rows at these positions."""
        return [self.column(index, positions) for index in indices]

    @abstractmethod
    def read(self, positions: Int64s) -> pa.RecordBatch:
        """The rows at these positions, in this order."""

    @abstractmethod
    def number(self, name: str) -> npt.NDArray[Any]:
        """A number of the rows by position; valid until the next `add`. Written only at positions
        in use that were touched since the last snapshot."""

    @abstractmethod
    def touch(self, positions: Int64s) -> None:
        """The numbers at these positions are about to be written."""

    @abstractmethod
    def release(self, positions: Int64s) -> None:
        """These rows, distinct, are used no more."""

    @abstractmethod
    def positions(self) -> Int64s:
        """All in use, in order of arrival, or ascending if the rows are not `ordered`."""


class SlotOwner(Protocol):
    """A table, as those see it who keep values of its slots."""

    def slots(self, keys: pa.RecordBatch) -> Slots: ...
    def freeze_keys(self) -> Callable[[], list[pa.Array]]: ...


class CountedFace(ABC):
    """Values of slots that are counted up and down, for `views` of them each by itself.

    Pairs of slot and value are numbered, for good: those that count nothing any more go when the
    slots are renumbered."""

    kind: pa.DataType
    views: int

    @abstractmethod
    def own(self, table: SlotOwner) -> None:
        """`table` owns the slots; what was restored is now of its slots. Before all else."""

    @abstractmethod
    def __len__(self) -> int:
        """Pairs, those included that count nothing any more."""

    @abstractmethod
    def pairs(self, slots: Slots, values: pa.Array) -> Int64s:
        """The pair of each row; values are not null. Their counts may be written until the next
        snapshot."""

    @abstractmethod
    def touch(self, pairs: Int64s) -> None:
        """The counts of these pairs are about to be written."""

    @abstractmethod
    def counts(self, view: int) -> Int64s:
        """How often each pair is there for a view; valid until the next `pairs`. Written only where
        touched since the last snapshot."""

    @abstractmethod
    def slots_of(self, pairs: Int64s | slice) -> Slots:
        """The slots of these pairs."""

    @abstractmethod
    def values_of(self, pairs: Int64s | slice) -> pa.Array:
        """The values of these pairs, of the type declared."""

    @abstractmethod
    def keep(self, slots: Slots) -> None:
        """The owner has numbered these slots, ascending, from 0; the others are gone. Only the
        pairs of these that count anything stay."""


class SeenFace(ABC):
    """Values of slots that only come: which of `views` have seen them."""

    kind: pa.DataType
    views: int

    @abstractmethod
    def own(self, table: SlotOwner) -> None:
        """As of `CountedFace`."""

    @abstractmethod
    def __len__(self) -> int:
        """Pairs of slot and value."""

    @abstractmethod
    def find(self, slots: Slots, values: pa.Array) -> Int64s:
        """The cell of each row's pair; values are not null. Their bits may be written until the
        next snapshot. Valid until the next `find`."""

    @abstractmethod
    def bits(self, view: int) -> tuple[npt.NDArray[np.uint8], int]:
        """A byte per cell, and the bit of it that says whether this view has seen the pair there;
        valid until the next `find`. Written only where found since the last snapshot."""

    @abstractmethod
    def slots_seen(self, view: int) -> Slots:
        """The slot of each pair that a view has seen."""


class KeyedValuesFace(ABC):
    """Values of keys, with how often each of `views` has them, and of each key its *head*: how many
    different values the views have, and values that the operator holds there.

    Heads, and pairs of key and value, have slots in common, which are good until the next batch.
    What has none may lie elsewhere; what is asked for has one. Values given here are of the storage
    type of `kind`."""

    kind: pa.DataType
    views: int

    @abstractmethod
    def heads(self, keys: pa.RecordBatch) -> Slots:
        """The head of each row's key, with zeros where it is new."""

    @abstractmethod
    def find_heads(self, keys: pa.RecordBatch) -> Slots:
        """The same, -1 of keys without values."""

    @abstractmethod
    def pairs(self, heads: Slots, values: pa.Array) -> Slots:
        """The pair of each row; values are not null. New ones count 0, until `settle`."""

    @abstractmethod
    def settle(self, pairs: Slots, before: Bools) -> None:
        """These pairs (distinct) have been counted; `before`: which of them were `there`. Those
        that count nothing are gone."""

    @abstractmethod
    def there(self, pairs: Slots) -> Bools:
        """Which of these pairs count anything for any view."""

    @abstractmethod
    def touch(self, slots: Slots) -> None:
        """Counts of these pairs or heads, or what heads hold, are about to be written."""

    @abstractmethod
    def counts(self, view: int) -> Int64s:
        """By slot: how often a pair is there for a view, or how many different values of a head
        are. Valid until the next `heads` or `pairs`, written only where touched."""

    @abstractmethod
    def held(self, index: int, heads: Slots) -> pa.Array:
        """The values that these heads hold under an index; null for none."""

    @abstractmethod
    def holds(self, index: int, heads: Slots) -> Bools:
        """Which of these heads hold one. What is restored may hold none."""

    @abstractmethod
    def hold(self, index: int, heads: Slots, values: pa.Array) -> None:
        """From here on these (distinct, touched) hold these values; null for none."""

    @abstractmethod
    def values_of(self, pairs: Slots) -> pa.Array:
        """The values of these pairs."""

    @abstractmethod
    def heads_of(self, pairs: Slots) -> Slots:
        """Whose these pairs are."""

    @property
    @abstractmethod
    def links(self) -> Int64s:
        """By slot: of a head its first pair that has a slot, of a pair the next of its key; -1 at
        the end. Pairs that are gone count nothing."""

    @abstractmethod
    def elsewhere(self, heads: Slots) -> Iterator[tuple[Slots, pa.Array, list[Int64s]]]:
        """The pairs of these (distinct) that have no slots, in parts: their heads, their values,
        and their counts per view."""

    @abstractmethod
    def release(self, heads: Slots, pairs: Slots) -> None:
        """These (distinct) have no values any more. `pairs`: all of theirs that have slots."""

    @abstractmethod
    def tidy(self, heads: Slots) -> None:
        """At the end of a batch, of these heads (distinct): those without pairs go, and no slot is
        valid any more."""

"""What holds the values of a group aggregate's groups, of one expression: the seam to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...state.column_face import SlotTable


class StoredValues(ABC):
    """Groups are slots of the groups' table, which are numbered anew now and then (`keep`)."""

    @abstractmethod
    def own(self, table: SlotTable) -> None:
        """The groups' table, before all else; what was restored is now found."""

    @abstractmethod
    def keep(self, groups: Int64s) -> None:
        """Only these groups, ascending, stay; they are numbered from 0 now."""

    @abstractmethod
    def grow(self, groups: int) -> None:
        """There are so many groups."""

    def recall(self, groups: Int64s) -> None:
        """These, distinct, are read and folded into next, until `tidy`."""
        return None

    @abstractmethod
    def fold(self, groups: Int64s, array: pa.Array, masks: Sequence[Bools], sign: int) -> bool:
        """Add (or with sign -1 take back) each row's value to the views whose mask is true there
        (empty: everywhere); nulls are no values. Returns whether more was taken than there was."""

    @abstractmethod
    def settle(self, groups: Int64s) -> None:
        """Find the extremes of these groups, distinct, after a batch is folded."""

    @abstractmethod
    def distinct(self, view: int, groups: Int64s) -> pa.Array:
        """As of `aggregates.shared.SharedValues`."""

    @abstractmethod
    def extreme(self, index: int, groups: Int64s) -> pa.Array:
        """Likewise."""

    @abstractmethod
    def forget(self, groups: Int64s) -> None:
        """These groups have no values any more."""

    def forget_keys(self, keys: pa.RecordBatch) -> None:
        """The same of groups that the table has forgotten without having been asked for them."""
        raise AssertionError("all groups are in memory")

    def tidy(self) -> None:
        """At the end of a batch."""
        return None

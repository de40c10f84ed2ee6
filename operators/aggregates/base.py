"""The one interface of built-in aggregates on columns: what slices, sessions, panes, windows by
count, running groups and local combining fold records into.

An `Accumulator` keeps one aggregate per slot of a `SlotTable` that its operator owns: in columns
of numbers, and, where these are not enough, in columns of codes, for values that the table's
stores keep. It holds nothing itself, so one serves any number of tables. Which one keeps which
aggregate is said in `registry`.

Every aggregate that takes input at all (all but `count()` without a condition) gets one Arrow array
per batch, made by `inputs.AggregateInputs`: the expression's column, null where the condition is
not true; for arg_min and arg_max a struct of `value` and `by`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots
from ...core.errors import StateError
from ...state.backend import AccColumn
from ...state.column_face import SlotTable
from ...state.value_store import Codes, MakeStores, Values
from ..columns import Storage, from_numbers, storage


class Use(Enum):
    """What becomes of the slots of a table."""

    SLICES = "slices"
    """Nothing: they are folded into, may be merged into other tables, and go with their table."""
    SLOTS = "slots"
    """They are merged within the table, emptied, and used again, one by one."""
    GROUPS = "groups"
    """They are folded into and read after every batch; some may be emptied."""
    CHANGING = "changing"
    """The same, and values are taken back."""


class Source:
    """Slots of other tables, of one after the other, that are merged into a table."""

    def __init__(self, *pieces: tuple[SlotTable, Slots | slice]) -> None:
        self._pieces = pieces

    def column(self, name: str) -> npt.NDArray[Any]:
        """What they have in this column."""
        if len(self._pieces) == 1:
            table, at = self._pieces[0]
            return table.column(name)[at]
        return np.concatenate([table.column(name)[at] for table, at in self._pieces])

    def coded(self, name: str) -> list[tuple[Values, Codes]]:
        """What they have in this column of codes, and what the codes stand for: by table."""
        return [(table.stores[name], table.column(name)[at]) for table, at in self._pieces]


class Partials(Source):
    """Columns that another subtask sent; there are no codes in them."""

    def __init__(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        super().__init__()
        self._columns = columns

    def column(self, name: str) -> npt.NDArray[Any]:
        return self._columns[name]


@dataclass(frozen=True)
class Accumulator(ABC):
    """One aggregate over one column of Arrow type `kind`, in columns named `prefix...`."""

    combinable: ClassVar[bool] = True
    """Whether accumulators of two instances may be merged by `merge` alone, in any order, and are
    numbers: true of all that depend on no arrival numbers and keep no codes. Local combining needs
    it."""

    retractable: ClassVar[bool] = False
    """Whether `retract` works."""

    shares: ClassVar[bool] = False
    """Whether it reads values that others fold, and is made with them (see `shared`)."""

    uses: ClassVar[frozenset[Use]] = frozenset(Use)
    """In which tables it may be; in changing ones only if it is `retractable`, too."""

    aggregate: Aggregate
    prefix: str
    kind: pa.DataType
    use: Use

    @property
    def value(self) -> str:
        return f"{self.prefix}_value"

    @property
    def mark(self) -> str:
        """The second column: seen, n or sequence number."""
        return f"{self.prefix}_mark"

    @classmethod
    def suits(cls, aggregate: Aggregate, kind: pa.DataType) -> bool:
        """Whether it can keep this aggregate of values of this type. By default: of numbers."""
        return storage(kind) is not None

    @abstractmethod
    def columns(self) -> list[AccColumn]:
        """What it needs in its tables."""

    def values(self) -> MakeStores:
        """What makes the stores of those columns that hold codes (initially -1)."""
        return {}

    @abstractmethod
    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        """Fold one value per entry of `slots`; `numbers` are the rows' sequence numbers."""

    def retract(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        """Take back values that were folded before (any order among folds and retractions)."""
        raise cannot_retract(self.aggregate)

    @abstractmethod
    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        """Fold what other slots hold, one per entry of `slots`, into those of `target`. They stay
        as they are, and may be read, folded into and merged again.

        Where source and target share their stores, the target's values may go on from the source's
        own (`ListedValues`). So nothing may be merged into such a source from then on, unless its
        targets are to hold it, too, as in `count_lane.merge_before`, or it was emptied first."""

    @abstractmethod
    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        """The aggregate of the slots `at`, or of every slot. Owns its memory."""

    def _held(self) -> Storage:
        held = storage(self.kind)
        assert held is not None
        return held

    def _marked(self, table: SlotTable, at: Slots | None, kind: pa.DataType) -> pa.Array:
        """`value` as a column, null where `mark` is not positive (false)."""
        return from_numbers(chosen(table, self.value, at), chosen(table, self.mark, at) > 0, kind)


def chosen(table: SlotTable, name: str, at: Slots | None) -> npt.NDArray[Any]:
    """A copy of an accumulator column, of the slots `at` or of all."""
    column = table.column(name)
    return column[: len(table)].copy() if at is None else column[at]


def cannot_retract(aggregate: Aggregate) -> StateError:
    """An accumulator that was not made for it is told to take back a value."""
    return StateError(
        f"{aggregate.describe()} cannot take values back; it was made for tables where none go"
    )

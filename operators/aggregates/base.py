"""What drives a built-in aggregate on columns: flat accumulators, and parts that may hold more.

An `Accumulator` keeps a fixed number of numbers per key, in columns of a `ColumnTable` that its
operator owns. Most aggregates over numbers are accumulators. A `Part` is an accumulator, or an
aggregate that keeps a varying number of values per key in state of its own (`parts.make_part`).

Every aggregate that takes input at all (all but `count()` without a condition) gets one Arrow array
per batch, made by `inputs.AggregateInputs`: the expression's column, null where the condition is
not true; for arg_min and arg_max a struct of `value` and `by`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots
from ...core.errors import StateError
from ...state.backend import AccColumn, ColumnTable
from ..columns import Storage, from_numbers, storage

Read = Callable[[str], npt.NDArray[Any]]
"""A source table's accumulator column by name, one entry per entry of `slots`."""


@dataclass(frozen=True)
class Accumulator(ABC):
    """One aggregate over one column of Arrow type `kind`, in columns named `prefix...`."""

    combinable: ClassVar[bool] = True
    """Whether accumulators of two instances may be merged by `merge` alone, in any order: true of
    all that do not depend on arrival numbers. Local combining needs it."""

    retractable: ClassVar[bool] = False
    """Whether `retract` works."""

    aggregate: Aggregate
    prefix: str
    kind: pa.DataType

    @property
    def value(self) -> str:
        return f"{self.prefix}_value"

    @property
    def mark(self) -> str:
        """The second column: seen, n or sequence number."""
        return f"{self.prefix}_mark"

    @abstractmethod
    def columns(self) -> list[AccColumn]: ...

    @abstractmethod
    def fold(self, table: ColumnTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        """Fold one value per entry of `slots`; `numbers` are the rows' sequence numbers."""

    def retract(self, table: ColumnTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        """Take back values that were folded before (any order among folds and retractions)."""
        raise cannot_retract(self.aggregate)

    @abstractmethod
    def merge(self, target: ColumnTable, slots: Slots, read: Read) -> None:
        """Fold another table's accumulators into `target`."""

    @abstractmethod
    def result(self, table: ColumnTable, at: Slots | None = None) -> pa.Array:
        """The aggregate of the slots `at`, or of every slot. Owns its memory."""

    def _held(self) -> Storage:
        held = storage(self.kind)
        assert held is not None
        return held

    def _marked(self, table: ColumnTable, at: Slots | None, kind: pa.DataType) -> pa.Array:
        """`value` as a column, null where `mark` is not positive (false)."""
        return from_numbers(chosen(table, self.value, at), chosen(table, self.mark, at) > 0, kind)


class Part(ABC):
    """One aggregate of a keyed operator, per namespace (a slice's end; 0 where there is but one).

    `table` is always the operator's own table of that namespace, in which the key of each row has
    the slot `slots[row]`; a part's flat columns are in there, and have the names that `columns()`
    gave. Whatever else a part keeps is in the keyed state, by real keys."""

    aggregate: Aggregate
    combinable: bool = False
    """As for accumulators."""

    def columns(self) -> list[AccColumn]:
        """Columns that this part needs in the operator's table (and its scratch table)."""
        return []

    @abstractmethod
    def fold(
        self,
        namespace: int,
        table: ColumnTable,
        keys: pa.RecordBatch,
        slots: Slots,
        array: pa.Array,
        numbers: Int64s,
    ) -> None:
        """Fold one value per row; `numbers` are the rows' sequence numbers, ascending."""

    def merge(self, target: ColumnTable, slots: Slots, read: Read) -> None:
        """Fold the flat columns of other tables into `target`, a scratch table. Once per source
        or group of sources, before `result(target, several namespaces)`."""

    @abstractmethod
    def result(
        self, table: ColumnTable, namespaces: Sequence[int], at: Slots | None = None
    ) -> pa.Array:
        """The aggregate over these namespaces for the keys of `table`, in slot order; of the slots
        `at` only, if given. With one namespace, `table` is that one's own or a scratch table into
        which it was merged; with several, a scratch table. Adds no key to `table`."""

    def drop(self, namespace: int) -> None:
        """Forget a namespace."""

    def load(self, namespace: int, table: ColumnTable) -> None:
        """After a restore, before anything else of this namespace."""


def chosen(table: ColumnTable, name: str, at: Slots | None) -> npt.NDArray[Any]:
    """A copy of an accumulator column, of the slots `at` or of all."""
    column = table.column(name)
    return column[: len(table)].copy() if at is None else column[at]


def cannot_retract(aggregate: Aggregate) -> StateError:
    """An accumulator that was not made for it is told to take back a value."""
    return StateError(
        f"{aggregate.describe()} cannot take values back; ask make_accumulator for one that can"
    )

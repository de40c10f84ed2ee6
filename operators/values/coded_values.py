"""min, max, first, last, arg_min and arg_max where something is not a number, held by code: an
`Accumulator` like the others, for tables whose slots are merged, emptied and used again (sessions,
windows by count).

A batch's values and those held so far of the keys it touches are ranked together; the winners that
are new get codes in a `ValueStore`. Exact for every type, at a sort per batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s, Slots, numpy_of
from ...state.backend import AccColumn, ColumnTable
from ...state.key_index import as_declared
from ...state.value_store import ValueStore
from ..aggregates.arg_extremes import BY, VALUE, struct_field
from ..aggregates.base import Accumulator, Read, chosen
from ..columns import ranks
from ..kernels import scatter

_BY_VALUE = ("min", "max", "arg_min", "arg_max")


@dataclass(frozen=True)
class CodedValues(Accumulator):
    """Columns: the value's code (-1 for none) and the record's sequence number."""

    store: ValueStore = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", ValueStore(self.kind))

    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, "int64", -1), AccColumn(self.mark, "int64", -1)]

    def fold(self, table: ColumnTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        self._take(table, slots, self.store.widen(array), numbers, None)

    def merge(self, target: ColumnTable, slots: Slots, read: Read) -> None:
        codes = read(self.value)
        self._take(target, slots, self.store.take(codes), read(self.mark), codes)

    def result(self, table: ColumnTable, at: Slots | None = None) -> pa.Array:
        values = self.store.take(chosen(table, self.value, at))
        if self.aggregate.by is None:
            return as_declared(values, self.kind)
        return as_declared(struct_field(values, VALUE), self.kind.field(VALUE).type)

    def _take(
        self,
        table: ColumnTable,
        slots: Slots,
        array: pa.Array,
        numbers: npt.NDArray[np.int64],
        codes: npt.NDArray[np.int64] | None,
    ) -> None:
        """Fold values; `codes` are theirs if they have any already."""
        touched, local = np.unique(slots, return_inverse=True)
        size = len(touched)
        held, marks = table.column(self.value), table.column(self.mark)
        values = pa.concat_arrays([self.store.take(held[touched]), array])
        order = np.concatenate([marks[touched], numbers])
        rows = self._winners(np.concatenate([np.arange(size), local]), values, order, size)
        new = np.flatnonzero(rows >= size)
        at = rows[new] - size
        held[touched[new]] = (
            self.store.append(array.take(pa.array(at))) if codes is None else codes[at]
        )
        marks[touched[new]] = numbers[at]

    def _winners(
        self, slots: Slots, values: pa.Array, numbers: npt.NDArray[np.int64], size: int
    ) -> npt.NDArray[np.int64]:
        """The winning row of each slot, -1 where there is none; the first to arrive, on ties."""
        arrived = np.argsort(numbers, kind="stable")
        compared = values if self.aggregate.by is None else struct_field(values, BY)
        order = ranks(compared) if self.aggregate.kind in _BY_VALUE else numbers
        valid = numpy_of(compared.is_valid())
        rows = np.full(size, -1, dtype=np.int64)
        best, seen = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.bool_)
        largest = self.aggregate.kind in ("max", "last", "arg_max")
        scatter.arg_extreme_into(
            slots[arrived], order[arrived], valid[arrived], rows, best, seen, largest
        )
        return np.where(rows >= 0, arrived[rows], -1)

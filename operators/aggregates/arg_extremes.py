"""arg_min and arg_max where both the value and what is compared are numbers.

Columns: the extreme, the sequence number of the record that holds it (-1 for none), that record's
value, and whether it is valid. The number decides among equal extremes: the first to arrive.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots
from ...core.taking import fields_of
from ...state.backend import AccColumn
from ...state.column_face import SlotTable
from ..columns import Storage, from_numbers, storage, to_numbers
from ..kernels import moments
from .base import Accumulator, Source, chosen

VALUE, BY = 0, 1
"""Fields of the input struct."""


def struct_field(array: pa.Array, index: int) -> pa.Array:
    """A field of a struct column, null where the struct is."""
    return fields_of(array)[index]


class ArgExtreme(Accumulator):
    combinable: ClassVar[bool] = False

    @classmethod
    def suits(cls, aggregate: Aggregate, kind: pa.DataType) -> bool:
        return all(storage(kind.field(at).type) is not None for at in (VALUE, BY))

    @property
    def extreme(self) -> str:
        return f"{self.prefix}_extreme"

    @property
    def valid(self) -> str:
        return f"{self.prefix}_valid"

    def columns(self) -> list[AccColumn]:
        return [
            AccColumn(self.extreme, self._held_field(BY)),
            AccColumn(self.mark, "int64", -1),
            AccColumn(self.value, self._held_field(VALUE)),
            AccColumn(self.valid, "bool", False),
        ]

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        by, valid = to_numbers(struct_field(array, BY), self._held_field(BY))
        values, present = to_numbers(struct_field(array, VALUE), self._held_field(VALUE))
        self._take(table, slots, by, valid, numbers, values, present)

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        numbers = source.column(self.mark)
        values, present = source.column(self.value), source.column(self.valid)
        self._take(
            target, slots, source.column(self.extreme), numbers >= 0, numbers, values, present
        )

    def _take(self, table: SlotTable, slots: Slots, *rows: Any) -> None:
        names = (self.extreme, self.mark, self.value, self.valid)
        largest = self.aggregate.kind == "arg_max"
        arguments: list[Any] = [slots, *rows, *map(table.column, names), largest]
        moments.held_value_into(*arguments)

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        values, valid = chosen(table, self.value, at), chosen(table, self.valid, at)
        return from_numbers(values, valid, self.kind.field(VALUE).type)

    def _held_field(self, index: int) -> Storage:
        held = storage(self.kind.field(index).type)
        assert held is not None
        return held


__all__ = ["BY", "VALUE", "ArgExtreme", "struct_field"]

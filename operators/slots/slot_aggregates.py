"""The aggregates of a `BuiltinWindow` over tables whose slots are given out by the operator.

Unlike the slices of `window_aggregates`, such slots are merged, emptied and used again one by one,
so everything of a slot is in its accumulator columns; values that are no numbers, and lists of
values, are there by code.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...api.aggregates import Aggregate
from ...api.specs.windows import BuiltinWindow
from ...core.arrays import Int64s, Slots
from ...core.batch import ColumnBatch
from ...state.backend import AccColumn, ColumnTable
from ...state.value_store import Values
from ..aggregates.accumulators import Accumulator, Read, make_accumulator
from ..aggregates.inputs import AggregateInputs
from ..columns import NO_NULLS, decoded, fit
from ..kernels import scatter
from ..values.coded_values import CodedValues
from .listed_values import ListedValues, make_listed


class SlotAggregates:
    """`rows` is the column that counts records; other columns start with `prefix`."""

    def __init__(self, spec: BuiltinWindow, prefix: str = "") -> None:
        self.names = [name for name, _ in spec.aggregates]
        """Of the results' columns; of records, known when bound."""
        self._aggregates: list[Aggregate] = [aggregate for _, aggregate in spec.aggregates]
        self._inputs = AggregateInputs(self._aggregates)
        self._prefix = prefix
        self.rows = f"{prefix}rows"

    def inputs(self, batch: ColumnBatch) -> list[pa.Array]:
        """The columns that are folded, before binding in their own types."""
        return self._inputs.of(batch)

    def layout(self, inputs: list[pa.Array]) -> list[pa.Field]:
        """Fields from which `bind` can be repeated after a restore."""
        return [pa.field(f"input{i}", decoded(array.type)) for i, array in enumerate(inputs)]

    def bind(self, fields: Sequence[pa.Field]) -> None:
        """Once, before all that follow."""
        self._bind_parts([field.type for field in fields])

    def _bind_parts(self, inputs: list[pa.DataType]) -> None:
        self._kinds = inputs
        kinds = iter(inputs)
        self._parts: list[Accumulator | None] = []
        for i, aggregate in enumerate(self._aggregates):
            part = None
            if aggregate.takes_input:
                kind, prefix = next(kinds), f"{self._prefix}a{i}"
                part = make_accumulator(aggregate, prefix, kind)
                part = part or make_listed(aggregate, prefix, kind)
                part = part or CodedValues(aggregate, prefix, kind)
            self._parts.append(part)
        self._name_columns()

    def _name_columns(self) -> None:
        """The parts are known."""
        self.columns = [AccColumn(self.rows, "int64")]
        for part in self._parts:
            self.columns += part.columns() if part is not None else []

    def fold(
        self, table: ColumnTable, slots: Slots, inputs: list[pa.Array], numbers: Int64s
    ) -> None:
        """Records in order of arrival, and their sequence numbers."""
        scatter.count_into(slots, NO_NULLS, table.column(self.rows))
        arrays = iter(zip(inputs, self._kinds, strict=True))
        for part, aggregate in zip(self._parts, self._aggregates, strict=True):
            if part is not None:
                array, kind = next(arrays)
                part.fold(table, slots, fit(array, kind, aggregate.describe()), numbers)

    def merge(self, target: ColumnTable, slots: Slots, read: Read) -> None:
        """Fold other slots' accumulators into `target`."""
        scatter.add_into(slots, read(self.rows), target.column(self.rows))
        for part in self._parts:
            if part is not None:
                part.merge(target, slots, read)

    def results(self, table: ColumnTable) -> list[pa.Array]:
        """The aggregates of every slot."""
        return [
            pa.array(table.column(self.rows)[: len(table)].copy())
            if part is None
            else part.result(table)
            for part in self._parts
        ]

    def emitted(self, table: ColumnTable, slots: Slots) -> tuple[Slots, list[pa.Array]]:
        """What these slots give when they fire: the slot of each result, and the results."""
        return slots, self.results(table.gather(slots))

    def values(self) -> dict[str, Values]:
        """The columns that hold codes, and what these stand for."""
        return {part.value: part.store for part in self._coded()}

    def _coded(self) -> list[CodedValues | ListedValues]:
        return [part for part in self._parts if isinstance(part, (CodedValues, ListedValues))]

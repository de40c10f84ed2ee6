"""The aggregates of a `BuiltinWindow` over tables of slots: one table for all windows, or one for
each slice. All of a slot is in its table: columns of numbers, and codes of values in its stores."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...api.aggregates import Aggregate
from ...api.specs.windows import BuiltinWindow
from ...core.arrays import Int64s, Slots
from ...core.batch import ColumnBatch
from ...state.backend import AccColumn
from ...state.column_face import SlotTable
from ...state.value_store import MakeStores
from ..aggregates.base import Accumulator, Source, Use
from ..aggregates.inputs import AggregateInputs
from ..aggregates.registry import window_accumulator
from ..columns import NO_NULLS, decoded, fit
from ..kernels import scatter


class SlotAggregates:
    """`rows` is the column that counts records; other columns start with `prefix`."""

    def __init__(self, spec: BuiltinWindow, prefix: str = "", use: Use = Use.SLOTS) -> None:
        self.names = [name for name, _ in spec.aggregates]
        """Of the results' columns; of records, known when bound."""
        self._aggregates: list[Aggregate] = [aggregate for _, aggregate in spec.aggregates]
        self._inputs = AggregateInputs(self._aggregates)
        self._prefix = prefix
        self._use = use
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
        self._parts: list[Accumulator | None] = [
            self._part(i, aggregate, next(kinds)) if aggregate.takes_input else None
            for i, aggregate in enumerate(self._aggregates)
        ]
        self._name_columns()

    def _part(self, index: int, aggregate: Aggregate, kind: pa.DataType) -> Accumulator:
        return window_accumulator(aggregate, f"{self._prefix}a{index}", kind, self._use)

    def _name_columns(self) -> None:
        """The parts are known."""
        self.columns = [AccColumn(self.rows, "int64")]
        for part in self._parts:
            self.columns += part.columns() if part is not None else []

    @property
    def combinable(self) -> bool:
        """Whether the columns say all there is to say of the records."""
        return all(part is None or part.combinable for part in self._parts)

    def fold(self, table: SlotTable, slots: Slots, inputs: list[pa.Array], numbers: Int64s) -> None:
        """Records in order of arrival, and their sequence numbers."""
        scatter.count_into(slots, NO_NULLS, table.column(self.rows))
        arrays = iter(zip(inputs, self._kinds, strict=True))
        for part, aggregate in zip(self._parts, self._aggregates, strict=True):
            if part is not None:
                array, kind = next(arrays)
                part.fold(table, slots, fit(array, kind, aggregate.describe()), numbers)

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        """Fold what other slots hold into `target`; see `Accumulator.merge`."""
        scatter.add_into(slots, source.column(self.rows), target.column(self.rows))
        for part in self._parts:
            if part is not None:
                part.merge(target, slots, source)

    def results(self, table: SlotTable) -> list[pa.Array]:
        """The aggregates of every slot."""
        return [
            pa.array(table.column(self.rows)[: len(table)].copy())
            if part is None
            else part.result(table)
            for part in self._parts
        ]

    def emitted(self, table: SlotTable, slots: Slots) -> tuple[Slots, list[pa.Array]]:
        """What these slots give when they fire: the slot of each result, and the results."""
        return slots, self.results(table.gather(slots))

    def values(self) -> MakeStores:
        """What makes the stores of the columns that hold codes."""
        made = [part.values() for part in self._parts if part is not None]
        return {name: make for stores in made for name, make in stores.items()}

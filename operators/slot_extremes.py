"""`ExtremeWindow` without ties over tables whose slots are given out by the operator: per slot the
first record that holds the extreme, kept as one struct value by code."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ..api.aggregates import Aggregate
from ..api.specs import BuiltinWindow, ExtremeWindow
from ..core.batch import ColumnBatch
from ..core.errors import TypeMismatchError
from ..state.backend import ColumnTable, Slots
from ..state.key_index import as_declared
from .columns import fit
from .slices import Int64s
from .slot_aggregates import SlotAggregates
from .value_store import ValueStore


class SlotExtremes(SlotAggregates):
    """As arg_min or arg_max of whole records. A slot whose records all have null there has none.

    The stores only know the types that columns are kept as; records are in the aggregate's own."""

    def __init__(self, spec: ExtremeWindow, prefix: str = "") -> None:
        kind = "arg_min" if spec.kind == "min" else "arg_max"
        record = Aggregate(kind, spec.field, by=spec.field)  # type: ignore[arg-type]
        super().__init__(BuiltinWindow((("record", record),)), prefix)
        self._field = spec.field
        self._arriving: list[str] = []

    def inputs(self, batch: ColumnBatch) -> list[pa.Array]:
        self._arriving = batch.data.schema.names
        return list(batch.data.columns)

    def layout(self, inputs: list[pa.Array]) -> list[pa.Field]:
        return [pa.field(n, a.type) for n, a in zip(self._arriving, inputs, strict=True)]

    def bind(self, fields: Sequence[pa.Field]) -> None:
        self._output = pa.schema(list(fields))
        self.names = self._output.names
        self._at = self._output.get_field_index(self._field)
        if self._at < 0:
            raise TypeMismatchError(f"no column '{self._field}' in {self.names}")
        self._stores = [ValueStore(field.type) for field in fields]
        kept = [pa.field(f"c{i}", store.wide) for i, store in enumerate(self._stores)]
        both = [pa.field("value", pa.struct(kept)), pa.field("by", self._stores[self._at].wide)]
        self._record = pa.struct(kept)
        self._input = pa.struct(both)
        super().bind([pa.field("input0", self._input)])

    def fold(
        self, table: ColumnTable, slots: Slots, inputs: list[pa.Array], numbers: Int64s
    ) -> None:
        if self._arriving and self._arriving != self.names:
            raise TypeMismatchError(
                f"records have columns {self._arriving} now and had {self.names} before"
            )
        columns = [
            store.widen(fit(array, field.type, f"column '{field.name}'"))
            for array, field, store in zip(inputs, self._output, self._stores, strict=True)
        ]
        records = pa.StructArray.from_arrays(columns, fields=list(self._record))
        both = pa.StructArray.from_arrays([records, columns[self._at]], fields=list(self._input))
        super().fold(table, slots, [both], numbers)

    def results(self, table: ColumnTable) -> list[pa.Array]:
        (records,) = super().results(table)
        return [
            as_declared(column, field.type)
            for column, field in zip(records.flatten(), self._output, strict=True)
        ]

    def having(self, table: ColumnTable, slots: Slots) -> Slots:
        ((column, _),) = self.coded_columns()
        return slots[table.column(column)[slots] >= 0]

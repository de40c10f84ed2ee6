"""`ExtremeWindow` without ties over tables whose slots are given out by the operator: per slot the
first record that holds the extreme, kept as one struct value by code."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...api.aggregates import Aggregate
from ...api.specs.windows import BuiltinWindow, ExtremeWindow
from ...core.arrays import Int64s, Slots
from ...core.batch import ColumnBatch
from ...core.errors import TypeMismatchError
from ...core.taking import fields_of
from ...state.column_face import SlotTable
from ...state.key_index import as_declared
from ...state.value_store import ValueStore
from ..columns import fit, require_order
from .slot_aggregates import SlotAggregates


class WholeRecords(SlotAggregates):
    """Results are records. The stores only know the types that columns are kept as; records are in
    the struct type `_record`, whose fields are c0, c1, ..."""

    _arriving: Sequence[str] = ()

    def inputs(self, batch: ColumnBatch) -> list[pa.Array]:
        self._arriving = batch.data.schema.names
        return list(batch.data.columns)

    def layout(self, inputs: list[pa.Array]) -> list[pa.Field]:
        return [pa.field(n, a.type) for n, a in zip(self._arriving, inputs, strict=True)]

    def bind(self, fields: Sequence[pa.Field]) -> None:
        self._output = pa.schema(list(fields))
        self.names = self._output.names
        self._stores = [ValueStore(field.type) for field in fields]
        kept = [pa.field(f"c{i}", store.wide) for i, store in enumerate(self._stores)]
        self._record = pa.struct(kept)

    def _structs(self, inputs: list[pa.Array]) -> pa.Array:
        """Arriving records as they are kept."""
        if self._arriving and list(self._arriving) != self._output.names:
            raise TypeMismatchError(
                f"records have columns {self._arriving} now and had {self._output.names} before"
            )
        columns = [
            store.widen(fit(array, field.type, f"column '{field.name}'"))
            for array, field, store in zip(inputs, self._output, self._stores, strict=True)
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self._record))

    def _declared(self, records: pa.Array) -> list[pa.Array]:
        """The columns of kept records, of their own types."""
        return [
            as_declared(column, field.type)
            for column, field in zip(fields_of(records), self._output, strict=True)
        ]

    def _column_at(self, name: str) -> int:
        at: int = self._output.get_field_index(name)
        if at < 0:
            raise TypeMismatchError(f"no column '{name}' in {self._output.names}")
        require_order(self._output.field(at).type, f"column '{name}'")
        return at


class SlotExtremes(WholeRecords):
    """As arg_min or arg_max of whole records. A slot whose records all have null there has none."""

    def __init__(self, spec: ExtremeWindow, prefix: str = "") -> None:
        kind = "arg_min" if spec.kind == "min" else "arg_max"
        record = Aggregate(kind, spec.field, by=spec.field)
        super().__init__(BuiltinWindow((("record", record),)), prefix)
        self._field = spec.field

    def bind(self, fields: Sequence[pa.Field]) -> None:
        super().bind(fields)
        self._at = self._column_at(self._field)
        both = [pa.field("value", self._record), pa.field("by", self._stores[self._at].wide)]
        self._input = pa.struct(both)
        self._bind_parts([self._input])

    def fold(self, table: SlotTable, slots: Slots, inputs: list[pa.Array], numbers: Int64s) -> None:
        records = self._structs(inputs)
        columns = [records, records.field(self._at)]
        both = pa.StructArray.from_arrays(columns, fields=list(self._input))
        super().fold(table, slots, [both], numbers)

    def emitted(self, table: SlotTable, slots: Slots) -> tuple[Slots, list[pa.Array]]:
        (column,) = self.values()
        slots = slots[table.column(column)[slots] >= 0]
        (records,) = self.results(table.gather(slots))
        return slots, self._declared(records)

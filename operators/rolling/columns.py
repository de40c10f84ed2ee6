"""The column face of rolling aggregates: a table state and running kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...api.specs.records import RollingSpec
from ...core.arrays import Slots
from ...core.batch import Batch, ColumnBatch, to_columns
from ...core.errors import TypeMismatchError
from ...plan.rolling import on_numbers
from ...state.backend import AccColumn, KeyedStateBackend
from ...state.column_face import SlotTable
from ..columns import NO_NULLS, Storage, fit, fit_keys, from_numbers, storage, to_numbers
from ..kernels import running
from ..key_expiry import NEVER, KeyExpiry
from ..key_turns import TurnEntries, TurnTaking
from ..sums import as_field, overflow

VALUE, SEEN, HELD, STAMP = "value", "seen", "held", "stamp"
"""Accumulator columns; STAMP, when the key's last record came, only with a time to live."""


def describe(spec: RollingSpec, keys: pa.Schema, columns: pa.Schema) -> pa.Schema | None:
    """Layout of the state: key fields, then input fields. None if it takes the row face: the field
    (for min_by and max_by, any column) is not numbers."""
    at = field_index(spec.field, columns.names)
    field = columns.field(at)
    if not on_numbers(spec, at, columns):
        return None
    if spec.kind == "sum" and pa.types.is_temporal(field.type):
        raise TypeMismatchError(f"sum of '{field.name}': values of type {field.type} do not add up")
    metadata = {"face": "column", "keys": str(len(keys))}
    return pa.schema([*keys, *columns], metadata=metadata)


def field_index(field: str | int, names: list[str]) -> int:
    """Position of a field given by name or position; TypeMismatchError if there is none."""
    if isinstance(field, int) and -len(names) <= field < len(names):
        return field % len(names)
    if isinstance(field, str) and field in names:
        return names.index(field)
    raise TypeMismatchError(f"no field {field!r} in {names}")


class RollingColumns:
    """Table "sums" (or the kind's name): one slot per key."""

    def __init__(
        self, spec: RollingSpec, layout: pa.Schema, state: KeyedStateBackend, operator: str
    ) -> None:
        """`operator`: its name, for messages."""
        count = int(layout.metadata[b"keys"])
        self._spec = spec
        self._keys = pa.schema(list(layout)[:count])
        self._input = pa.schema(list(layout)[count:])
        self._at = field_index(spec.field, self._input.names)
        self._kind = self._input.field(self._at).type
        self._held = _held(self._kind)
        self._largest = spec.kind.startswith("max")
        self._by = spec.kind.endswith("_by")
        columns = [AccColumn(VALUE, self._held), AccColumn(SEEN, "bool", False)]
        if self._by:
            columns.append(AccColumn(HELD, "bool", False))
            for i, field in enumerate(self._input):
                columns.append(AccColumn(f"field{i}", _held(field.type)))
                columns.append(AccColumn(f"valid{i}", "bool", False))
        self._columns = list(columns)
        self._expiry: KeyExpiry | None = None
        if spec.ttl is not None:
            self._stamp = spec.ttl.column(STAMP)
            columns.append(AccColumn(self._stamp, "int64", NEVER))
            self._expiry = KeyExpiry(spec.ttl, state.time, operator, self._forget_some)
            self._turns = TurnTaking(spec.ttl.ms)
        self._state = state.table("rolling_columns", self._keys, columns, cold=True)
        if self._expiry is not None:
            self._state.expire(self._stamp, self._expiry.gone)

    def run(self, batch: Batch) -> ColumnBatch:
        columns = to_columns(batch)
        if columns.data.schema.names != self._input.names:
            raise TypeMismatchError(
                f"records have columns {columns.data.schema.names} now and had "
                f"{self._input.names} before"
            )
        keys = self._spec.key.key_columns(columns)
        assert keys is not None
        table = self._state.table(0)
        slots = table.slots(fit_keys(keys, self._keys))
        if self._expiry is not None:
            return self._expiring(columns, slots, self._expiry)
        return self._results(columns, slots, table)

    def _results(
        self, columns: ColumnBatch, slots: Slots, table: SlotTable | TurnEntries
    ) -> ColumnBatch:
        """`table`: what is held of the slots."""
        if self._by:
            return self._records(columns, slots, table)
        field = columns.data.schema.field(self._at)
        array = self._aggregate(self._fitted(columns.data), slots, table)
        data = columns.data.set_column(self._at, field.with_type(array.type), array)
        return ColumnBatch(data, columns.timestamps)

    def _expiring(self, columns: ColumnBatch, slots: Slots, expiry: KeyExpiry) -> ColumnBatch:
        """Keys whose time is over begin anew, wherever in the batch they do."""
        table = self._state.table(0)
        times = expiry.times.of(columns.timestamps, len(slots))
        turns = self._turns.take(slots, times, table.column(self._stamp))
        if len(turns.stale):
            for column in self._columns:
                table.column(column.name)[turns.stale] = column.initial
        if turns.of_rows is None:
            return self._results(columns, slots, table)
        held = TurnEntries(self._columns, table, slots, turns)
        results = self._results(columns, held.of_rows, held)
        held.put_back()
        return results

    def _forget_some(self, records: int) -> None:
        assert self._expiry is not None
        table = self._state.table(0)
        stamps = table.column(self._stamp)[: len(table)]
        table.release(self._expiry.some(stamps, records))
        if table.tidy() is not None:
            self._expiry.begin_again()

    def _fitted(self, data: pa.RecordBatch) -> pa.Array:
        what = f"column '{self._input.names[self._at]}'"
        return fit(data.column(self._at), self._kind, what)

    def _aggregate(self, array: pa.Array, slots: Slots, table: SlotTable | TurnEntries) -> pa.Array:
        """The field's column after each record."""
        values, valid = to_numbers(array, self._held)
        out, some = np.empty(len(slots), dtype=self._held), np.empty(len(slots), dtype=np.bool_)
        acc, seen = table.column(VALUE), table.column(SEEN)
        name = self._input.names[self._at]
        if self._spec.kind == "sum":
            if running.running_sum(slots, values, valid, acc, seen, out, some):
                raise overflow(Aggregate("sum", name))
            kind = pa.int64() if self._held == "int64" else pa.float64()
            sums = from_numbers(out, some if len(valid) else None, kind)
            return as_field(sums, self._kind, name)
        running.running_extreme(slots, values, valid, acc, seen, self._largest, out, some)
        return from_numbers(out, some if len(valid) else None, self._kind)

    def _records(
        self, columns: ColumnBatch, slots: Slots, table: SlotTable | TurnEntries
    ) -> ColumnBatch:
        """The held record of each record's key, after it."""
        values, valid = to_numbers(self._fitted(columns.data), self._held)
        takes = np.empty(len(slots), dtype=np.bool_)
        acc, seen, held = table.column(VALUE), table.column(SEEN), table.column(HELD)
        running.running_holder(slots, values, valid, acc, seen, held, self._largest, takes)
        arrays = [
            self._field(i, fit(array, field.type, f"column '{field.name}'"), slots, takes, table)
            for i, (array, field) in enumerate(zip(columns.data.columns, self._input, strict=True))
        ]
        data = pa.RecordBatch.from_arrays(arrays, schema=self._input)
        return ColumnBatch(data, columns.timestamps)

    def _field(
        self,
        index: int,
        array: pa.Array,
        slots: Slots,
        takes: npt.NDArray[np.bool_],
        table: SlotTable | TurnEntries,
    ) -> pa.Array:
        values, valid = to_numbers(array, _held(array.type))
        if valid is NO_NULLS:
            valid = np.ones(len(slots), dtype=np.bool_)
        out: npt.NDArray[Any] = np.empty(len(slots), dtype=values.dtype)
        some = np.empty(len(slots), dtype=np.bool_)
        running.running_record(slots, takes, values, table.column(f"field{index}"), out)
        running.running_record(slots, takes, valid, table.column(f"valid{index}"), some)
        return from_numbers(out, some, array.type)


def _held(kind: pa.DataType) -> Storage:
    held = storage(kind)
    assert held is not None
    return held

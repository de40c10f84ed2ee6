"""min, max, first, last, arg_min and arg_max where something is not a number, held by code.

A batch's values are ranked, and of each slot the winner is compared with the value held so far;
those that win get codes in a `ValueStore`. Exact for every type, at a sort per batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...api.aggregates import Aggregate
from ...core.arrays import Bools, Int64s, Slots, numpy_of
from ...core.batch import take_column
from ...state.backend import AccColumn
from ...state.column_face import SlotTable
from ...state.hash_columns import validity_of
from ...state.key_index import as_declared
from ...state.value_store import MakeStores, ValueStore
from ..columns import ranks, storage, to_numbers, validity
from ..kernels import scatter
from .arg_extremes import BY, VALUE, struct_field
from .base import Accumulator, Source, Use, chosen


class CodedValues(Accumulator):
    """Columns: the value's code (-1 for none) and the record's sequence number."""

    combinable = False
    uses = frozenset((Use.SLICES, Use.SLOTS, Use.GROUPS))

    @classmethod
    def suits(cls, aggregate: Aggregate, kind: pa.DataType) -> bool:
        return True

    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, "int64", -1), AccColumn(self.mark, "int64", -1)]

    def values(self) -> MakeStores:
        return {self.value: lambda: ValueStore(self.kind)}

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        store = self._store(table)
        won = self._won(table, slots, array, numbers)
        values = store.widen(take_column(array, pa.array(won)))
        table.column(self.value)[slots[won]] = store.append(values)
        table.column(self.mark)[slots[won]] = numbers[won]

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        store, pieces, numbers = (
            self._store(target),
            source.coded(self.value),
            source.column(self.mark),
        )
        if self._by_value:
            array = pa.concat_arrays([_values(other).take(codes) for other, codes in pieces])
            won = self._won(target, slots, array, numbers)
        else:
            won = self._won(target, slots, None, numbers)
        if all(other is store for other, _ in pieces):
            made = np.concatenate([codes for _, codes in pieces])[won]
        else:
            ends = np.cumsum([len(codes) for _, codes in pieces])
            parts = np.split(won, np.searchsorted(won, ends[:-1]))
            taken = [
                _values(other).take(codes[part - end + len(codes)])
                for (other, codes), part, end in zip(pieces, parts, ends.tolist(), strict=True)
            ]
            made = store.append(pa.concat_arrays(taken))
        target.column(self.value)[slots[won]] = made
        target.column(self.mark)[slots[won]] = numbers[won]

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        values = self._store(table).take(chosen(table, self.value, at))
        if self.aggregate.by is None:
            return as_declared(values, self.kind)
        return as_declared(struct_field(values, VALUE), self.kind.field(VALUE).type)

    def _store(self, table: SlotTable) -> ValueStore:
        return _values(table.stores[self.value])

    @property
    def _by_value(self) -> bool:
        return self.aggregate.kind not in ("first", "last")

    @property
    def _largest(self) -> bool:
        return self.aggregate.kind in ("max", "last", "arg_max")

    def _won(
        self, table: SlotTable, slots: Slots, array: pa.Array | None, numbers: Int64s
    ) -> Int64s:
        """The rows, ascending, one for a slot at most, whose values win over those held. `array`
        may be None where only `numbers` count, negative for no value."""
        if array is None:
            order, valid = numbers, numbers >= 0
        else:
            compared = self._compared(array)
            order, valid = numbers, validity(compared)
            if self._by_value:
                order, valid = _in_order(compared)
        rows = np.sort(self._winners(slots, order, valid, numbers))
        touched, mine = slots[rows], numbers[rows]
        marks = table.column(self.mark)[touched]
        if self._by_value:
            wins = marks < 0
            both = np.flatnonzero(~wins)
            if len(both):
                store, at = self._store(table), pa.array(rows[both])
                best = self._compared(store.take(table.column(self.value)[touched[both]]))
                new = self._compared(store.widen(take_column(array, at)))
                wins[both] = self._beats(new, mine[both], best, marks[both])
        else:
            wins = mine > marks if self._largest else (marks < 0) | (mine < marks)
        won: Int64s = rows[wins]
        return won

    def _compared(self, array: pa.Array) -> pa.Array:
        return array if self.aggregate.by is None else struct_field(array, BY)

    def _winners(self, slots: Slots, order: Any, valid: Bools, numbers: Int64s) -> Int64s:
        """The winning row of each slot that has any; the first to arrive, where ties differ."""
        local, size = slots, int(slots.max(initial=-1)) + 1
        if size > 8 * len(slots):
            touched, local = np.unique(slots, return_inverse=True)
            size = len(touched)
        arrived: Int64s | None = None
        if self.aggregate.by is not None and (numbers[1:] < numbers[:-1]).any():
            arrived = np.argsort(numbers, kind="stable")
            local, order, valid = (
                local[arrived],
                order[arrived],
                valid[arrived] if len(valid) else valid,
            )
        rows = np.full(size, -1, dtype=np.int64)
        best, seen = np.zeros(size, dtype=order.dtype), np.zeros(size, dtype=np.bool_)
        scatter.arg_extreme_into(local, order, valid, rows, best, seen, self._largest)
        rows = rows[rows >= 0]
        return rows if arrived is None else arrived[rows]

    def _beats(self, new: pa.Array, numbers: Int64s, held: pa.Array, marks: Int64s) -> Bools:
        """Which new values win over those held, row by row; the first to arrive, on ties."""
        if pa.types.is_large_string(new.type) or pa.types.is_large_binary(new.type):
            over, under = pc.greater(new, held), pc.less(new, held)
            first, other = (over, under) if self._largest else (under, over)
            text: Bools = numpy_of(first) | (~numpy_of(other) & (numbers < marks))
            return text
        order, _ = _in_order(pa.concat_arrays([held, new]))
        before, now = order[: len(new)], order[len(new) :]
        if not self._largest:
            before, now = now, before
        better = (now > before) | (np.isnan(now) & ~np.isnan(before))
        worse = (before > now) | (np.isnan(before) & ~np.isnan(now))
        wins: Bools = better | (~worse & (numbers < marks))
        return wins


def _values(store: object) -> ValueStore:
    assert isinstance(store, ValueStore)
    return store


def _in_order(array: pa.Array) -> tuple[Any, Bools]:
    """Numbers in the order of the values, as kernels compare them, and which are valid."""
    held = storage(array.type)
    return to_numbers(array, held) if held is not None else (ranks(array), validity_of(array))

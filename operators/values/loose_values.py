"""min, max, first, last, arg_min and arg_max of values that are not numbers: strings, binary,
decimals, nested types.

No accumulator array holds such values, so per slice the winning values are kept as Arrow rows
(key columns, value, sequence number) and compared by rank. Each batch adds the winners of its keys;
compaction keeps one row per key. Exact for every type, at a sort per batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots, numpy_of
from ...core.batch import take_column, take_table
from ...state.backend import ColumnTable, KeyedStateBackend
from ..aggregates.arg_extremes import BY, VALUE, struct_field
from ..aggregates.base import Part
from ..aggregates.entries import KeptRows, KeyNumbers, numbers_of, take_rows, values_of
from ..columns import ranks
from ..kernels import scatter


class LooseValues(Part):
    """State: buffer `<prefix>_rows`. Rows: the value, for arg_min and arg_max also `by`."""

    def __init__(
        self,
        aggregate: Aggregate,
        prefix: str,
        kind: pa.DataType,
        keys: pa.Schema,
        state: KeyedStateBackend,
    ) -> None:
        self.aggregate = aggregate
        kinds = [kind] if aggregate.by is None else [kind.field(i).type for i in (VALUE, BY)]
        self._numbers = KeyNumbers(state, keys)
        self._rows = KeptRows(f"{prefix}_rows", keys, kinds, state, self._choose)
        self._compared = len(kinds) - 1
        """The payload column that decides."""

    def fold(
        self,
        namespace: int,
        table: ColumnTable,
        keys: pa.RecordBatch,
        slots: Slots,
        array: pa.Array,
        numbers: Int64s,
    ) -> None:
        payload = [array]
        if self.aggregate.by is not None:
            payload = [struct_field(array, index) for index in (VALUE, BY)]
        at = _present(self._winners(slots, payload[self._compared], numbers))
        indices = pa.array(at)
        kept = [take_column(column, indices) for column in payload]
        self._rows.append(namespace, take_rows(keys, at), kept, numbers[at])

    def result(
        self, table: ColumnTable, namespaces: Sequence[int], at: Slots | None = None
    ) -> pa.Array:
        rows = self._rows.of(namespaces)
        if len(namespaces) > 1:
            order = np.argsort(numbers_of(rows), kind="stable")
            rows = take_table(rows, pa.array(order))
        slots = self._numbers.of(table, self._rows.keys_of(rows))
        winners = self._winners(slots, values_of(rows, self._compared), numbers_of(rows))
        won = np.full(len(table), -1, dtype=np.int64)
        size = min(len(won), len(winners))
        won[:size] = winners[:size]
        if at is not None:
            won = won[at]
        return take_column(values_of(rows), pa.array(won, mask=won < 0))

    def drop(self, namespace: int) -> None:
        self._rows.drop(namespace)

    def _choose(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        slots = self._numbers.of(None, self._rows.keys_of(rows))
        compared = values_of(rows, self._compared)
        return _present(self._winners(slots, compared, numbers_of(rows)))

    def _winners(
        self, slots: Slots, array: pa.Array, numbers: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """The winning row of each slot, -1 where there is none; the earliest, on ties."""
        size = int(slots.max()) + 1 if len(slots) else 0
        rows = np.full(size, -1, dtype=np.int64)
        by_value = self.aggregate.kind not in ("first", "last")
        order = ranks(array) if by_value else numbers
        valid = numpy_of(array.is_valid())
        best, seen = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.bool_)
        largest = self.aggregate.kind in ("max", "last", "arg_max")
        scatter.arg_extreme_into(slots, order, valid, rows, best, seen, largest)
        return rows


def _present(winners: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The winning rows in order of arrival."""
    return np.sort(winners[winners >= 0])

"""min, max, first and last of values that are not numbers: strings, binary, decimals, nested types.

No accumulator array holds such values, so per slice the winning values are kept as Arrow rows
(key columns, value, sequence number) and compared by rank. Each batch adds the winners of its keys;
compaction keeps one row per key. Exact for every type, at a sort per batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..api.aggregates import Aggregate
from ..state.backend import ColumnTable, KeyedStateBackend, Slots, TableState
from .columns import ranks
from .compacting_buffer import CompactingBuffer
from .kernels import scatter
from .slices import Int64s

NUMBER = "number"
VALUE = "value"


class LooseValues:
    """One aggregate's values, per slice. `scratch` gives tables to number keys with."""

    def __init__(
        self,
        aggregate: Aggregate,
        name: str,
        keys: pa.Schema,
        kind: pa.DataType,
        state: KeyedStateBackend,
        scratch: TableState,
    ) -> None:
        self.aggregate = aggregate
        self.kind = kind
        self._keys = keys
        self._scratch = scratch
        key_fields = [pa.field(f"key{i}", f.type) for i, f in enumerate(keys)]
        self._schema = pa.schema([*key_fields, pa.field(VALUE, kind), pa.field(NUMBER, pa.int64())])
        buffer = state.buffer(name, self._schema)
        self._rows = CompactingBuffer(buffer, state.max_parallelism, self._choose)

    def fold(
        self, slice_end: int, keys: pa.RecordBatch, slots: Slots, array: pa.Array, numbers: Int64s
    ) -> None:
        """Add a batch's winners. `numbers` are the rows' sequence numbers."""
        winners = pa.array(_present(self._winners(slots, array, numbers)))
        chosen = keys.take(winners)
        columns = [*chosen.columns, array.take(winners), pa.array(numbers).take(winners)]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._rows.append(slice_end, rows, chosen)

    def result(self, slice_ends: Iterable[int], table: ColumnTable) -> pa.Array:
        """The winner over these slices for every key of `table`, in slot order.

        Rows of keys that `table` does not hold are ignored. Adds no key to `table`."""
        rows = pa.concat_tables([self._rows.rows(end) for end in slice_ends]).combine_chunks()
        numbered = self._scratch.table(_NUMBERING)
        numbered.slots(table.keys())
        slots = numbered.slots(self._key_columns(rows))
        self._scratch.drop(_NUMBERING)
        winners = self._winners(slots, _flat(rows, VALUE), _flat(rows, NUMBER).to_numpy())
        at = np.full(len(table), -1, dtype=np.int64)
        size = min(len(at), len(winners))
        at[:size] = winners[:size]
        return _flat(rows, VALUE).take(pa.array(at, mask=at < 0))

    def drop(self, slice_end: int) -> None:
        self._rows.drop(slice_end)

    def _choose(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        slots = self._scratch.table(_NUMBERING).slots(self._key_columns(rows))
        self._scratch.drop(_NUMBERING)
        return _present(self._winners(slots, _flat(rows, VALUE), _flat(rows, NUMBER).to_numpy()))

    def _winners(
        self, slots: Slots, array: pa.Array, numbers: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """The winning row of each slot, -1 where there is none; the earliest, on ties."""
        size = int(slots.max()) + 1 if len(slots) else 0
        rows = np.full(size, -1, dtype=np.int64)
        by_value = self.aggregate.kind in ("min", "max")
        order = ranks(array) if by_value else numbers
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        best, seen = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.bool_)
        largest = self.aggregate.kind in ("max", "last")
        scatter.arg_extreme_into(slots, order, valid, rows, best, seen, largest)
        return rows

    def _key_columns(self, rows: pa.Table) -> pa.RecordBatch:
        columns = [_flat(rows, f"key{i}") for i in range(len(self._keys))]
        return pa.RecordBatch.from_arrays(columns, schema=self._keys)


_NUMBERING = 1
"""The scratch namespace in which keys are numbered; dropped after each use."""


def _present(winners: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The winning rows in order of arrival."""
    return np.sort(winners[winners >= 0])


def _flat(rows: pa.Table, name: str) -> Any:
    """A column of a table as one array."""
    column = rows.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

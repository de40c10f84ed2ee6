"""Where the values of groups wait for a snapshot: one buffer per expression, by real keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...core.arrays import numpy_of
from ...core.batch import take_column
from ...state.backend import BufferState, KeyedStateBackend
from ...state.column_index import storage_type
from ...state.key_groups import key_groups_of
from ...state.key_index import as_declared
from .distinct_values import DistinctValues
from .group_parts import GroupParts, Shared
from .group_values import GroupValues
from .groups import Groups


class SavedValues:
    """Buffers "values0", "values1", ...: key columns, value, the views' counts. Empty while records
    flow; written for a snapshot, and when groups are renumbered."""

    def __init__(self, parts: GroupParts, keys: pa.Schema, state: KeyedStateBackend) -> None:
        self._parts = parts
        self._keys = keys
        self._max_parallelism = state.max_parallelism
        self._buffers = [self._buffer(i, shared, state) for i, shared in enumerate(parts.shared)]

    def save(self, groups: Groups) -> None:
        keys = groups.table.keys()
        for shared, (buffer, schema) in zip(self._parts.shared, self._buffers, strict=True):
            owners, values, counts = _values(shared).save()
            mine = [take_column(column, pa.array(owners)) for column in keys.columns]
            arrays = [*mine, values, *map(pa.array, counts)]
            plain = [
                a if a.type == kind else a.cast(kind)
                for a, kind in zip(arrays, schema.types, strict=True)
            ]
            rows = pa.RecordBatch.from_arrays(plain, schema=schema)
            grouping = rows.select(list(range(len(self._keys))))
            table = pa.Table.from_batches([rows])
            buffer.replace(0, table, key_groups_of(grouping, self._max_parallelism))

    def restore(self, groups: Groups) -> None:
        """What the buffers hold, for the groups that are there, into cleared values."""
        known = len(groups)
        for shared, (buffer, _) in zip(self._parts.shared, self._buffers, strict=True):
            rows = buffer.get(0)[0].combine_chunks()
            values = _values(shared)
            values.clear()
            values.grow(known)
            if not rows.num_rows:
                continue
            arrays = [column.chunk(0) for column in rows.columns]
            width = len(self._keys)
            keys = [as_declared(a, k) for a, k in zip(arrays, self._keys.types, strict=False)]
            slots = groups.find(pa.RecordBatch.from_arrays(keys, schema=self._keys))
            mine = slots >= 0
            if not mine.all():
                at = pa.array(np.flatnonzero(mine))
                slots, arrays = slots[mine], [array.take(at) for array in arrays]
            if len(slots):
                counts = [numpy_of(array) for array in arrays[width + 1 :]]
                values.restore(slots, arrays[width], counts)
        self.forget()

    def forget(self) -> None:
        """Records flow again: the state's copy is not needed."""
        for buffer, _ in self._buffers:
            buffer.drop(0)

    def _buffer(
        self, index: int, shared: Shared, state: KeyedStateBackend
    ) -> tuple[BufferState, pa.Schema]:
        fields = [pa.field(f"k{i}", storage_type(f.type)) for i, f in enumerate(self._keys)]
        fields.append(pa.field("value", storage_type(_values(shared).kind)))
        views = range(len(shared.conditions))
        schema = pa.schema([*fields, *(pa.field(f"n{i}", pa.int64()) for i in views)])
        return state.buffer(f"values{index}", schema), schema


def _values(shared: Shared) -> GroupValues | DistinctValues:
    assert shared.values is not None
    return shared.values

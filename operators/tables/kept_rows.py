"""The records a table operator keeps, with key columns and event times, outside the keyed state.

They lie in a `RowTable` while records flow. For a snapshot the rows in use are written to a buffer
of the keyed state, in an order the operator chooses; a restored operator gets them back in that
order per key. The buffer is emptied when records flow again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import numpy_of
from ...state.backend import KeyedStateBackend
from ...state.column_index import storage_type
from ...state.key_groups import key_groups_of
from ...state.key_index import as_declared
from ...state.rows.slab import RowTable
from ..windows.slices import Int64s
from .base import Layout, Records
from .grown import take_rows


class KeptRows:
    """Stored columns: the key columns, unless they are columns of the record; the record's columns;
    its event time, if it has one. `_key_at`: which stored columns are the keys."""

    def __init__(self, layout: Layout, state: KeyedStateBackend, name: str = "rows") -> None:
        apart = [] if layout.named else _numbered("k", layout.keys)
        fields = [*apart, *_numbered("c", layout.columns)]
        if layout.stamped:
            fields.append(pa.field("time", pa.int64()))
        self._kinds = [field.type for field in (*apart, *layout.columns)]
        stored = pa.schema([pa.field(f.name, storage_type(f.type)) for f in fields])
        self._layout = layout
        self._apart = len(apart)
        self._key_at = list(range(self._apart))
        if layout.named:
            self._key_at = [layout.columns.names.index(name) for name in layout.keys.names]
        self._end = self._apart + len(layout.columns)
        self._max_parallelism = state.max_parallelism
        self._buffer = state.buffer(name, stored)
        self._stored = stored
        self.slab = RowTable(name, pa.schema(fields), self._groups_of)

    def add(self, records: Records, rows: Int64s | None) -> Int64s:
        """Keep these records of a batch (None: all); their positions."""
        columns = self.content_of(records)
        if records.stamps is not None:
            columns.append(pa.array(records.stamps))
        names = self._stored.names
        data = pa.RecordBatch.from_arrays(columns, names=names)
        if rows is not None:
            data = take_rows(data, rows)
        return self.slab.add(data)

    def read(self, positions: Int64s) -> tuple[pa.RecordBatch, Int64s | None]:
        """The records at these positions and their event times."""
        columns = self.columns(range(len(self._layout.columns)), positions)
        data = pa.RecordBatch.from_arrays(columns, schema=self._layout.columns)
        if not self._layout.stamped:
            return data, None
        return data, self.times(positions)

    def times(self, positions: Int64s) -> Int64s:
        """Event times at these positions; only of stamped records."""
        column = self.slab.column(self._end, positions)
        times: Int64s = numpy_of(column)
        return times

    def columns(self, indices: Sequence[int], positions: Int64s) -> list[pa.Array]:
        """Some of the records' columns at these positions."""
        return [self.slab.column(self._apart + i, positions) for i in indices]

    def content(self, positions: Int64s) -> list[pa.Array]:
        """All that tells the records at these positions apart, as `content_of` gives it."""
        return [self.slab.column(i, positions) for i in range(self._end)]

    def content_of(self, records: Records) -> list[pa.Array]:
        """What a record is equal to another by: its columns, and key columns that are none."""
        return [*(records.keys.columns if self._apart else ()), *records.data.columns]

    def keyed(self, positions: Int64s) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Keys and records at these positions."""
        arrays = self.content(positions)
        keys = [arrays[at] for at in self._key_at]
        return (
            pa.RecordBatch.from_arrays(keys, schema=self._layout.keys),
            pa.RecordBatch.from_arrays(arrays[self._apart :], schema=self._layout.columns),
        )

    def save(self, positions: Int64s) -> None:
        """Put these rows into the state."""
        rows = self.slab.read(positions)
        plain = [
            column if column.type == kind else column.cast(kind)
            for column, kind in zip(rows.columns, self._stored.types, strict=True)
        ]
        data = pa.RecordBatch.from_arrays(plain, schema=self._stored)
        self._buffer.replace(0, pa.Table.from_batches([data]), self._groups_of(data))

    def _groups_of(self, rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        return key_groups_of(rows.select(self._key_at), self._max_parallelism)

    def forget_saved(self) -> None:
        """Records flow again: the state's copy of the rows is not needed."""
        self._buffer.drop(0)

    def restored(self) -> Records | None:
        """The rows as they were saved, as one batch of records; None if there are none."""
        table = self._buffer.get(0)[0].combine_chunks()
        self._buffer.drop(0)
        if not table.num_rows:
            return None
        arrays = [column.chunk(0) for column in table.columns]
        stamps = numpy_of(arrays.pop()) if self._layout.stamped else None
        kinds = self._kinds
        declared = [as_declared(a, kind) for a, kind in zip(arrays, kinds, strict=True)]
        keys = [declared[at] for at in self._key_at]
        return Records(
            pa.RecordBatch.from_arrays(keys, schema=self._layout.keys),
            pa.RecordBatch.from_arrays(declared[self._apart :], schema=self._layout.columns),
            stamps,
            None,
        )


def _numbered(prefix: str, schema: pa.Schema) -> list[pa.Field]:
    return [pa.field(f"{prefix}{i}", field.type) for i, field in enumerate(schema)]

"""The records a table operator keeps, with key columns and event times, in the keyed state.

They lie in a `RowTable`, which a snapshot reads by itself. What finds them (by key, in their order)
is not stored: a restored operator makes it from the rows, in order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from ...core.arrays import Int64s, numpy_of
from ...state.backend import AccColumn, KeyedStateBackend
from .base import Layout, Records
from .grown import take_rows

PART = 1 << 20
"""Rows that are found again at a time."""


class KeptRows:
    """Columns of `table`: the key columns, unless they are columns of the record; the record's
    columns; its event time, if it has one. `_key_at`: which of them are the keys."""

    def __init__(
        self,
        layout: Layout,
        state: KeyedStateBackend,
        name: str = "rows",
        ordered: bool = True,
        numbers: Sequence[AccColumn] = (),
    ) -> None:
        """`ordered`: whether the order in which records of a key came is needed again. `numbers`:
        kept with each record."""
        apart = [] if layout.named else _numbered("k", layout.keys)
        fields = [*apart, *_numbered("c", layout.columns)]
        if layout.stamped:
            fields.append(pa.field("time", pa.int64()))
        self._schema = pa.schema(fields)
        self._layout = layout
        self._apart = len(apart)
        self._key_at = list(range(self._apart))
        if layout.named:
            self._key_at = [layout.columns.names.index(name) for name in layout.keys.names]
        self._end = self._apart + len(layout.columns)
        self.table = state.rows(name, self._schema, self._key_at, numbers, ordered)

    def add(
        self,
        records: Records,
        rows: Int64s | None,
        numbers: Mapping[str, Int64s] | None = None,
    ) -> Int64s:
        """Keep these records of a batch (None: all); their positions."""
        columns = self.content_of(records)
        if records.stamps is not None:
            columns.append(pa.array(records.stamps))
        data = pa.RecordBatch.from_arrays(columns, names=self._schema.names)
        if rows is not None:
            data = take_rows(data, rows)
        return self.table.add(data, numbers)

    def release(self, positions: Int64s) -> None:
        """These records, distinct, are kept no more."""
        self.table.release(positions)

    def restored(self, size: int = PART) -> Iterator[Int64s]:
        """The positions of all records, in order of arrival, at most `size` at a time."""
        positions = self.table.positions()
        for start in range(0, len(positions), size):
            yield positions[start : start + size]

    def read(self, positions: Int64s) -> tuple[pa.RecordBatch, Int64s | None]:
        """The records at these positions and their event times."""
        columns = self.columns(range(len(self._layout.columns)), positions)
        data = pa.RecordBatch.from_arrays(columns, schema=self._layout.columns)
        if not self._layout.stamped:
            return data, None
        return data, self.times(positions)

    def times(self, positions: Int64s) -> Int64s:
        """Event times at these positions; only of stamped records."""
        column = self.table.column(self._end, positions)
        times: Int64s = numpy_of(column)
        return times

    def columns(self, indices: Sequence[int], positions: Int64s) -> list[pa.Array]:
        """Some of the records' columns at these positions."""
        return self.table.columns([self._apart + i for i in indices], positions)

    def keys(self, positions: Int64s) -> list[pa.Array]:
        """The key columns at these positions."""
        return self.table.columns(self._key_at, positions)

    def content(self, positions: Int64s) -> list[pa.Array]:
        """All that tells the records at these positions apart, as `content_of` gives it."""
        return self.table.columns(range(self._end), positions)

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


def _numbered(prefix: str, schema: pa.Schema) -> list[pa.Field]:
    return [pa.field(f"{prefix}{i}", field.type) for i, field in enumerate(schema)]

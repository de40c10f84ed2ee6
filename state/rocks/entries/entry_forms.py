"""The bytes of entries in RocksDB: all of a key in one row, one behind the other.

    numbers alone               numbers of an entry, of the next one, ...
    with values, or of objects  how many entries (4 bytes) | their numbers, one entry behind the
                                other | their values, a column behind the other (`value_bytes`) |
                                the key's pickle, if keys are objects

Incremental checkpoints hold these bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ....core.arrays import Int64s
from ...away import Entries
from ...object_keys import STORED
from ...stored import AccColumn
from ..tables.value_bytes import RowReader, counted_segment, fixed_segment, joined, segments_of

_COUNT = np.dtype("<u4")


@dataclass(frozen=True)
class Owned:
    """What rows hold of their keys."""

    counts: Int64s
    """Entries of each."""
    numbers: Entries
    """Of all entries: a field for each number."""
    values: Mapping[str, pa.Array]
    """Likewise, by column of codes."""
    pickles: pa.Array | None
    """Of the keys, if these are objects."""


class EntryForm:
    """Of entries that are numbers alone, of keys that are columns."""

    def __init__(self, columns: Sequence[AccColumn], coded: Sequence[str] = ()) -> None:
        """`coded`: which columns are codes of values."""
        known = frozenset(coded)
        self.row = np.dtype([(c.name, c.dtype) for c in columns if c.name not in known])
        """What is stored of each entry as numbers."""

    def numbers_of(self, entries: Entries) -> Entries:
        """Of entries with codes what is stored as numbers."""
        if entries.dtype == self.row:
            return entries
        numbers = np.empty(len(entries), dtype=self.row)
        for name in self.row.names or ():
            numbers[name] = entries[name]
        return numbers

    def packed(
        self,
        counts: Int64s,
        numbers: Entries,
        values: Mapping[str, pa.Array],
        pickles: Sequence[bytes],
    ) -> list[bytes]:
        """Rows of so many entries each. `numbers`: of type `row`; `pickles`: one for each row, or
        none."""
        data, ends = numbers.tobytes(), np.cumsum(counts) * self.row.itemsize
        starts = ends - counts * self.row.itemsize
        return [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def numbers(self, rows: Sequence[bytes]) -> tuple[Int64s, Entries]:
        """How many entries each has, and the numbers of all."""
        lengths = np.fromiter([len(row) for row in rows], np.int64, len(rows))
        return lengths // self.row.itemsize, np.frombuffer(b"".join(rows), self.row)

    def read(self, rows: Sequence[bytes]) -> Owned:
        return Owned(*self.numbers(rows), {}, None)


class ValuedForm(EntryForm):
    """Of entries with values, or of keys that are objects."""

    def __init__(self, columns: Sequence[AccColumn], values: pa.Schema, objects: bool) -> None:
        """`values`: columns of codes, with the types of what they stand for."""
        super().__init__(columns, values.names)
        self._values = values
        self._objects = objects

    def packed(
        self,
        counts: Int64s,
        numbers: Entries,
        values: Mapping[str, pa.Array],
        pickles: Sequence[bytes],
    ) -> list[bytes]:
        segments = [fixed_segment(counts.astype(_COUNT)), counted_segment(numbers, counts)]
        for field in self._values:
            segments += segments_of(values[field.name], counts)
        if self._objects:
            segments += segments_of(pa.array(pickles, STORED))
        return joined(segments, len(counts))

    def numbers(self, rows: Sequence[bytes]) -> tuple[Int64s, Entries]:
        return self._numbers(RowReader(rows))

    def read(self, rows: Sequence[bytes]) -> Owned:
        reader = RowReader(rows)
        counts, numbers = self._numbers(reader)
        values = {field.name: reader.values(field.type, counts) for field in self._values}
        pickles = reader.values(STORED) if self._objects else None
        reader.end()
        return Owned(counts, numbers, values, pickles)

    def _numbers(self, reader: RowReader) -> tuple[Int64s, Entries]:
        counts: Int64s = reader.fixed(_COUNT).astype(np.int64)
        return counts, reader.fixed(self.row, counts)


def make_form(columns: Sequence[AccColumn], values: pa.Schema, objects: bool) -> EntryForm:
    """Of entries with these columns; see `ValuedForm`."""
    if objects or len(values):
        return ValuedForm(columns, values, objects)
    return EntryForm(columns)

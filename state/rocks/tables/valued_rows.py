"""Rows of a slot table that has values under codes: the numbers, and behind them the values.

Codes mean something in their table alone, so none is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core.arrays import Slots, numpy_of
from ...stored import AccColumn
from ...value_store import Codes, MakeStores, Values
from .slot_rows import SlotRows
from .value_bytes import RowReader, fixed_segment, has_bytes, joined, segments_of


def values_fit(values: MakeStores) -> bool:
    """Whether what the codes stand for has bytes."""
    return all(has_bytes(make().wide) for make in values.values())


def values_schema(columns: Sequence[AccColumn], values: MakeStores) -> pa.Schema:
    """The columns of codes, in their order, with the types of what they stand for."""
    return pa.schema([(c.name, values[c.name]().wide) for c in columns if c.name in values])


def new_codes(store: Values, values: pa.Array) -> Codes:
    """Codes of these values, which are put into the store; -1 for null."""
    if not values.null_count:
        return store.append(values)
    codes = np.full(len(values), -1, dtype=np.int64)
    there = np.flatnonzero(numpy_of(values.is_valid()))
    codes[there] = store.append(values.take(pa.array(there)))
    return codes


class ValuedRows(SlotRows):
    """As `SlotRows`; `values` are the columns of codes, which have values in place of numbers."""

    def __init__(
        self,
        prefix: bytes,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        width: int,
        max_parallelism: int,
        values: pa.Schema,
    ) -> None:
        super().__init__(prefix, keys, columns, width, max_parallelism)
        self.values = values
        self._fields = values
        """What a row has behind its numbers."""
        coded = frozenset(values.names)
        self._row = np.dtype([(c.name, c.dtype) for c in columns if c.name not in coded])

    def packed(
        self,
        arrays: Mapping[str, npt.NDArray[Any]],
        slots: Slots,
        values: Mapping[str, pa.Array],
    ) -> list[bytes]:
        segments = []
        if self._row.itemsize:
            rows = np.empty(len(slots), dtype=self._row)
            for name in self._row.names or ():
                rows[name] = arrays[name][slots]
            segments.append(fixed_segment(rows))
        for field in self._fields:
            segments += segments_of(values[field.name])
        return joined(segments, len(slots))

    def unpacked(self, rows: Sequence[bytes]) -> npt.NDArray[Any]:
        return RowReader(rows).fixed(self._row)

    def read(self, rows: Sequence[bytes]) -> tuple[npt.NDArray[Any], dict[str, pa.Array]]:
        reader = RowReader(rows)
        numbers = reader.fixed(self._row)
        values = {field.name: reader.values(field.type) for field in self._fields}
        reader.end()
        return numbers, {name: values[name] for name in self.values.names}

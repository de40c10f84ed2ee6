"""The three Nexmark streams as one: each kind's columns spread over the rows of all.

Rows of another kind are null as a whole, so that their fields may hold anything: fields get no
null bitmaps, and strings keep their bytes where they are, only their offsets are spread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import numpy_of
from ...core.batch import ColumnBatch
from .nexmark_schemas import ALL_SCHEMA, SCHEMAS, SLOTS

if TYPE_CHECKING:
    from .nexmark_events import EventColumns
    from .nexmark_strings import Int64s


def union(
    numbers: Int64s, names: Sequence[str], columns_of: Callable[[str, Int64s], EventColumns]
) -> ColumnBatch:
    """One batch of the events of these numbers, in their order: `event_type`, a struct column per
    kind, `dateTime`; of these, those in `names`."""
    slots = numbers % 50
    times = columns_of("bid", numbers)
    columns: dict[str, pa.Array] = {}
    if "event_type" in names:
        columns["event_type"] = pa.array((slots > 0).astype(np.int8) + (slots > 3), pa.int8())
    if "dateTime" in names:
        columns["dateTime"] = times.dateTime
    for kind, (first, last) in SLOTS.items():
        if kind in names:
            mine = (slots >= first) & (slots <= last)
            made = columns_of(kind, numbers[mine]).batch(SCHEMAS[kind].names)
            columns[kind] = spread_rows(made, mine)
    schema = pa.schema([ALL_SCHEMA.field(name) for name in names])
    batch = pa.RecordBatch.from_arrays([columns[name] for name in names], schema=schema)
    return ColumnBatch(batch, times.times)


def spread_rows(rows: pa.RecordBatch, mine: npt.NDArray[np.bool_]) -> pa.StructArray:
    """A struct per element of `mine`: the next row where it is true, else null. Columns of `rows`
    are strings or 8 bytes wide, without nulls."""
    before = np.zeros(len(mine) + 1, dtype=np.int64)
    np.cumsum(mine, out=before[1:])
    fields = [_spread(column, before) for column in rows.columns]
    return pa.StructArray.from_arrays(fields, fields=list(rows.schema), mask=pa.array(~mine))


def _spread(column: pa.Array, before: Int64s) -> pa.Array:
    """before: for each row the number of rows of this kind before it, and at the end their sum."""
    length = len(before) - 1
    _, data, *more = column.buffers()
    if pa.types.is_string(column.type):
        offsets = np.frombuffer(data, dtype=np.int32)[column.offset :][before]
        return pa.Array.from_buffers(column.type, length, [None, pa.py_buffer(offsets), *more])
    if len(column) == 0:
        values = np.zeros(length, dtype=np.int64)
    else:
        values = numpy_of(column.view(pa.int64())).take(before[:-1], mode="clip")
    return pa.Array.from_buffers(column.type, length, [None, pa.py_buffer(values)])

"""Rows put in the order of their key groups, as every snapshot has them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import numpy_of
from ..core.batch import take_table
from .key_groups import group_order
from .stored import KEY_GROUP

FEW: Final = 4096
"""Of so many rows each is looked for: that is less work than to count all groups."""

_WIDTHS: Final = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}

Places = npt.NDArray[np.int64]


def sorted_by_group(pieces: list[pa.Table]) -> pa.Table:
    """All rows of the pieces, of which there is one at least, by their KEY_GROUP (int32, no nulls);
    those of a group as they were. Takes the pieces out of the list, and lets each column go before
    it sorts the next: where nobody else holds them, all of them are never held twice."""
    data = pa.concat_tables(pieces)
    pieces.clear()
    names, columns, made = data.column_names, data.columns[::-1], list[pa.ChunkedArray]()
    schema = data.schema
    groups = numpy_of(data.column(KEY_GROUP)).astype(np.int32, copy=False)
    del data
    places: Places | None = None
    order: pa.Array | None = None
    if len(groups) > FEW:
        from .group_kernels import places_of

        places, ordered = places_of(groups)
    for name in names:
        column = columns.pop()
        if places is not None and name == KEY_GROUP:
            made.append(pa.chunked_array([pa.array(ordered)]).cast(column.type))
        elif places is not None and _is_plain(column):
            made.append(pa.chunked_array([_placed(column, places)]))
        else:
            if order is None:
                order = pa.array(group_order(groups) if places is None else _inverse(places))
            made.append(take_table(pa.table({"": column}), order).column(0))
    return pa.Table.from_arrays(made, schema=schema)


def _is_plain(column: pa.ChunkedArray) -> bool:
    """Whether its values lie one behind the other, all of one width."""
    kind = column.type
    if column.null_count:
        return False
    fixed: bool = pa.types.is_primitive(kind) and kind.bit_width in _WIDTHS
    return fixed or bool(pa.types.is_boolean(kind))


def _placed(column: pa.ChunkedArray, places: Places) -> pa.Array:
    if pa.types.is_boolean(column.type):
        flags = np.empty(len(places), np.bool_)
        flags[places] = numpy_of(column)
        return pa.array(flags)
    dtype = np.dtype(_WIDTHS[column.type.bit_width])
    out, at = np.empty(len(places), dtype), 0
    for chunk in column.chunks:
        count = len(chunk)
        if count:
            start = chunk.offset * dtype.itemsize
            values = np.frombuffer(chunk.buffers()[1], dtype, count, start)
            out[places[at : at + count]] = values
        at += count
    return pa.Array.from_buffers(column.type, len(out), [None, pa.py_buffer(out)])


def _inverse(places: Places) -> Places:
    order = np.empty_like(places)
    order[places] = np.arange(len(places), dtype=np.int64)
    return order

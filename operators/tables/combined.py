"""Partial aggregates of running groups as columns: how what was combined travels.

A partial stands for records of one group (`core.partials`). Behind the key columns it has the
group's accumulators and, of each expression whose values count once, two lists: values that this
sender has not sent yet, and the bits of the views that see each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...core.arrays import Int64s, numpy_of
from ...core.batch import take_column
from ...core.partials import PARTIAL_PREFIX
from ...state.backend import AccColumn
from ..aggregates.base import Partials
from ..columns import plain_values
from .group_parts import Seen

MOST_VIEWS = 63
"""Of one expression: their bits are an int64's, without its sign."""


def value_fields(kept: Sequence[tuple[pa.DataType, int]]) -> list[pa.Field]:
    """The columns of values and views of these expressions (`GroupParts.kept`)."""
    fields = []
    for index, (kind, views) in enumerate(kept):
        fields.append(pa.field(f"values{index}", pa.list_(kind)))
        fields.append(pa.field(f"views{index}", pa.list_(_bits(views))))
    return fields


def value_columns(
    seen: Sequence[Seen], fresh: Sequence[Int64s], groups: Int64s, count: int
) -> list[pa.Array]:
    """The values of `seen` for which a bit of `fresh` is set, by the row's group (0 to count - 1),
    and these bits."""
    columns = []
    for one, bits in zip(seen, fresh, strict=True):
        rows = np.flatnonzero(bits)
        owners = groups[rows]
        if count > 1:
            order = np.argsort(owners, kind="stable")
            rows, owners = rows[order], owners[order]
        offsets = np.zeros(count + 1, dtype=np.int32)
        np.cumsum(np.bincount(owners, minlength=count), out=offsets[1:])
        values = take_column(one.values, pa.array(rows))
        views = pa.array(bits[rows]).cast(_bits(len(one.masks)))
        at = pa.array(offsets)
        columns += [pa.ListArray.from_arrays(at, values), pa.ListArray.from_arrays(at, views)]
    return columns


def partials_of(data: pa.RecordBatch, columns: Sequence[AccColumn]) -> Partials:
    """The accumulators in a batch of partials."""
    return Partials(
        {
            column.name: plain_values(data.column(PARTIAL_PREFIX + column.name), column.dtype)
            for column in columns
        }
    )


def seen_of(
    data: pa.RecordBatch, slots: Int64s, kept: Sequence[tuple[pa.DataType, int]]
) -> list[tuple[Int64s, Seen]]:
    """Per expression the values in a batch of partials, whose groups have these slots, with the
    slot of each."""
    found = []
    for index, (_, views) in enumerate(kept):
        lists, masks = (
            data.column(f"{PARTIAL_PREFIX}{name}{index}") for name in ("values", "views")
        )
        owners = np.repeat(slots, numpy_of(lists.value_lengths()))
        bits = numpy_of(masks.flatten().cast(pa.int64()))
        seen = [(bits & (1 << view)) != 0 for view in range(views)]
        found.append((owners, Seen(lists.flatten(), seen)))
    return found


def _bits(views: int) -> pa.DataType:
    """What holds a bit of each of so many views."""
    return pa.uint8() if views <= 8 else pa.int64()

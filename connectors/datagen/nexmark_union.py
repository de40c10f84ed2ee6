"""The three Nexmark streams as one: each event is of one kind, with that kind's columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ...core.batch import ColumnBatch
from ...core.union_type import UnionType
from . import nexmark_kernels as kernels

if TYPE_CHECKING:
    from .nexmark_events import EventColumns
    from .nexmark_strings import Int64s


def union(
    numbers: Int64s, schema: pa.Schema, columns_of: Callable[[str, Int64s], EventColumns]
) -> ColumnBatch:
    """One batch of the events of these numbers, in their order, with the columns of `schema`: of
    `event` and `dateTime`."""
    times = columns_of("bid", numbers)
    columns = {"dateTime": times.dateTime}
    if "event" in schema.names:
        kind = schema.field("event").type
        assert isinstance(kind, UnionType)
        codes, places, chosen = kernels.by_kind(numbers)
        rows = []
        for name, mine in zip(kind.kinds, chosen, strict=True):
            struct = kind.rows_type(name)
            made = columns_of(name, mine)
            fields = made.columns([field.name for field in struct])
            rows.append(pa.StructArray.from_arrays(fields, fields=list(struct)))
        columns["event"] = kind.assembled(codes.view(np.int8), places, rows)
    arrays = [columns[name] for name in schema.names]
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=schema), times.times)

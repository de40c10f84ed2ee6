"""Joined records from rows of two sides, wherever each side's rows are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from ...core.arrays import Int64s
from ...core.batch import take_column
from ...core.joined_columns import NO_ROW, JoinedColumns, either
from ...core.taking import null_array


class Rows(Protocol):
    """Rows of one side: an `Arena`, or the batch at hand."""

    schema: pa.Schema

    def gather(self, rows: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        """These rows of these columns (None: of all); nulls for NO_ROW."""
        ...


class BatchRows:
    """The rows of a record batch."""

    def __init__(self, data: pa.RecordBatch) -> None:
        self.schema = data.schema
        self._data = data

    def gather(self, rows: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        chosen = range(self._data.num_columns) if columns is None else columns
        arrays = [self._data.column(at) for at in chosen]
        if not self._data.num_rows:
            return [null_array(len(rows), array.type) for array in arrays]
        if _in_a_row(rows):
            return [array.slice(rows[0], len(rows)) for array in arrays]
        missing = rows == NO_ROW
        indices = pa.array(rows, mask=missing) if missing.any() else pa.array(rows)
        return [take_column(array, indices) for array in arrays]


def _in_a_row(rows: Int64s) -> bool:
    """Whether they are successive rows: the columns need not be copied."""
    if not len(rows) or rows[0] == NO_ROW or rows[-1] - rows[0] != len(rows) - 1:
        return False
    return bool((np.diff(rows) == 1).all())


def joined(
    columns: JoinedColumns, left: Rows, left_rows: Int64s, right: Rows, right_rows: Int64s
) -> pa.RecordBatch:
    """All columns of the joined records; NO_ROW makes nulls of a side."""
    lefts = left.gather(left_rows)
    rights = right.gather(right_rows, list(columns.kept))
    present = left_rows != NO_ROW
    if columns.shared and not present.all():
        theirs = right.gather(right_rows, [other for _, other in columns.shared])
        for (mine, _), other in zip(columns.shared, theirs, strict=True):
            kind = lefts[mine].type
            lefts[mine] = either(pa.array(present), lefts[mine], other.cast(kind))
    return pa.RecordBatch.from_arrays([*lefts, *rights], schema=columns.schema)


def joined_some(
    columns: JoinedColumns,
    names: Sequence[str],
    sides: tuple[Rows, Rows],
    left_rows: Int64s,
    right_rows: Int64s,
) -> pa.RecordBatch:
    """Only these columns, of records that have both sides."""
    count = len(sides[0].schema)
    places = [columns.schema.get_field_index(name) for name in names]
    lefts = [at for at in places if at < count]
    rights = [at for at in places if at >= count]
    found = dict(zip(lefts, sides[0].gather(left_rows, lefts), strict=True))
    kept = [columns.kept[at - count] for at in rights]
    found.update(zip(rights, sides[1].gather(right_rows, kept), strict=True))
    return pa.RecordBatch.from_arrays([found[at] for at in places], names=list(names))

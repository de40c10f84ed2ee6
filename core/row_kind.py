"""Changelogs: what a record does to the table its stream describes, carried as a column.

A stream whose batches have the int8 column `ROW_KIND` is a changelog: each record inserts, retracts
or replaces a row. A batch without it only inserts. Kinds and their numbers are Flink's.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .arrays import numpy_of
from .errors import TypeMismatchError

ROW_KIND = "__row_kind"
"""Last column of a changelog batch: int8, without nulls."""

ROW_KIND_FIELD = pa.field(ROW_KIND, pa.int8(), nullable=False)


class RowKind(IntEnum):
    """`+I -U +U -D`. An UPDATE_BEFORE comes directly before its UPDATE_AFTER, if it comes at all:
    an upsert changelog has keys and leaves it out."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def symbol(self) -> str:
        return ("+I", "-U", "+U", "-D")[self]


def retracts(kinds: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """Which records take a row away (-U, -D); the others add one."""
    taken: npt.NDArray[np.bool_] = (kinds == RowKind.UPDATE_BEFORE) | (kinds == RowKind.DELETE)
    return taken


def refuse_changelog(batch: object, operator: str, what: str) -> None:
    """TypeMismatchError if a batch is one of a changelog, of which an operator would take each row
    for a record: updates would count twice. `what`: what the operator makes."""
    data = getattr(batch, "data", None)
    if isinstance(data, pa.RecordBatch) and data.schema.get_field_index(ROW_KIND) >= 0:
        raise TypeMismatchError(
            f"operator '{operator}': {what} take streams that only insert, and this one is a "
            f"changelog (it has the column {ROW_KIND}): use aggregate, top_n or deduplicate, which "
            "take it, or put this operator ahead of the one that makes the changelog"
        )


def split_kinds(data: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int8] | None]:
    """The columns without ROW_KIND, and the kinds; None for a batch that only inserts."""
    at = data.schema.get_field_index(ROW_KIND)
    if at < 0:
        return data, None
    kinds = numpy_of(data.column(at))
    names = [name for name in data.schema.names if name != ROW_KIND]
    return data.select(names), kinds.astype(np.int8, copy=False)


def with_kinds(data: pa.RecordBatch, kinds: npt.NDArray[np.int8]) -> pa.RecordBatch:
    """The columns with ROW_KIND appended."""
    arrays = [*data.columns, pa.array(kinds, pa.int8())]
    return pa.RecordBatch.from_arrays(arrays, schema=data.schema.append(ROW_KIND_FIELD))

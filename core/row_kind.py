"""Changelogs: what a record does to the table its stream describes, carried as a column.

A stream whose batches have the int8 column `ROW_KIND` is a changelog: each record inserts, retracts
or replaces a row. A batch without it only inserts. Kinds and their numbers are Flink's.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .arrays import numpy_of
from .errors import TypeMismatchError
from .row import ROW_KIND as ROW_KIND
from .row import RowKind as RowKind

ROW_KIND_FIELD = pa.field(ROW_KIND, pa.int8(), nullable=False)


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
    """The columns without ROW_KIND, and the kinds; None for a batch that only inserts.

    TypeMismatchError if one is none of the four."""
    at = data.schema.get_field_index(ROW_KIND)
    if at < 0:
        return data, None
    names = [name for name in data.schema.names if name != ROW_KIND]
    return data.select(names), _checked(data.column(at))


def _checked(column: pa.Array) -> npt.NDArray[np.int8]:
    if not pa.types.is_integer(column.type):
        raise TypeMismatchError(
            f"the column {ROW_KIND} has type {column.type}; it must be int8, of 0 (+I), 1 (-U), "
            "2 (+U) and 3 (-D)"
        )
    if column.null_count:
        raise TypeMismatchError(
            f"the column {ROW_KIND} holds a null: give each record 0 (+I), 1 (-U), 2 (+U) or 3 (-D)"
        )
    kinds = numpy_of(column)
    wrong = (kinds < RowKind.INSERT) | (kinds > RowKind.DELETE)
    if wrong.any():
        raise TypeMismatchError(
            f"the column {ROW_KIND} holds {kinds[wrong.argmax()]}, which is no kind of row: give "
            "each record 0 (+I), 1 (-U), 2 (+U) or 3 (-D)"
        )
    return kinds.astype(np.int8, copy=False)


def with_kinds(data: pa.RecordBatch, kinds: npt.NDArray[np.int8]) -> pa.RecordBatch:
    """The columns with ROW_KIND appended."""
    arrays = [*data.columns, pa.array(kinds, pa.int8())]
    return pa.RecordBatch.from_arrays(arrays, schema=data.schema.append(ROW_KIND_FIELD))

"""Arrow columns as polars frames.

polars cannot take a part of an array of fixed-size lists with nulls: it panics, because the values
behind the part do not fit its validity. Batches are cut at barriers and watermarks, by the exchange
and by operators, so any of theirs may be such a part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from .errors import TypeMismatchError
from .union_type import spread_unions

if TYPE_CHECKING:
    import polars as pl


def frame_of(data: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    """The columns, copied only where polars could not take them. TypeMismatchError names a column
    of a type that polars does not have: it panics of these, which is no Exception."""
    import polars as pl

    if isinstance(data, pa.RecordBatch):
        data = spread_unions(data)
    for at, field in enumerate(data.schema):
        if _has_fixed_lists(field.type) and _may_be_part(data.column(at)):
            rows = pa.array(np.arange(data.num_rows))
            data = data.set_column(at, field, data.column(at).take(rows))
    try:
        return pl.DataFrame(data)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _unfit(data, error) from error


def _unfit(data: pa.RecordBatch | pa.Table, error: BaseException) -> TypeMismatchError:
    import polars as pl

    for at, field in enumerate(data.schema):
        try:
            pl.DataFrame(data.slice(0, 1).select([at]))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return TypeMismatchError(
                f"polars has no type for the column '{field.name}' of {field.type} ({error}): cast "
                "it, or leave it out, where expressions or frames of polars are asked for"
            )
    return TypeMismatchError(f"polars cannot take columns of {data.schema.types} ({error})")


def _has_fixed_lists(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_fixed_lists(kind.storage_type)
    if pa.types.is_fixed_size_list(kind):
        return True
    return any(_has_fixed_lists(kind.field(i).type) for i in range(kind.num_fields))


def _may_be_part(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether values of fixed-size lists may be there that do not belong to the column's rows."""
    if not isinstance(column, pa.FixedSizeListArray) or _has_fixed_lists(column.type.value_type):
        return True
    longer: bool = len(column.values) > len(column) * column.type.list_size
    return longer and column.null_count > 0

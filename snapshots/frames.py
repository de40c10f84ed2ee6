"""What state is written from: Arrow tables, and all that can become one."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any, TypeAlias

import pyarrow as pa

from ..core.errors import ConfigurationError, StateError

Frame: TypeAlias = Any
"""An Arrow table or batch, whatever has `__arrow_c_stream__` (polars, pandas, DuckDB), a Spark
frame, or the path or fsspec URL of a Parquet file or folder."""


def table_of(data: Frame) -> pa.Table:
    """As one table. ConfigurationError for what cannot become one."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, (str, PathLike)):
        return _parquet(fspath(data))
    for method in ("to_arrow_table", "toArrow"):
        if callable(getattr(data, method, None)):
            return getattr(data, method)()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    if callable(getattr(data, "toPandas", None)):
        return pa.Table.from_pandas(data.toPandas(), preserve_index=False)
    raise ConfigurationError(
        f"state cannot be written from a {type(data).__name__}: give an Arrow table, a polars, "
        "pandas or Spark frame, or the path of a Parquet file"
    )


def column_of(table: pa.Table, name: str, state: str) -> pa.Array:
    """One column, whole. StateError if it is not there."""
    if name not in table.column_names:
        raise StateError(
            f"state '{state}': there is no column '{name}' in the data, only {table.column_names}"
        )
    column = table.column(name).combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _parquet(path: str) -> pa.Table:
    import fsspec
    import pyarrow.parquet as pq

    try:
        filesystem, place = fsspec.core.url_to_fs(path)
        return pq.read_table(place, filesystem=filesystem)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigurationError(f"'{path}' is no Parquet that can be read: {error}") from error

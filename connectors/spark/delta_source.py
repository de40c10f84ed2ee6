"""A replayable source of a Delta table: a version of it, and if wanted all that follow.

Versions do not change, so a split that is read again gives the same rows (`delta_ranges.py`), and a
checkpoint that says which splits are left says where in which version the job is. Splits are handed
out and read as those of plain Parquet are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from ...api.connectors.base import EnumeratorContext, ReaderContext, Source
from ...core.errors import ConfigurationError
from .bridge import storable
from .calls import path_told
from .delta_log import table_schema
from .delta_ranges import DeltaRead
from .options import SparkOptions, require_spark
from .parquet_source import ParquetEnumerator, ParquetReader, enumerator


class SparkDeltaSource(Source):
    """Rows of the Delta table at `path`, a folder or URL that Spark's executors reach: of its
    latest version when the job starts, of `version`, or of the one that was the latest at
    `timestamp`.

    `filter` is a Spark SQL condition. With `sort_by` the rows come in ascending order of these
    columns (ties: by file and row), else by file and row. `rows_per_second` limits all readers
    together. `schema` is needed only where the table's log is not readable from the program, or
    where there is no table yet.

    `watch`: look for new versions so often, for ever. Their rows follow those of the version
    begun with, version by version, each in the order of `sort_by`. A version that changes or
    removes rows that were there fails the job; with `skip_changes` all of it is passed over. What
    only rewrites files (OPTIMIZE) is no change. Also fatal: a version whose chosen columns have
    other types, or are others where `columns` chooses none."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        sort_by: str | Sequence[str] | None = None,
        *,
        version: int | None = None,
        timestamp: datetime | None = None,
        watch: timedelta | None = None,
        skip_changes: bool = False,
        rows_per_split: int = 65_536,
        rows_per_second: float | None = None,
        schema: pa.Schema | None = None,
        options: SparkOptions | None = None,
    ) -> None:
        require_spark()
        if rows_per_split < 1:
            raise ConfigurationError(f"rows_per_split must be at least 1, is {rows_per_split}")
        if rows_per_second is not None and rows_per_second <= 0:
            raise ConfigurationError(f"rows_per_second must be positive, is {rows_per_second}")
        if version is not None and timestamp is not None:
            raise ConfigurationError("SparkDeltaSource: give `version` or `timestamp`, not both")
        if version is not None and version < 0:
            raise ConfigurationError(f"version must not be negative, is {version}")
        if timestamp is not None and timestamp.tzinfo is None:
            raise ConfigurationError(f"timestamp: {timestamp} needs a time zone")
        if watch is not None and watch <= timedelta(0):
            raise ConfigurationError(f"watch must be positive, is {watch}")
        sort = (sort_by,) if isinstance(sort_by, str) else tuple(sort_by or ())
        self._asked = DeltaRead(
            path_told(path),
            None if columns is None else tuple(columns),
            filter,
            sort,
            rows_per_split,
            version=version,
            timestamp=timestamp,
            skip_changes=skip_changes,
        )
        self._schema = None if schema is None else storable(schema)
        self.watch_s = None if watch is None else watch.total_seconds()
        self.rows_per_second = rows_per_second
        self.options = options

    def __repr__(self) -> str:
        return f"SparkDeltaSource({self._asked.path})"

    @property
    def bounded(self) -> bool:
        return self.watch_s is None

    @property
    def schema(self) -> pa.Schema:
        if self._schema is None:
            asked = self._asked
            found = table_schema(asked.path, asked.version)
            unknown = sorted(set(asked.columns or ()) - set(found.names))
            if unknown:
                raise ConfigurationError(
                    f"no column {unknown} in '{asked.path}'; it has {found.names}"
                )
            names = found.names if asked.columns is None else asked.columns
            self._schema = pa.schema([found.field(name) for name in names])
        return self._schema

    @property
    def read(self) -> DeltaRead:
        """What the gateway is told."""
        return replace(self._asked, schema=self.schema)

    def reads_from(self) -> tuple[str, ...]:
        return (self._asked.path,)

    def create_enumerator(
        self, context: EnumeratorContext, restored: Any | None
    ) -> ParquetEnumerator:
        return enumerator(self, context, restored, "delta_")

    def create_reader(self, context: ReaderContext) -> ParquetReader:
        return ParquetReader(self, context, "delta_read")

"""PyFlink's way to write a `FileSource`: formats and a builder.

FileSource.for_record_stream_format(StreamFormat.text_line_format(), "logs")
    .monitor_continuously(Duration.of_seconds(5)).build()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

import pyarrow as pa

from ...api.types.durations import to_timedelta
from ...api.types.type_info import TypeInfo
from ...core.errors import ConfigurationError
from .csv_schema import CsvSchema
from .formats import SourceFormat


@dataclass(frozen=True)
class StreamFormat:
    """A format of which a whole file is one split. charset: of text. csv: how CSV is told apart, if
    not as by default."""

    format: SourceFormat
    schema: Any = None
    charset: str = "UTF-8"
    csv: CsvSchema | None = None

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """The lines of text files, as strings."""
        return StreamFormat("text", charset=charset_name)


class CsvReaderFormat:
    """CSV."""

    @staticmethod
    def for_schema(schema: Any) -> StreamFormat:
        """schema: a `CsvSchema`; or whatever declares a row type, for files with a header line."""
        if isinstance(schema, CsvSchema):
            return StreamFormat("csv", csv=schema)
        return StreamFormat("csv", schema)


class JsonLinesFormat:
    """One JSON object per line."""

    @staticmethod
    def for_schema(schema: Any) -> StreamFormat:
        """schema: whatever declares a row type."""
        return StreamFormat("jsonl", schema)


@dataclass(frozen=True)
class BulkFormat:
    """A format that is read in batches, by row groups."""

    format: SourceFormat
    schema: Any = None


class ParquetColumnarRowInputFormat(BulkFormat):
    """Parquet. row_type: the columns to read; None: all; a first argument that declares them is
    taken for it. The others are PyFlink's, and have no say here: batches have the job's size, and
    times are as the file has them."""

    def __init__(
        self,
        hadoop_config: Any = None,
        row_type: Any = None,
        batch_size: int | None = None,
        is_utc_timestamp: bool = True,
        is_case_sensitive: bool = True,
    ) -> None:
        if not is_case_sensitive:
            raise ConfigurationError(
                "ParquetColumnarRowInputFormat: columns' names are case-sensitive: give them as "
                "they are in the files"
            )
        if row_type is None and isinstance(hadoop_config, (TypeInfo, pa.Schema, Mapping, type)):
            row_type = hadoop_config
        super().__init__("parquet", row_type)


Made = TypeVar("Made")


class FileSourceBuilder(Generic[Made]):
    """Made by `FileSource.for_record_stream_format` and `for_bulk_file_format`."""

    def __init__(
        self,
        make: Callable[..., Made],
        format: StreamFormat | BulkFormat,
        paths: Sequence[str | os.PathLike[str]],
    ) -> None:
        """`make`: a FileSource of its arguments."""
        if not isinstance(format, (StreamFormat, BulkFormat)):
            raise ConfigurationError(
                "a FileSource's format must be a StreamFormat, such as "
                "StreamFormat.text_line_format(), or a BulkFormat, such as "
                f"ParquetColumnarRowInputFormat(...), is {type(format).__name__}"
            )
        self._make = make
        self._format = format
        self._paths = list(paths)
        self._interval: timedelta | None = None

    def monitor_continuously(
        self, discovery_interval: timedelta | float
    ) -> FileSourceBuilder[Made]:
        """Watch the paths for new files, so often; the source never ends."""
        self._interval = to_timedelta(discovery_interval, "the discovery interval")
        return self

    def process_static_file_set(self) -> FileSourceBuilder[Made]:
        """Read the files that are there when the job starts; the default."""
        self._interval = None
        return self

    def build(self) -> Made:
        return self._make(
            self._paths,
            self._format.format,
            schema=self._format.schema,
            monitor_interval=self._interval,
            charset=getattr(self._format, "charset", "UTF-8"),
            csv_schema=getattr(self._format, "csv", None),
        )

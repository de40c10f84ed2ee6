"""What `FileSink.for_row_format` and `for_bulk_format` write files with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from ...core.batch import Batch, ColumnBatch
from ...core.checks import known_charset
from ...core.errors import ConfigurationError, ConnectorError
from .csv_schema import CsvSchema
from .formats import FormatName


class Encoder(ABC):
    """Makes bytes of records, one after the other; a row file is nothing but these."""

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """One record, with whatever ends it."""

    def encode_batch(self, values: Sequence[Any]) -> bytes:
        """Several; to be overridden where that is faster than one by one."""
        return b"".join([self.encode(value) for value in values])

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """`str(record)` and a newline. A record of one column is the column's value."""
        charset = known_charset(charset_name)
        if "".encode(charset):
            raise ConfigurationError(
                f"the charset '{charset_name}' begins every piece of text with a byte order mark, "
                "which would be in the middle of files: name the order, as in UTF-16LE"
            )
        return SimpleStringEncoder(charset)


@dataclass(frozen=True)
class SimpleStringEncoder(Encoder):
    charset: str

    def encode(self, value: Any) -> bytes:
        return f"{value}\n".encode(self.charset)

    def encode_batch(self, values: Sequence[Any]) -> bytes:
        return "".join([f"{value}\n" for value in values]).encode(self.charset)


class RowFile:
    """One open file of a row format."""

    suffix = "rows"

    def __init__(self, file: IO[bytes], encoder: Encoder) -> None:
        self.file = file
        self._encoder = encoder

    def write(self, batch: Batch) -> None:
        if isinstance(batch, ColumnBatch) and batch.data.num_columns == 1:
            values: Sequence[Any] = batch.data.column(0).to_pylist()
        else:
            values = batch.rows()
        encoded = self._encoder.encode_batch(values)
        if not isinstance(encoded, bytes):
            raise ConnectorError(
                f"the encoder {type(self._encoder).__name__} of a FileSink returned "
                f"{type(encoded).__name__}, not bytes"
            )
        self.file.write(encoded)

    def finish(self) -> None:
        """Nothing is left."""

    def abandon(self) -> None:
        """Nothing is left."""

    @property
    def size(self) -> int:
        return int(self.file.tell())


@dataclass(frozen=True)
class BulkWriterFactory:
    """A format that collects records. schema: whatever declares a row type; None: the columns of
    the first batch. compression: of Parquet. csv: how CSV is told apart, if not as by default.
    avro: the schema of Avro files, as JSON text."""

    format: FormatName
    schema: Any = None
    compression: str = "zstd"
    csv: CsvSchema | None = None
    avro: str | None = None


class ParquetBulkWriters:
    @staticmethod
    def for_row_type(
        row_type: Any,
        hadoop_config: Any = None,
        utc_timestamp: bool = False,
        *,
        compression: str = "zstd",
    ) -> BulkWriterFactory:
        """hadoop_config and utc_timestamp are PyFlink's, and have no say here: times are written as
        the columns have them. A second argument that is text is taken for the compression."""
        if isinstance(hadoop_config, str):
            compression = hadoop_config
        return BulkWriterFactory("parquet", row_type, compression)


class CsvBulkWriters:
    @staticmethod
    def for_schema(schema: Any) -> BulkWriterFactory:
        """schema: a `CsvSchema`; or whatever declares a row type, for files with a header line."""
        if isinstance(schema, CsvSchema):
            return BulkWriterFactory("csv", schema.schema, csv=schema)
        return BulkWriterFactory("csv", schema)


CsvBulkWriter = CsvBulkWriters
"""PyFlink's name."""


class JsonLinesBulkWriters:
    @staticmethod
    def for_schema(schema: Any) -> BulkWriterFactory:
        """One JSON object per line."""
        return BulkWriterFactory("jsonl", schema)

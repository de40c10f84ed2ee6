"""Files as sources and exactly-once sinks: Parquet, CSV, JSON Lines, Avro, text and whatever an
`Encoder` writes, on any fsspec filesystem."""

from .avro import AvroParquetReaders, AvroParquetWriters, AvroSchema, AvroWriters
from .buckets import BucketAssigner
from .compaction import FileCompactor, FileCompactStrategy
from .csv_schema import CsvSchema, CsvSchemaBuilder
from .rolling import OutputFileConfig, RollingPolicy
from .row_formats import (
    BulkWriterFactory,
    CsvBulkWriter,
    CsvBulkWriters,
    Encoder,
    JsonLinesBulkWriters,
    ParquetBulkWriters,
)
from .sink import FileSink, ParquetSink
from .source import FileSource
from .source_builder import (
    BulkFormat,
    CsvReaderFormat,
    JsonLinesFormat,
    ParquetColumnarRowInputFormat,
    StreamFormat,
)

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "AvroSchema",
    "AvroWriters",
    "BucketAssigner",
    "BulkFormat",
    "BulkWriterFactory",
    "CsvBulkWriter",
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvSchema",
    "CsvSchemaBuilder",
    "Encoder",
    "FileCompactStrategy",
    "FileCompactor",
    "FileSink",
    "FileSource",
    "JsonLinesBulkWriters",
    "JsonLinesFormat",
    "OutputFileConfig",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
    "ParquetSink",
    "RollingPolicy",
    "StreamFormat",
]

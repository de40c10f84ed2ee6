"""The names of `pyflink.datastream.formats`, which load their modules on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazy_names

if TYPE_CHECKING:
    from .avro import (
        AvroRowDeserializationSchema as AvroRowDeserializationSchema,
        AvroRowSerializationSchema as AvroRowSerializationSchema,
        AvroSchema as AvroSchema,
        AvroWriters as AvroWriters,
    )
    from .csv import (
        CsvBulkWriters as CsvBulkWriters,
        CsvReaderFormat as CsvReaderFormat,
        CsvRowDeserializationSchema as CsvRowDeserializationSchema,
        CsvRowSerializationSchema as CsvRowSerializationSchema,
        CsvSchema as CsvSchema,
        CsvSchemaBuilder as CsvSchemaBuilder,
    )
    from .json import (
        JsonRowDeserializationSchema as JsonRowDeserializationSchema,
        JsonRowSerializationSchema as JsonRowSerializationSchema,
    )
    from .parquet import (
        AvroParquetReaders as AvroParquetReaders,
        AvroParquetWriters as AvroParquetWriters,
        ParquetBulkWriters as ParquetBulkWriters,
        ParquetColumnarRowInputFormat as ParquetColumnarRowInputFormat,
    )

_NAMES = {
    "avro": "AvroRowDeserializationSchema AvroRowSerializationSchema AvroSchema AvroWriters",
    "csv": (
        "CsvBulkWriters CsvReaderFormat CsvRowDeserializationSchema CsvRowSerializationSchema "
        "CsvSchema CsvSchemaBuilder"
    ),
    "json": "JsonRowDeserializationSchema JsonRowSerializationSchema",
    "parquet": (
        "AvroParquetReaders AvroParquetWriters ParquetBulkWriters ParquetColumnarRowInputFormat"
    ),
}

__all__, __getattr__ = lazy_names(__name__, _NAMES)

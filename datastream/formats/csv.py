"""The names of `pyflink.datastream.formats.csv`."""

from ...connectors.files import (
    CsvBulkWriters as CsvBulkWriters,
    CsvReaderFormat as CsvReaderFormat,
    CsvSchema as CsvSchema,
    CsvSchemaBuilder as CsvSchemaBuilder,
)
from ...connectors.kafka import (
    CsvRowDeserializationSchema as CsvRowDeserializationSchema,
    CsvRowSerializationSchema as CsvRowSerializationSchema,
)

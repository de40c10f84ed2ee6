"""The names of `pyflink.datastream.formats.parquet`."""

from ...connectors.files import (
    AvroParquetReaders as AvroParquetReaders,
    AvroParquetWriters as AvroParquetWriters,
    ParquetBulkWriters as ParquetBulkWriters,
    ParquetColumnarRowInputFormat as ParquetColumnarRowInputFormat,
)

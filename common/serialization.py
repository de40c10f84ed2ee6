"""The names of `pyflink.common.serialization`."""

from ..connectors.files import BulkWriterFactory as BulkWriterFactory, Encoder as Encoder
from ..connectors.kafka import (
    ByteArraySchema as ByteArraySchema,
    DeserializationSchema as DeserializationSchema,
    RowFieldExtractorSchema as RowFieldExtractorSchema,
    SerializationSchema as SerializationSchema,
    SimpleStringSchema as SimpleStringSchema,
)

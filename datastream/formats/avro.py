"""The names of `pyflink.datastream.formats.avro`."""

from ...connectors.files import AvroSchema as AvroSchema, AvroWriters as AvroWriters
from ...connectors.kafka import (
    AvroRowDeserializationSchema as AvroRowDeserializationSchema,
    AvroRowSerializationSchema as AvroRowSerializationSchema,
)

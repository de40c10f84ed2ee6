"""The names of `pyflink.datastream.formats.json`."""

from ...connectors.kafka import (
    JsonRowDeserializationSchema as JsonRowDeserializationSchema,
    JsonRowSerializationSchema as JsonRowSerializationSchema,
)

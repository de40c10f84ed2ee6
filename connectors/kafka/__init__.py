"""Kafka in columns: a replayable source; a sink, exactly once by transactions. Needs
`pip install 'strom[kafka]'`.

Nothing here imports a Kafka client before it is used.
"""

from ..csv_text import CsvDialect
from .csv_format import CsvEncoder, CsvFormat
from .csv_schemas import CsvRowDeserializationSchema, CsvRowSerializationSchema
from .formats import AvroFormat, BytesFormat, Decoded, Format, JsonFormat, StringFormat
from .offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from .schemas import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    ByteArraySchema,
    DeserializationSchema,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
    RowFieldExtractorSchema,
    SerializationSchema,
    SimpleStringSchema,
)
from .serialization import AvroEncoder, Encoder, JsonEncoder, RawEncoder, StringEncoder
from .sink import KafkaSink
from .sink_builder import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaSinkBuilder,
    KafkaTopicSelector,
)
from .source import KafkaSource
from .source_builder import KafkaSourceBuilder

__all__ = [
    "AvroEncoder",
    "AvroFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "ByteArraySchema",
    "BytesFormat",
    "CsvDialect",
    "CsvEncoder",
    "CsvFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "Decoded",
    "DeliveryGuarantee",
    "DeserializationSchema",
    "Encoder",
    "Format",
    "JsonEncoder",
    "JsonFormat",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
    "RawEncoder",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
    "StringEncoder",
    "StringFormat",
]

"""The names of `pyflink.datastream.connectors.kafka`."""

from ...connectors.kafka import (
    KafkaOffsetResetStrategy as KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer as KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema as KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder as KafkaRecordSerializationSchemaBuilder,
    KafkaSink as KafkaSink,
    KafkaSinkBuilder as KafkaSinkBuilder,
    KafkaSource as KafkaSource,
    KafkaSourceBuilder as KafkaSourceBuilder,
    KafkaTopicPartition as KafkaTopicPartition,
    KafkaTopicSelector as KafkaTopicSelector,
)

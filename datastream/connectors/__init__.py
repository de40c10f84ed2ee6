"""The names of `pyflink.datastream.connectors`, which load their modules on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazy_names

if TYPE_CHECKING:
    from .base import (
        DeliveryGuarantee as DeliveryGuarantee,
        Sink as Sink,
        Source as Source,
    )
    from .file_system import (
        BucketAssigner as BucketAssigner,
        BulkFormat as BulkFormat,
        BulkWriterFactory as BulkWriterFactory,
        FileCompactor as FileCompactor,
        FileCompactStrategy as FileCompactStrategy,
        FileSink as FileSink,
        FileSource as FileSource,
        OutputFileConfig as OutputFileConfig,
        RollingPolicy as RollingPolicy,
        StreamFormat as StreamFormat,
    )
    from .hybrid_source import (
        HybridSource as HybridSource,
        HybridSourceBuilder as HybridSourceBuilder,
    )
    from .kafka import (
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
    from .number_seq import NumberSequenceSource as NumberSequenceSource

_NAMES = {
    "base": "DeliveryGuarantee Sink Source",
    "file_system": (
        "BucketAssigner BulkFormat BulkWriterFactory FileCompactStrategy FileCompactor FileSink "
        "FileSource OutputFileConfig RollingPolicy StreamFormat"
    ),
    "hybrid_source": "HybridSource HybridSourceBuilder",
    "kafka": (
        "KafkaOffsetResetStrategy KafkaOffsetsInitializer KafkaRecordSerializationSchema "
        "KafkaRecordSerializationSchemaBuilder KafkaSink KafkaSinkBuilder KafkaSource "
        "KafkaSourceBuilder KafkaTopicPartition KafkaTopicSelector"
    ),
    "number_seq": "NumberSequenceSource",
}

__all__, __getattr__ = lazy_names(__name__, _NAMES)

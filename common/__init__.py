"""The names of `pyflink.common`, which load their modules on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy_names

if TYPE_CHECKING:
    from .completable_future import CompletableFuture as CompletableFuture
    from .config_options import ConfigOption as ConfigOption, ConfigOptions as ConfigOptions
    from .configuration import Configuration as Configuration
    from .execution_config import ExecutionConfig as ExecutionConfig
    from .job_client import JobClient as JobClient
    from .job_execution_result import JobExecutionResult as JobExecutionResult
    from .job_id import JobID as JobID
    from .job_status import JobStatus as JobStatus
    from .restart_strategy import (
        RestartStrategies as RestartStrategies,
        RestartStrategyConfiguration as RestartStrategyConfiguration,
    )
    from .serialization import (
        BulkWriterFactory as BulkWriterFactory,
        ByteArraySchema as ByteArraySchema,
        DeserializationSchema as DeserializationSchema,
        Encoder as Encoder,
        RowFieldExtractorSchema as RowFieldExtractorSchema,
        SerializationSchema as SerializationSchema,
        SimpleStringSchema as SimpleStringSchema,
    )
    from .time import Duration as Duration, Instant as Instant, Time as Time
    from .typeinfo import (
        BasicArrayTypeInfo as BasicArrayTypeInfo,
        BasicType as BasicType,
        BasicTypeInfo as BasicTypeInfo,
        DateTypeInfo as DateTypeInfo,
        InstantTypeInfo as InstantTypeInfo,
        ListTypeInfo as ListTypeInfo,
        MapTypeInfo as MapTypeInfo,
        ObjectArrayTypeInfo as ObjectArrayTypeInfo,
        PickledBytesTypeInfo as PickledBytesTypeInfo,
        PrimitiveArrayTypeInfo as PrimitiveArrayTypeInfo,
        RowTypeInfo as RowTypeInfo,
        SqlTimeTypeInfo as SqlTimeTypeInfo,
        TimestampTypeInfo as TimestampTypeInfo,
        TimeTypeInfo as TimeTypeInfo,
        TupleTypeInfo as TupleTypeInfo,
        TypeInformation as TypeInformation,
        Types as Types,
    )
    from .types import Row as Row, RowKind as RowKind
    from .watermark_strategy import (
        TimestampAssigner as TimestampAssigner,
        WatermarkStrategy as WatermarkStrategy,
    )

_NAMES = {
    "completable_future": "CompletableFuture",
    "config_options": "ConfigOption ConfigOptions",
    "configuration": "Configuration",
    "execution_config": "ExecutionConfig",
    "job_client": "JobClient",
    "job_execution_result": "JobExecutionResult",
    "job_id": "JobID",
    "job_status": "JobStatus",
    "restart_strategy": "RestartStrategies RestartStrategyConfiguration",
    "serialization": (
        "BulkWriterFactory ByteArraySchema DeserializationSchema Encoder RowFieldExtractorSchema "
        "SerializationSchema SimpleStringSchema"
    ),
    "time": "Duration Instant Time",
    "typeinfo": (
        "BasicArrayTypeInfo BasicType BasicTypeInfo DateTypeInfo InstantTypeInfo ListTypeInfo "
        "MapTypeInfo ObjectArrayTypeInfo PickledBytesTypeInfo PrimitiveArrayTypeInfo RowTypeInfo "
        "SqlTimeTypeInfo TimeTypeInfo TimestampTypeInfo TupleTypeInfo TypeInformation Types"
    ),
    "types": "Row RowKind",
    "watermark_strategy": "TimestampAssigner WatermarkStrategy",
}

__all__, __getattr__ = lazy_names(__name__, _NAMES)

"""Spark inside Ray, through RayDP: Parquet, Delta and Kafka in and out, and the bridge between
Spark's frames and streams.

Needs `pip install 'strom[spark]'` and a Java 17 (or 11, or 8). Nothing here imports Spark before it
is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .delta_sink import SparkDeltaSink
from .delta_source import SparkDeltaSource
from .java import prepare_environment, spark_environment
from .kafka_sink import SparkKafkaSink
from .kafka_source import SparkKafkaSource
from .options import SparkOptions
from .parquet_sink import SparkParquetSink
from .parquet_source import SparkParquetSource
from .session import get_or_start_gateway, spark_session, start_spark, stop_spark

if TYPE_CHECKING:
    from .frames import (
        from_dataframe,
        from_streaming_dataframe,
        to_dataframe,
        to_streaming_dataframe,
        write_spark_table,
    )
    from .packages import DELTA_SETTINGS, delta_jars, kafka_jars

__all__ = [
    "DELTA_SETTINGS",
    "SparkDeltaSink",
    "SparkDeltaSource",
    "SparkKafkaSink",
    "SparkKafkaSource",
    "SparkOptions",
    "SparkParquetSink",
    "SparkParquetSource",
    "delta_jars",
    "from_dataframe",
    "from_streaming_dataframe",
    "get_or_start_gateway",
    "kafka_jars",
    "prepare_environment",
    "spark_environment",
    "spark_session",
    "start_spark",
    "stop_spark",
    "to_dataframe",
    "to_streaming_dataframe",
    "write_spark_table",
]


def __getattr__(name: str) -> Any:
    """The bridge knows streams, which tasks that read through Spark need not load; what finds jars
    is made of this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import frames, packages

    return getattr(packages if hasattr(packages, name) else frames, name)

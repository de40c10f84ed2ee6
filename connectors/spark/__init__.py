"""Spark inside Ray, through RayDP: Parquet in, Parquet out, exactly once.

Needs `pip install 'strom[spark]'` and a Java 17 (or 11, or 8); runs on the Ray host. Nothing here
imports Spark before it is used.
"""

from .java import prepare_environment, spark_environment
from .options import SparkOptions
from .parquet_sink import SparkParquetSink
from .parquet_source import SparkParquetSource
from .session import get_or_start_gateway, spark_session, start_spark, stop_spark

__all__ = [
    "SparkOptions",
    "SparkParquetSink",
    "SparkParquetSource",
    "get_or_start_gateway",
    "prepare_environment",
    "spark_environment",
    "spark_session",
    "start_spark",
    "stop_spark",
]

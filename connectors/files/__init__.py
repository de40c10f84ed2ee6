"""Files as sources and exactly-once sinks: Parquet, CSV, JSON Lines on any fsspec filesystem."""

from .sink import FileSink, ParquetSink
from .source import FileSource

__all__ = ["FileSink", "FileSource", "ParquetSink"]

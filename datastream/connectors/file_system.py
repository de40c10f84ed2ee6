"""The names of `pyflink.datastream.connectors.file_system`."""

from ...connectors.files import (
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

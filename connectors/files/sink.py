"""`FileSink`, `ParquetSink`: exactly-once files.

    write        -> staged file, rolled when it is large or old
    barrier n    -> staged files are closed (beside the stream) and become committables of n
    n complete   -> renamed to `part-...`; readers of the folder see whole files of completed
                    checkpoints only
A checkpoint without records makes no file, and no file spans two checkpoints. How names are made
and leftovers removed: `staging`; how files are merged before they are published: `compaction`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from ...api.connectors.base import OutputClaim, Sink, WriterContext
from ...api.types.type_info import schema_of
from .buckets import BucketAssigner
from .compaction import FileCompactor, FileCompactStrategy
from .formats import FormatName
from .owners import Owners
from .paths import absolute
from .rolling import OutputFileConfig, RollingPolicy, interval_ms
from .row_formats import BulkWriterFactory, Encoder
from .sink_builder import FileSinkBuilder
from .sink_config import FileSinkConfig
from .writer import FileSinkWriter


class FileSink(Sink):
    """Part files in a folder of any fsspec filesystem, published when their checkpoint completes.

    If the job has to go back to an older checkpoint, because later ones are damaged, the files of
    those are removed; a sink that compacts cannot do that (`revocable`), for merged files hold
    records of several checkpoints.

    schema: columns of the files (anything that declares a row type); object records are turned
        into it. None: that of the first batch of each subtask. partition_by: columns that become
        `name=value` folders instead.
    roll_*: a file that reaches any of them is closed and a next one started, within a checkpoint:
        rows, bytes, age, and time since its last record (a timedelta or ms).
    compact: merge small files before they are published; how is `compactor`'s, by default by
        records.
    take_over: write to the folder even if it is another job's that is not known to be over, which
        is refused from then on; and even if what this job is going to publish again was published
        by a job that has finished, which is taken back, or if the sink compacts, published twice.
    """

    independent_writers = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: FormatName = "parquet",
        schema: Any = None,
        partition_by: Sequence[str] = (),
        roll_rows: int = 10_000_000,
        roll_bytes: int = 256 << 20,
        compression: str = "zstd",
        storage_options: Mapping[str, Any] | None = None,
        *,
        roll_interval: timedelta | float | None = None,
        roll_inactivity: timedelta | float | None = None,
        bucket_assigner: BucketAssigner | None = None,
        output_file_config: OutputFileConfig | None = None,
        compact: FileCompactStrategy | None = None,
        compactor: FileCompactor | None = None,
        take_over: bool = False,
    ) -> None:
        rolling = RollingPolicy(
            roll_rows,
            roll_bytes,
            None if roll_interval is None else interval_ms(roll_interval, "roll_interval"),
            None if roll_inactivity is None else interval_ms(roll_inactivity, "roll_inactivity"),
        )
        self._configure(
            FileSinkConfig(
                absolute(path),
                format,
                schema_of(schema),
                tuple(partition_by),
                rolling,
                compression,
                storage_options,
                buckets=bucket_assigner,
                names=output_file_config or OutputFileConfig(),
                compact=compact,
                compactor=compactor,
                take_over=take_over,
            )
        )

    @classmethod
    def of(cls, config: FileSinkConfig) -> FileSink:
        """The sink of a configuration that a builder made."""
        made = cls.__new__(cls)
        made._configure(config)
        return made

    @staticmethod
    def for_row_format(
        base_path: str | os.PathLike[str], encoder: Encoder
    ) -> FileSinkBuilder[FileSink]:
        """PyFlink's builder of a sink that writes records one after the other."""
        return FileSinkBuilder.for_rows(FileSink.of, base_path, encoder)

    @staticmethod
    def for_bulk_format(
        base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory
    ) -> FileSinkBuilder[FileSink]:
        """PyFlink's builder of a sink that collects records: Parquet, CSV, JSON Lines."""
        return FileSinkBuilder.for_bulk(FileSink.of, base_path, writer_factory)

    def create_writer(self, context: WriterContext) -> FileSinkWriter:
        return FileSinkWriter(self.config, context)

    def take_over(self, claim: OutputClaim) -> Sequence[str]:
        return self._owners().take(claim, self.config.take_over, self.revocable)

    def release(self, claim: OutputClaim, status: str) -> None:
        self._owners().release(claim, status)

    def _owners(self) -> Owners:
        return Owners(self.config.path, self.config.options)

    def _configure(self, config: FileSinkConfig) -> None:
        self.config = config
        self.revocable = config.compact is None


class ParquetSink(FileSink):
    """A `FileSink` of Parquet files."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Any = None,
        partition_by: Sequence[str] = (),
        roll_rows: int = 10_000_000,
        roll_bytes: int = 256 << 20,
        compression: str = "zstd",
        storage_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """options: the others of `FileSink`, from `roll_interval` on."""
        super().__init__(
            path,
            "parquet",
            schema,
            partition_by,
            roll_rows,
            roll_bytes,
            compression,
            storage_options,
            **options,
        )

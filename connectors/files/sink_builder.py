"""PyFlink's way to write a `FileSink`.

FileSink.for_row_format("out", Encoder.simple_string_encoder())
    .with_rolling_policy(RollingPolicy.default_rolling_policy())
    .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Generic, TypeVar

from ...api.types.type_info import schema_of
from ...core.errors import ConfigurationError
from .buckets import BucketAssigner
from .compaction import FileCompactor, FileCompactStrategy
from .paths import absolute
from .rolling import OutputFileConfig, RollingPolicy, interval_ms
from .row_formats import BulkWriterFactory, Encoder
from .sink_config import CHECK_MS, ROW, FileSinkConfig

Made = TypeVar("Made")


class FileSinkBuilder(Generic[Made]):
    """Made by `FileSink.for_row_format` and `for_bulk_format`. Unless told otherwise, as Flink: a
    folder for each hour, row formats with the default rolling policy, bulk formats with a file for
    each checkpoint."""

    def __init__(self, make: Callable[[FileSinkConfig], Made], config: FileSinkConfig) -> None:
        """`make`: the sink of a configuration."""
        self._make = make
        self._config = config

    @classmethod
    def for_rows(
        cls,
        make: Callable[[FileSinkConfig], Made],
        base_path: str | os.PathLike[str],
        encoder: Any,
    ) -> FileSinkBuilder[Made]:
        if not isinstance(encoder, Encoder):
            raise ConfigurationError(
                "FileSink.for_row_format takes an Encoder, such as "
                f"Encoder.simple_string_encoder(), is {type(encoder).__name__}"
            )
        rolling = RollingPolicy.default_rolling_policy()
        return cls(make, _config(base_path, ROW, rolling, encoder=encoder))

    @classmethod
    def for_bulk(
        cls,
        make: Callable[[FileSinkConfig], Made],
        base_path: str | os.PathLike[str],
        writer_factory: Any,
    ) -> FileSinkBuilder[Made]:
        if not isinstance(writer_factory, BulkWriterFactory):
            raise ConfigurationError(
                "FileSink.for_bulk_format takes a BulkWriterFactory, such as "
                f"ParquetBulkWriters.for_row_type(...), is {type(writer_factory).__name__}"
            )
        rolling = RollingPolicy.on_checkpoint_rolling_policy()
        schema = schema_of(writer_factory.schema)
        made = _config(base_path, "parquet", rolling)
        factory: BulkWriterFactory = writer_factory
        return cls(
            make,
            replace(
                made,
                format=factory.format,
                schema=schema,
                compression=factory.compression,
                csv=factory.csv,
                avro=factory.avro,
            ),
        )

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> FileSinkBuilder[Made]:
        return self._with(rolling=rolling_policy)

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> FileSinkBuilder[Made]:
        return self._with(buckets=bucket_assigner)

    def with_output_file_config(
        self, output_file_config: OutputFileConfig
    ) -> FileSinkBuilder[Made]:
        return self._with(names=output_file_config)

    def with_bucket_check_interval(self, interval: timedelta | float) -> FileSinkBuilder[Made]:
        """How often files are looked for that are to be closed for their age: a timedelta or ms."""
        return self._with(check_ms=interval_ms(interval, "the bucket check interval"))

    def enable_compact(
        self, strategy: FileCompactStrategy, compactor: FileCompactor
    ) -> FileSinkBuilder[Made]:
        """Merge small files before they are published."""
        return self._with(compact=strategy, compactor=compactor)

    def disable_compact(self) -> FileSinkBuilder[Made]:
        """The default."""
        return self._with(compact=None, compactor=None)

    def with_take_over(self) -> FileSinkBuilder[Made]:
        """`FileSink(take_over=True)`; strom's own."""
        return self._with(take_over=True)

    def build(self) -> Made:
        return self._make(self._config)

    def _with(self, **changes: Any) -> FileSinkBuilder[Made]:
        self._config = replace(self._config, **changes)
        return self


def _config(
    base_path: str | os.PathLike[str],
    format: str,
    rolling: RollingPolicy,
    encoder: Encoder | None = None,
) -> FileSinkConfig:
    return FileSinkConfig(
        absolute(base_path),
        format,
        None,
        (),
        rolling,
        "zstd",
        None,
        encoder=encoder,
        buckets=BucketAssigner.date_time_bucket_assigner(),
        check_ms=CHECK_MS,
    )

"""A stream as a Spark frame. The bridge itself is a connector, which the package's root registers:
nothing here depends on Spark, or on how its files are written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ...core.errors import ConfigurationError

if TYPE_CHECKING:
    from .settings import DataStreamSink

Folder = str | os.PathLike[str]


class FrameBridge(Protocol):
    """What leads from a stream to Spark; each takes the stream first. See `SparkFrames`."""

    def to_dataframe(
        self,
        stream: Any,
        spark: Any,
        folder: Folder | None = None,
        *,
        schema: Any = None,
        job_name: str | None = None,
    ) -> Any: ...

    def to_streaming_dataframe(
        self,
        stream: Any,
        spark: Any,
        folder: Folder,
        *,
        schema: Any = None,
        read_options: Mapping[str, str] | None = None,
    ) -> Any: ...

    def write_spark_table(
        self,
        stream: Any,
        spark: Any,
        table: str,
        folder: Folder,
        *,
        partition_by: Sequence[str] = (),
        schema: Any = None,
    ) -> DataStreamSink: ...


_bridges: list[Callable[[], FrameBridge]] = []


def register_frame_bridge(load: Callable[[], FrameBridge]) -> None:
    """Make `load()` the bridge, called at each use; replaces an earlier one."""
    _bridges[:] = [load]


def _bridge() -> FrameBridge:
    if not _bridges:
        raise ConfigurationError("no bridge to Spark is registered: import strom, not its parts")
    return _bridges[0]()


class SparkFrames:
    """The part of DataStream that ends in a Spark session: `spark` is any of this program. The
    folders must be visible to both sides. All need `pip install 'strom[spark]'`."""

    def to_dataframe(
        self,
        spark: Any,
        folder: Folder | None = None,
        *,
        schema: Any = None,
        job_name: str | None = None,
    ) -> Any:
        """Run the job, and return the records of this stream, which is bounded, as a frame of the
        Spark session. All other sinks of the environment run with it.

        `folder`: new or empty; it keeps the records, and None is a temporary one, removed when the
        program ends. `schema`: of records that are Python objects without a declared type. Raises
        ConfigurationError for a folder that is not empty."""
        return _bridge().to_dataframe(self, spark, folder, schema=schema, job_name=job_name)

    def to_streaming_dataframe(
        self,
        spark: Any,
        folder: Folder,
        *,
        schema: Any = None,
        read_options: Mapping[str, str] | None = None,
    ) -> Any:
        """A streaming frame of the Spark session, of what this stream writes into `folder`: each
        record exactly once, when its checkpoint is complete. Run the job beside it
        (`execute_async`). Raises ConfigurationError if the columns are not known before it runs."""
        return _bridge().to_streaming_dataframe(
            self, spark, folder, schema=schema, read_options=read_options
        )

    def write_spark_table(
        self,
        spark: Any,
        table: str,
        folder: Folder,
        *,
        partition_by: Sequence[str] = (),
        schema: Any = None,
    ) -> DataStreamSink:
        """End the stream in a table of Spark's catalog, exactly once: Parquet files in `folder`,
        which appear when a checkpoint is complete. The table is made now if there is none of that
        name. Raises ConfigurationError if it has other columns or another place."""
        return _bridge().write_spark_table(
            self, spark, table, folder, partition_by=partition_by, schema=schema
        )

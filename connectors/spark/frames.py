"""The bridge: Spark frames as streams, and streams as Spark frames, in one program.

In: rows go through a spool (`spool.py`), durable before Spark commits them, so that a frame of any
source is read exactly once, whatever of the two sides fails and comes back.
Out: the stream ends in an exactly-once Parquet sink, and Spark reads the folder, once or as a
streaming source, which sees each file when it is published.

The Spark session may be any: one of this program, local or RayDP's, or the gateway's, which runs a
query that is given as a function and runs it again when Spark was lost. Both sides must see the
folder: a disk of one machine, or a mounted file system.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa

from ...api.streams.data_stream import DataStream, StreamExecutionEnvironment
from ...api.streams.settings import DataStreamSink
from ...api.streams.stream import known_schema
from ...api.types.type_info import schema_of
from ...api.watermarks import WatermarkStrategy
from ...core.errors import ConfigurationError
from ..files import ParquetSink
from .bridge import spark_schema, storable
from .options import SparkOptions, require_spark
from .spool import ENDED, Spool, SpoolState
from .spool_source import SpoolSource, Upkeep
from .spooling import QuerySettings, Spooling, declare, spool_frame

_AS_WRITTEN = {"datetimeRebaseMode": "CORRECTED"}
"""Spark is to take dates as they are, also of centuries in which it suspects another calendar."""
_OPTIONS = ", ".join(f"'{name}' = '{value}'" for name, value in _AS_WRITTEN.items())

Build = Callable[[Any], Any]
"""From a Spark session to a streaming frame; runs in the gateway."""


def from_dataframe(
    env: StreamExecutionEnvironment,
    frame: Any,
    folder: str | os.PathLike[str] | None = None,
    *,
    watermark_strategy: WatermarkStrategy | None = None,
    name: str = "Source: Spark DataFrame",
) -> DataStream:
    """A bounded stream of the rows of a Spark frame, which is computed now, once.

    `folder` keeps the rows as Parquet; a job that is restored by another run of the program needs
    the same, and what it holds already is not computed again. None: a temporary folder of this
    machine, removed when the program ends. A file of the frame is read by one subtask, in order."""
    require_spark()
    spool = Spool(_temporary() if folder is None else folder)
    if spool.query.exists():
        raise ConfigurationError(
            f"from_dataframe: '{spool.folder}' is the folder of a streaming query; give another one"
        )
    schema = declare(frame, spool, "fail")
    if not spool.has(0):
        spool_frame(frame, spool)
    spool.say(SpoolState(ENDED, 0))
    source = SpoolSource(spool, schema, bounded=True)
    return env.from_source(source, watermark_strategy, name)


def from_streaming_dataframe(
    env: StreamExecutionEnvironment,
    frame: Any | Build,
    folder: str | os.PathLike[str],
    *,
    trigger: Mapping[str, Any] | None = None,
    output_mode: str = "append",
    watermark_strategy: WatermarkStrategy | Literal["spark"] | None = None,
    event_time: str | None = None,
    drift: Literal["fail", "fill"] = "fail",
    files_per_batch: int | None = None,
    batches_ahead: int = 100,
    query_options: Mapping[str, str] | None = None,
    options: SparkOptions | None = None,
    name: str = "Source: Spark stream",
) -> DataStream:
    """A stream of what a Structured Streaming query gives, exactly once.

    The query starts now and spools each micro-batch into `folder`, where it also keeps its own
    checkpoint: after a failure of this program, run it again with the same folder and restore the
    job. Spark waits while `batches_ahead` micro-batches are not taken; what a checkpoint covers is
    removed. The stream ends when the query ends, by `trigger={"availableNow": True}` or `stop()`.

    `frame` is a streaming frame of this program, or a function of a Spark session that makes one:
    then the gateway runs the query, and runs it again if Spark is lost. `output_mode` complete or
    update gives whole results again and again; what that means is the stream's affair.

    `event_time`: the column that gives records their time, where no strategy assigns it.
    `watermark_strategy="spark"`: the query's watermark (`withWatermark`) becomes the stream's. One
    subtask reads, so that rows come in order of micro-batches; `set_parallelism` of the result
    gives more. `drift`: what if the query has other columns than before: "fail", or "fill" what is
    missing, in old rows and new, with nulls."""
    require_spark()
    if watermark_strategy == "spark" and event_time is None:
        raise ConfigurationError(
            'watermark_strategy="spark" needs event_time, the column that Spark\'s watermark is of'
        )
    if drift not in ("fail", "fill"):
        raise ConfigurationError(f"drift must be 'fail' or 'fill', is {drift!r}")
    if batches_ahead < 1:
        raise ConfigurationError(f"batches_ahead must be at least 1, is {batches_ahead}")
    spool = Spool(folder)
    settings = QuerySettings(
        dict(trigger or {}),
        output_mode,
        dict(query_options or {}),
        files_per_batch,
        batches_ahead,
        drift,
    )
    schema, upkeep = _started(frame, spool, settings, options)
    if event_time is not None and event_time not in schema.names:
        raise ConfigurationError(
            f"event_time '{event_time}' is no column; there are {schema.names}"
        )
    source = SpoolSource(
        spool,
        schema,
        bounded=bool(settings.trigger.get("availableNow") or settings.trigger.get("once")),
        event_time=event_time,
        spark_watermark=watermark_strategy == "spark",
        upkeep=upkeep,
    )
    strategy = None if watermark_strategy == "spark" else watermark_strategy
    return env.from_source(source, strategy, name).set_parallelism(1)


def to_dataframe(
    stream: DataStream,
    spark: Any,
    folder: str | os.PathLike[str] | None = None,
    *,
    schema: Any = None,
    job_name: str | None = None,
) -> Any:
    """Run the job, and return the records of this stream, which is bounded, as a frame of the Spark
    session. All other sinks of the environment run with it.

    `folder`: new or empty; it keeps the records, and None is a temporary one, removed when the
    program ends. `schema`: of records that are Python objects without a declared type."""
    place = Path(_temporary() if folder is None else folder).absolute()
    if place.is_dir() and any(place.iterdir()):
        raise ConfigurationError(f"to_dataframe: '{place}' is not empty; give a new folder")
    columns = _sink(stream, place, schema, ()).columns
    stream.get_execution_environment().execute(job_name)
    if columns is not None:
        reader = spark.read.schema(spark_schema(columns)).options(**_AS_WRITTEN)
        return reader.parquet(f"file://{place}")
    if not any(place.rglob("*.parquet")):
        raise ConfigurationError(
            "to_dataframe: the stream had no records, and its columns are not known: give `schema`"
        )
    return spark.read.options(**_AS_WRITTEN).parquet(f"file://{place}")


def to_streaming_dataframe(
    stream: DataStream,
    spark: Any,
    folder: str | os.PathLike[str],
    *,
    schema: Any = None,
    read_options: Mapping[str, str] | None = None,
) -> Any:
    """A streaming frame of the Spark session, of what the stream writes into `folder`: each record
    exactly once, when its checkpoint is complete. Run the job beside it (`execute_async`)."""
    place = Path(folder).absolute()
    columns = _sink(stream, place, schema, ()).columns
    if columns is None:
        raise ConfigurationError(
            "to_streaming_dataframe: Spark must know the columns before the first record, and the "
            "program does not tell them: give `schema`, or declare the operator's output_type"
        )
    options = {**_AS_WRITTEN, **(read_options or {})}
    reader = spark.readStream.schema(spark_schema(columns)).options(**options)
    return reader.parquet(f"file://{place}")


def write_spark_table(
    stream: DataStream,
    spark: Any,
    table: str,
    folder: str | os.PathLike[str],
    *,
    partition_by: Sequence[str] = (),
    schema: Any = None,
) -> DataStreamSink:
    """End the stream in a table of Spark's catalog, exactly once: Parquet files in `folder`, which
    appear when a checkpoint is complete. The table is made now if there is none of that name.

    A session that has read the table sees new files after `REFRESH TABLE`, and new partitions after
    `ALTER TABLE ... RECOVER PARTITIONS`."""
    place = Path(folder).absolute()
    sunk = _sink(stream, place, schema, partition_by)
    if sunk.columns is None:
        raise ConfigurationError(
            f"write_spark_table: table '{table}' needs columns, and the program does not tell "
            "them: give `schema`, or declare the operator's output_type"
        )
    wanted = spark_schema(sunk.columns)
    if spark.catalog.tableExists(table):
        _check_table(spark, table, wanted, place)
    else:
        columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in wanted)
        parts = ", ".join(f"`{name}`" for name in partition_by)
        spark.sql(
            f"CREATE TABLE {table} ({columns}) USING PARQUET OPTIONS ({_OPTIONS}) "
            + (f"PARTITIONED BY ({parts}) " if parts else "")
            + f"LOCATION 'file://{place}'"
        )
    return sunk.sink


class _Sunk:
    """A sink in a folder of Parquet that Spark can read. `columns` None: not known before the
    job runs."""

    def __init__(self, sink: DataStreamSink, columns: pa.Schema | None) -> None:
        self.sink = sink
        self.columns = columns


def _sink(stream: DataStream, folder: Path, schema: Any, partition_by: Sequence[str]) -> _Sunk:
    require_spark()
    folder.mkdir(parents=True, exist_ok=True)
    declared = schema_of(schema)
    known = declared if declared is not None else known_schema(stream)
    columns = None if known is None else storable(known)
    if declared is None:
        stream = stream.map_batches(_for_spark, output_type=columns)
    sink = ParquetSink(folder, schema=columns, partition_by=partition_by)
    return _Sunk(stream.sink_to(sink), columns)


def _for_spark(table: pa.Table) -> pa.Table:
    """Types that Spark's Parquet reader knows."""
    return table.cast(storable(table.schema))


def _started(
    frame: Any | Build, spool: Spool, settings: QuerySettings, options: SparkOptions | None
) -> tuple[pa.Schema, Upkeep | None]:
    """The query runs; the columns of its rows."""
    if hasattr(frame, "isStreaming"):
        if not frame.isStreaming:
            raise ConfigurationError(
                "from_streaming_dataframe: this frame is not streaming; from_dataframe takes it"
            )
        schema = declare(frame, spool, settings.drift)
        Spooling(frame, spool, settings).start()
        return schema, None
    if not callable(frame):
        raise ConfigurationError(
            "from_streaming_dataframe: expected a streaming DataFrame, or a function of a Spark "
            f"session that makes one, got {frame!r}"
        )
    upkeep = Upkeep((frame, spool, settings), options)
    call = upkeep.call("new", "Spark stream")
    return call.wait(), upkeep


def _check_table(spark: Any, table: str, wanted: Any, folder: Path) -> None:
    """Whether files in `folder` are rows of the table."""
    there = {f.name: f.dataType.simpleString() for f in spark.table(table).schema}
    new = {f.name: f.dataType.simpleString() for f in wanted}
    if there != new:
        raise ConfigurationError(
            f"write_spark_table: table '{table}' has the columns {there}, the stream {new}"
        )
    said = {row[0]: row[1] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()}
    kind, place = said.get("Provider", ""), re.sub("^file:/+", "/", said.get("Location", ""))
    if kind.lower() != "parquet" or unquote(place) != str(folder):
        raise ConfigurationError(
            f"write_spark_table: table '{table}' is {kind or 'no files'} at '{place}', and the "
            f"stream would write Parquet into '{folder}'"
        )


def _temporary() -> str:
    folder = tempfile.mkdtemp(prefix="strom-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder

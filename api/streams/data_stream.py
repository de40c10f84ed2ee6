"""The classes programs are written with. They make one another, and so live in one module:

    StreamExecutionEnvironment.from_source -> DataStream
    DataStream.key_by -> KeyedStream, which is a DataStream
    DataStream.window_all, KeyedStream.window -> AllWindowedStream, WindowedStream
    map, aggregate, join and all other operators -> DataStream

Their methods are in the modules beside this one, which know none of these classes; here is what
leads from one class to another.
"""

from __future__ import annotations

from typing import Any, overload

from ...core.config import JobConfig
from ...core.errors import ConfigurationError, GraphError
from ...core.keys import ConstantKey, KeySelector
from ...engine.graph.model import KeyGroups
from ...engine.graph.transformation import Input, Transformation
from ..connectors.base import Sink, Source
from ..connectors.builtin_sinks import CollectSink, PrintSink
from ..connectors.collection import collection_source
from ..functions.user_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from ..functions.validation import require_positive
from ..jobs.collected import CollectedResults, collect
from ..jobs.environment import DEFAULT_HOST, Environment
from ..jobs.host import Host
from ..specs.columns import to_key_selector
from ..specs.records import SinkSpec, SourceSpec
from ..types.type_info import schema_of
from ..watermarks import WatermarkStrategy
from ..windows.base import WindowAssigner
from ..windows.count_windows import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from .keyed_joins import KeyedJoins
from .keyed_records import KeyedRecords
from .keyed_tables import KeyedTables
from .records import Records
from .settings import DataStreamSink
from .table_joins import TableJoins
from .windowed import Windows


class StreamExecutionEnvironment(Environment):
    """Where a program starts. Get one with `get_execution_environment`. Also a context manager,
    which closes the host."""

    @staticmethod
    def get_execution_environment(
        config: JobConfig | None = None, host: str | Host = DEFAULT_HOST, **host_options: Any
    ) -> StreamExecutionEnvironment:
        """A new environment. `host`: "local", "ray" or a Host; `host_options` go to the host."""
        if config is not None and not isinstance(config, JobConfig):
            raise ConfigurationError(
                f"get_execution_environment: expected a JobConfig, got {config!r}"
            )
        return StreamExecutionEnvironment(config or JobConfig(), host, **host_options)

    def from_collection(self, collection: Any, type_info: Any = None) -> DataStream:
        """A bounded stream over an iterable, or over the rows of a pyarrow Table or RecordBatch, a
        pandas or a polars DataFrame. With a row type as `type_info` the values become columns."""
        return self.from_source(
            collection_source(collection, type_info), source_name="Source: Collection"
        )

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "",
        type_info: Any = None,
    ) -> DataStream:
        """A stream from a connector. `watermark_strategy` None: the source's records keep the
        timestamps they have and event time does not advance before the end."""
        if not isinstance(source, Source):
            raise ConfigurationError(f"from_source: expected a Source, got {source!r}")
        _check_strategy(watermark_strategy)
        _check_type(source, type_info)
        spec = SourceSpec(source, watermark_strategy)
        name = source_name or f"Source: {type(source).__name__}"
        operator = self._add_operator(spec, name, (), is_source=True)
        return DataStream(self, (Input(operator),), operator)


class DataStream(Records["DataStream"], TableJoins["DataStream"]):
    """A stream of records.

    `output_type` wherever it appears is anything `schema_of` accepts: with a row type the
    operator's results become columns, else they stay Python objects.
    """

    _env: StreamExecutionEnvironment

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        return self._env

    def key_by(self, *keys: Any, key_type: Any = None) -> KeyedStream:
        """By column names, polars expressions, a function or a KeySelectorFunction.

        `key_type` is PyFlink's: keys need no declared type here, so it is only checked."""
        schema_of(key_type)
        key = to_key_selector("key_by", keys)
        return KeyedStream(self._env, self._partitioned(KeyGroups(key)), key)

    def window_all(self, window_assigner: WindowAssigner) -> AllWindowedStream:
        """Windows over the whole stream: one subtask does all the work."""
        return AllWindowedStream(self, window_assigner)

    def union(self, *streams: DataStream) -> DataStream:
        """The records of all streams, in no particular order between them."""
        for stream in streams:
            if not isinstance(stream, DataStream):
                raise ConfigurationError(f"union: expected streams, got {stream!r}")
            if stream._env is not self._env:
                raise GraphError("union: the streams belong to different environments")
        inputs = self._inputs + tuple(i for stream in streams for i in stream._inputs)
        return DataStream(self._env, inputs)

    # --- ends --------------------------------------------------------------------------------

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """End the stream in a sink."""
        if not isinstance(sink, Sink):
            raise ConfigurationError(f"sink_to: expected a Sink, got {sink!r}")
        name = f"Sink: {type(sink).__name__}"
        return DataStreamSink(self._add(SinkSpec(sink), name, is_sink=True))

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print every record; see `PrintSink` for the prefix."""
        return self.sink_to(PrintSink(sink_identifier or "")).name("Sink: Print")

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CollectedResults: ...
    @overload
    def execute_and_collect(self, job_execution_name: str | None, limit: int) -> list[Any]: ...
    @overload
    def execute_and_collect(self, *, limit: int) -> list[Any]: ...
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CollectedResults | list[Any]:
        """Run the job and bring this stream's records here.

        Without limit: an iterator and context manager over the records as they come; leaving it
        early cancels the job. With limit: the list of the first `limit` records.

        >>> from strom import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_collection([1, 2, 3]).map(lambda n: n * n).execute_and_collect(limit=2)
        [1, 4]
        """
        if limit is not None:
            require_positive("execute_and_collect", "limit", limit)
        sink = self.sink_to(CollectSink()).name("Sink: Collect").operator
        return collect(self._env, sink, job_execution_name, limit)

    # --- inside ------------------------------------------------------------------------------

    def _stream(
        self, inputs: tuple[Input, ...], operator: Transformation | None = None
    ) -> DataStream:
        return DataStream(self._env, inputs, operator)


class KeyedStream(
    KeyedTables[DataStream], KeyedJoins[DataStream], KeyedRecords[DataStream], DataStream
):
    """A stream partitioned by key; operators on it have state and timers per key."""

    def __init__(
        self, env: StreamExecutionEnvironment, inputs: tuple[Input, ...], key: KeySelector
    ) -> None:
        super().__init__(env, inputs)
        self._key = key

    def window(self, window_assigner: WindowAssigner) -> WindowedStream:
        """Windows per key."""
        return WindowedStream(self, window_assigner, self._key)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Windows of `size` records of a key; with `slide`, a new one every `slide` records."""
        require_positive("count_window", "size", size)
        if slide == 0:
            return self.window(CountTumblingWindowAssigner.of(size))
        require_positive("count_window", "slide", slide)
        return self.window(CountSlidingWindowAssigner.of(size, slide))


class WindowedStream(Windows[DataStream]):
    """Windows per key. Window functions: WindowFunction, ProcessWindowFunction."""

    _apply_function = WindowFunction
    _process_function = ProcessWindowFunction
    _keyed = True


class AllWindowedStream(Windows[DataStream]):
    """Windows over the whole stream, in one subtask. Window functions: AllWindowFunction,
    ProcessAllWindowFunction."""

    _apply_function = AllWindowFunction
    _process_function = ProcessAllWindowFunction
    _keyed = False

    def __init__(self, stream: DataStream, assigner: WindowAssigner) -> None:
        super().__init__(stream, assigner, ConstantKey())


def _check_strategy(strategy: WatermarkStrategy | None) -> None:
    if strategy is not None and not isinstance(strategy, WatermarkStrategy):
        raise ConfigurationError(f"from_source: expected a WatermarkStrategy, got {strategy!r}")


def _check_type(source: Source, type_info: Any) -> None:
    """A declared row type must be what the source gives: its records are not converted."""
    declared = schema_of(type_info)
    if declared is None or (source.schema is not None and source.schema.equals(declared)):
        return
    gives = "Python objects" if source.schema is None else f"columns {source.schema}"
    raise ConfigurationError(
        f"from_source: type_info declares columns {declared}, but {source!r} gives {gives}; leave "
        "type_info away, and convert with map(..., output_type=...) or select(...)"
    )

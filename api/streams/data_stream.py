"""The classes programs are written with. They make one another, and so live in one module:

    StreamExecutionEnvironment.from_source -> DataStream
    DataStream.key_by -> KeyedStream, which is a DataStream
    DataStream.window_all, KeyedStream.window -> AllWindowedStream, WindowedStream
    DataStream.connect, DataStream.broadcast(descriptor) -> ConnectedStreams, BroadcastStream, ...
    map, aggregate, join and all other operators -> DataStream

Their methods are in the modules beside this one, which know none of these classes; here is what
leads from one class to another.
"""

from __future__ import annotations

from typing import Any, overload

from ...core.checks import check_kind
from ...core.config import JobConfig
from ...core.errors import ConfigurationError, GraphError
from ...core.keys import ConstantKey, KeySelector
from ...engine.graph.model import Broadcast, KeyGroups, Partitioner
from ...engine.graph.transformation import Input, Transformation
from ...state.descriptors import MapStateDescriptor
from ..configuration.applying import ambient_configuration, merged
from ..configuration.configuration import Configuration
from ..configuration.execution_config import ExecutionConfig
from ..configuration.submitted import with_submitted
from ..connectors.base import Sink, Source
from ..connectors.builtin_sinks import PrintSink
from ..connectors.collection import collection_source
from ..functions.user_functions import (
    AllWindowFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from ..functions.validation import require_positive
from ..jobs.collected import CollectedResults, collect
from ..jobs.environment import Environment
from ..jobs.host import Host
from ..jobs.previews import sketched
from ..specs.columns import to_key_selector
from ..specs.known_columns import check_key_columns
from ..specs.known_types import check_union
from ..specs.records import PassSpec, SinkSpec, SourceSpec
from ..types.declared import Declared, Scalars, declared_records
from ..types.type_classes import TypeInformation
from ..types.type_info import schema_of
from ..watermarks import WatermarkStrategy
from ..windows.base import WindowAssigner
from ..windows.count_windows import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from .async_batches import AsyncBatches
from .caching import check_cacheable
from .connected import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
from .frames import SparkFrames
from .keyed_joins import KeyedJoins
from .keyed_records import KeyedRecords
from .keyed_tables import KeyedTables
from .kinds import Kinds
from .projection import Projection
from .records import Records
from .settings import DataStreamSink
from .shown import Shown
from .stream import known_records, type_of_records
from .table_joins import TableJoins
from .windowed import Windows


class StreamExecutionEnvironment(Environment):
    """Where a program starts. Get one with `get_execution_environment`. Also a context manager,
    which closes the host."""

    @staticmethod
    def get_execution_environment(
        configuration: Configuration | JobConfig | None = None,
        host: str | Host | None = None,
        *,
        defaults: JobConfig | None = None,
        **host_options: Any,
    ) -> StreamExecutionEnvironment:
        """A new environment. `host`: "local", "ray" or a Host; `host_options` go to the host.

        A `Configuration` counts more than what the environment of the program and its config.yaml
        say (docs/configuration.md); what none of them says is as in `defaults`. A JobConfig in
        place of a Configuration says all there is, and nothing else is looked at, but for what
        `strom run` or the REST API was told for this run.
        """
        if defaults is not None:
            check_kind("defaults", defaults, JobConfig)
        if isinstance(configuration, JobConfig):
            if defaults is not None:
                raise ConfigurationError(
                    "get_execution_environment: a JobConfig says all there is, and needs no "
                    "defaults: give it as defaults alone"
                )
            return StreamExecutionEnvironment(with_submitted(configuration), host, **host_options)
        if configuration is not None and not isinstance(configuration, Configuration):
            raise ConfigurationError(
                "get_execution_environment: expected a Configuration or a JobConfig, got "
                f"{configuration!r}"
            )
        whole = merged(ambient_configuration(), configuration or Configuration())
        env = StreamExecutionEnvironment(defaults, host, **host_options)
        if defaults is None:
            env._settings.set_default_parallelism(env.get_default_local_parallelism())
        env.configure(whole)
        return env

    def from_collection(self, collection: Any, type_info: Any = None) -> DataStream:
        """A bounded stream over an iterable, or over the rows of a pyarrow Table or RecordBatch, a
        pandas or a polars DataFrame. With a row type as `type_info` the values become columns, with
        another one values of it. TypeMismatchError names the first value that does not fit.

        One subtask reads it, so that the records are in order: `set_parallelism` on the stream has
        several read it, each every so many-th record."""
        source = collection_source(collection, type_info)
        return self.from_source(source, source_name="Source: Collection").set_parallelism(1)

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "",
        type_info: Any = None,
    ) -> DataStream:
        """A stream from a connector. `watermark_strategy` None: the source's records keep the
        timestamps they have and event time does not advance before the end. With a type of single
        values as `type_info` each record must be such a value; a row type must be the source's."""
        if not isinstance(source, Source):
            raise ConfigurationError(f"from_source: expected a Source, got {source!r}")
        _check_strategy(watermark_strategy)
        spec = SourceSpec(source, watermark_strategy, _required(source, type_info))
        name = source_name or f"Source: {type(source).__name__}"
        operator = self._add_operator(spec, name, (), is_source=True)
        return DataStream(self, (Input(operator),), operator)

    def _repr_html_(self) -> str:
        """The job graph of what has been written so far."""
        return sketched(self, self._transformations)


class DataStream(
    Records["DataStream"],
    Projection["DataStream"],
    Kinds["DataStream"],
    AsyncBatches["DataStream"],
    TableJoins["DataStream"],
    Shown["DataStream"],
    SparkFrames,
):
    """A stream of records.

    `output_type` wherever it appears is anything `schema_of` accepts: with a row type the
    operator's results become columns, with another type, such as `Types.INT()`, values of it;
    undeclared they stay the Python objects that they are. What does not fit fails the job.
    """

    _env: StreamExecutionEnvironment

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        return self._env

    def get_type(self) -> TypeInformation:
        """The type of the records: rows or tuples of the columns that the program tells, the type
        that values are declared as, else Python objects. Columns do not tell CHAR from STRING, nor
        arrays from lists."""
        return type_of_records(self)

    def get_execution_config(self) -> ExecutionConfig:
        """The settings of the environment, to change in place."""
        return self._env.get_config()

    def key_by(self, *keys: Any, key_type: Any = None, key_selector: Any = None) -> KeyedStream:
        """By column names, polars expressions, a function or a KeySelectorFunction.

        `key_selector` is PyFlink's name of the one key. `key_type`, also PyFlink's, and also as a
        second argument: keys need no declared type here, so it is only checked."""
        given = [*keys] if key_selector is None else [key_selector, *keys]
        if len(given) == 2 and isinstance(given[1], TypeInformation):
            key_type = given.pop()
        schema_of(key_type)
        key = to_key_selector("key_by", tuple(given))
        check_key_columns("key_by", self._inputs, key)
        return KeyedStream(self._env, self._partitioned(KeyGroups(key)), key)

    def window_all(self, window_assigner: WindowAssigner) -> AllWindowedStream:
        """Windows over the whole stream: one subtask does all the work."""
        return AllWindowedStream(self, window_assigner)

    def union(self, *streams: DataStream) -> DataStream:
        """The records of all streams, in no particular order between them. GraphError if they are
        known to be of different types."""
        for stream in streams:
            if not isinstance(stream, DataStream):
                raise ConfigurationError(f"union: expected streams, got {stream!r}")
            if stream._env is not self._env:
                raise GraphError("union: the streams belong to different environments")
        inputs = self._inputs + tuple(i for stream in streams for i in stream._inputs)
        check_union(inputs)
        return DataStream(self._env, inputs)

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams[DataStream]: ...
    @overload
    def connect(self, ds: BroadcastStream[DataStream]) -> BroadcastConnectedStream[DataStream]: ...
    def connect(
        self, ds: DataStream | BroadcastStream[DataStream]
    ) -> ConnectedStreams[DataStream] | BroadcastConnectedStream[DataStream]:
        """Both streams, to be handled by one function; or this one, with what the other
        broadcasts."""
        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        return ConnectedStreams(self, ds)

    @overload
    def broadcast(self) -> DataStream: ...
    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream[DataStream]: ...
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream | BroadcastStream[DataStream]:
        """Every record to every subtask. With descriptors: of what it is connected with, where a
        function keeps them in broadcast states of these names."""
        if broadcast_state_descriptor is None:
            return self._view(Broadcast())
        descriptors = (broadcast_state_descriptor, *other_broadcast_state_descriptors)
        return BroadcastStream(self, descriptors)

    def cache(self) -> CachedDataStream:
        """The same records, kept when the first job that reads them has finished, and read by later
        jobs of the environment: then what the stream is made of does not run again. For bounded
        streams. Event times are kept; watermarks are not, so that event time advances at the
        end."""
        check_cacheable(self._inputs)
        known = known_records(self)
        name = f"Cache({', '.join(one.source.name for one in self._inputs)})"
        node = self._add(PassSpec(known), name)
        self._env._keep(node, known)
        return CachedDataStream(self._env, (Input(node),), node)

    # --- ends --------------------------------------------------------------------------------

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """End the stream in a sink."""
        if not isinstance(sink, Sink):
            raise ConfigurationError(f"sink_to: expected a Sink, got {sink!r}")
        name = f"Sink: {type(sink).__name__}"
        return DataStreamSink(self._add(SinkSpec(sink), name, is_sink=True), self._env)

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
        early cancels the job. With limit: the list of the first `limit` records. Those of one
        subtask of the last operator come in its order.

        >>> from strom import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_collection([1, 2, 3]).map(lambda n: n * n).execute_and_collect(limit=2)
        [1, 4]
        """
        if limit is not None:
            require_positive("execute_and_collect", "limit", limit)
        return collect(self._env, self._collecting_sink(), job_execution_name, limit)

    # --- inside ------------------------------------------------------------------------------

    def _stream(
        self, inputs: tuple[Input, ...], operator: Transformation | None = None
    ) -> DataStream:
        return DataStream(self._env, inputs, operator)


class CachedDataStream(DataStream):
    """A stream that is kept, see `DataStream.cache`."""

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """An error: what is kept are the records of the main output."""
        raise GraphError(
            "get_side_output: a cached stream has none: ask the operator before cache(), and cache "
            "the side output as well if it is to be kept"
        )

    def invalidate(self) -> None:
        """Free what is kept, at once; a job that reads the stream again makes it anew. A job that
        reads it at this moment fails."""
        self._env._caches.invalidate(self._settable("invalidate"))


class KeyedStream(
    KeyedTables[DataStream], KeyedJoins[DataStream], KeyedRecords[DataStream], DataStream
):
    """A stream partitioned by key; operators on it have state and timers per key."""

    def __init__(
        self, env: StreamExecutionEnvironment, inputs: tuple[Input, ...], key: KeySelector
    ) -> None:
        super().__init__(env, inputs)
        self._key = key

    def _view(self, partitioner: Partitioner) -> DataStream:
        how = type(partitioner).__name__
        raise GraphError(
            f"a keyed stream is partitioned by its key and cannot be by {how}: use that ahead of "
            "key_by, or behind an operator"
        )

    def cache(self) -> CachedDataStream:
        """As in PyFlink an error: cache the stream, and key what comes out."""
        raise GraphError("cache: a keyed stream is only a view: use cache() before key_by()")

    def window(self, window_assigner: WindowAssigner) -> WindowedStream:
        """Windows per key."""
        return WindowedStream(self, window_assigner)

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

    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner) -> None:
        super().__init__(keyed_stream, window_assigner, keyed_stream._key)
        self._env = keyed_stream.get_execution_environment()

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        return self._env


class AllWindowedStream(Windows[DataStream]):
    """Windows over the whole stream, in one subtask. Window functions: AllWindowFunction,
    ProcessAllWindowFunction."""

    _apply_function = AllWindowFunction
    _process_function = ProcessAllWindowFunction
    _keyed = False

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner) -> None:
        super().__init__(data_stream, window_assigner, ConstantKey())
        self._env = data_stream.get_execution_environment()

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        return self._env


def _check_strategy(strategy: WatermarkStrategy | None) -> None:
    if strategy is not None and not isinstance(strategy, WatermarkStrategy):
        raise ConfigurationError(f"from_source: expected a WatermarkStrategy, got {strategy!r}")


def _required(source: Source, type_info: Any) -> Scalars | None:
    """What each record has to be, if that is one value. A row type must be what the source gives:
    columns are not converted."""
    declared = declared_records(type_info)
    if isinstance(declared, Scalars):
        if SourceSpec(source, None).result_schema(None, None) is None:
            return None if source.scalars == declared else declared
    elif declared is None or (source.schema is not None and source.schema.equals(declared)):
        return None
    gives = "Python objects" if source.schema is None else f"columns {source.schema}"
    raise ConfigurationError(
        f"from_source: type_info declares {_text(declared)}, but {source!r} gives {gives}; leave "
        "type_info away, and convert with map(..., output_type=...) or select(...)"
    )


def _text(declared: Declared) -> str:
    return str(declared.info) if isinstance(declared, Scalars) else f"columns {declared}"

"""`DataStream`: what operators are applied to. A stream is the inputs the next operator will read.

    operator result     one input, the operator's main output; has settings (name, uid, ...)
    union               several inputs
    partitioned         the same inputs with another partitioner
    side output         one input with a tag

The last three are views: they create no operator and have no settings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

from ..core.errors import ConfigurationError, GraphError
from ..engine.graph.model import (
    Broadcast,
    Custom,
    Forward,
    Global,
    KeyGroups,
    Partitioner,
    Rebalance,
    Rescale,
    Shuffle,
)
from ..engine.graph.transformation import Input, Transformation
from . import specs
from .builtin_sinks import PrintSink
from .connectors import Sink
from .event_time_method import EventTimeMethod
from .expressions import is_expression, to_columns, to_key_selector
from .functions import FilterFunction, FlatMapFunction, MapFunction, ProcessFunction
from .functions import Partitioner as PartitionerFunction
from .known_columns import check_columns, check_key_columns
from .operator_settings import OperatorSettings
from .output_tag import OutputTag
from .table_joins import StreamTableJoins
from .types import schema_of
from .validation import (
    require_batch_function,
    require_function,
    require_instance,
    stateless_method,
)

if TYPE_CHECKING:
    from .collected import CollectedResults
    from .environment import StreamExecutionEnvironment
    from .keyed_stream import KeyedStream
    from .sink_stream import DataStreamSink
    from .watermarks import WatermarkStrategy
    from .windowed_stream import AllWindowedStream
    from .windows import WindowAssigner

BatchFormat = Literal["arrow", "polars", "pandas", "numpy"]


class DataStream(OperatorSettings, EventTimeMethod, StreamTableJoins):
    """A stream of records.

    `output_type` wherever it appears is anything `schema_of` accepts: with a row type the
    operator's results become columns, else they stay Python objects.
    """

    def __init__(
        self,
        env: StreamExecutionEnvironment,
        inputs: tuple[Input, ...],
        operator: Transformation | None = None,
    ) -> None:
        super().__init__(operator)
        self._env = env
        self._inputs = inputs

    def __repr__(self) -> str:
        sources = ", ".join(one.source.name for one in self._inputs)
        return f"{type(self).__name__}({sources})"

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        return self._env

    # --- record by record --------------------------------------------------------------------

    def map(self, func: Any, output_type: Any = None) -> DataStream:
        """One result per record: a callable or MapFunction."""
        require_function("map", func, MapFunction)
        return self._apply(specs.MapSpec(func, schema_of(output_type)), "Map")

    def flat_map(self, func: Any, output_type: Any = None) -> DataStream:
        """Any number of results per record: a callable giving an iterable, or FlatMapFunction."""
        require_function("flat_map", func, FlatMapFunction)
        return self._apply(specs.FlatMapSpec(func, schema_of(output_type)), "FlatMap")

    def filter(self, *predicates: Any) -> DataStream:
        """Records for which the function is true, or all of the polars expressions are."""
        if predicates and all(is_expression(p) for p in predicates):
            return self._apply(specs.ExpressionSpec("filter", predicates), "Filter")
        if len(predicates) != 1:
            raise ConfigurationError(
                f"filter: give one function or polars expressions, got {predicates!r}"
            )
        require_function("filter", predicates[0], FilterFunction)
        return self._apply(specs.FilterSpec(predicates[0]), "Filter")

    def process(self, func: ProcessFunction, output_type: Any = None) -> DataStream:
        """Results are yielded by `func.process_element`; side outputs by `yield tag, value`."""
        require_instance("process", func, ProcessFunction, hint="for keyed state use key_by first")
        return self._apply(specs.ProcessSpec(func, schema_of(output_type)), "Process")

    # --- batch by batch ----------------------------------------------------------------------

    def select(self, *columns: Any, **named: Any) -> DataStream:
        """These columns (names or polars expressions) only; `named` ones get the keyword's name."""
        expressions = to_columns("select", columns, named)
        return self._apply(specs.ExpressionSpec("select", expressions), "Select")

    def with_columns(self, *columns: Any, **named: Any) -> DataStream:
        """All columns, with these added or replaced."""
        expressions = to_columns("with_columns", columns, named)
        return self._apply(specs.ExpressionSpec("with_columns", expressions), "WithColumns")

    def map_batches(
        self, func: Any, batch_format: BatchFormat = "arrow", output_type: Any = None
    ) -> DataStream:
        """`func` maps a batch to a batch of any length. A class is instantiated once per subtask,
        without arguments, and its instance called for each batch."""
        require_batch_function("map_batches", func)
        formats = ("arrow", "polars", "pandas", "numpy")
        if batch_format not in formats:
            raise ConfigurationError(
                f"map_batches: batch_format must be one of {formats}, is {batch_format!r}"
            )
        spec = specs.MapBatchesSpec(func, batch_format, schema_of(output_type))
        return self._apply(spec, "MapBatches")

    # --- time --------------------------------------------------------------------------------

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Timestamps and watermarks from here on; those of before are replaced."""
        from .watermarks import WatermarkStrategy

        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise ConfigurationError(
                "assign_timestamps_and_watermarks: expected a WatermarkStrategy, got "
                f"{watermark_strategy!r}"
            )
        return self._apply(specs.WatermarkSpec(watermark_strategy), "Timestamps/Watermarks")

    # --- keys and windows --------------------------------------------------------------------

    def key_by(self, *keys: Any, key_type: Any = None) -> KeyedStream:
        """By column names, polars expressions, a function or a KeySelectorFunction.

        `key_type` is PyFlink's: keys need no declared type here, so it is only checked."""
        from .keyed_stream import KeyedStream

        schema_of(key_type)
        key = to_key_selector("key_by", keys)
        check_key_columns("key_by", self, key)
        return KeyedStream(self._env, self._partitioned(KeyGroups(key)), key)

    def window_all(self, window_assigner: WindowAssigner) -> AllWindowedStream:
        """Windows over the whole stream: one subtask does all the work."""
        from .windowed_stream import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    # --- views -------------------------------------------------------------------------------

    def union(self, *streams: DataStream) -> DataStream:
        """The records of all streams, in no particular order between them."""
        for stream in streams:
            if not isinstance(stream, DataStream):
                raise ConfigurationError(f"union: expected streams, got {stream!r}")
            if stream._env is not self._env:
                raise GraphError("union: the streams belong to different environments")
        inputs = self._inputs + tuple(i for stream in streams for i in stream._inputs)
        return DataStream(self._env, inputs)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """What this operator emits under the tag."""
        if not isinstance(output_tag, OutputTag):
            raise ConfigurationError(f"get_side_output: expected an OutputTag, got {output_tag!r}")
        operator = self._settable("get_side_output")
        return DataStream(self._env, (Input(operator, output_tag.tag_id),))

    def forward(self) -> DataStream:
        """Subtask i to subtask i; the next operator must have the same parallelism."""
        return self._view(Forward())

    def rebalance(self) -> DataStream:
        """Round-robin over all subtasks of the next operator, batch by batch."""
        return self._view(Rebalance())

    def rescale(self) -> DataStream:
        """Round-robin over a share of the next operator's subtasks."""
        return self._view(Rescale())

    def shuffle(self) -> DataStream:
        """Each record to a random subtask."""
        return self._view(Shuffle())

    def broadcast(self) -> DataStream:
        """Every record to every subtask."""
        return self._view(Broadcast())

    def global_(self) -> DataStream:
        """Everything to the first subtask."""
        return self._view(Global())

    def partition_custom(self, partitioner: Any, key_selector: Any) -> DataStream:
        """To subtask `partitioner(key, number of subtasks)`: a callable or a Partitioner; the key
        as in `key_by`, a list or tuple of several columns."""
        require_function("partition_custom", partitioner, PartitionerFunction)
        if isinstance(partitioner, PartitionerFunction):
            partitioner = stateless_method("partition_custom", partitioner, "partition")
        keys = key_selector if isinstance(key_selector, (list, tuple)) else (key_selector,)
        key = to_key_selector("partition_custom", tuple(keys))
        check_key_columns("partition_custom", self, key)
        return self._view(Custom(partitioner, key))

    # --- ends --------------------------------------------------------------------------------

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """End the stream in a sink."""
        from .sink_stream import DataStreamSink

        if not isinstance(sink, Sink):
            raise ConfigurationError(f"sink_to: expected a Sink, got {sink!r}")
        name = f"Sink: {type(sink).__name__}"
        return DataStreamSink(self._add(specs.SinkSpec(sink), name, is_sink=True))

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
        from .collected import collect

        results: CollectedResults | list[Any] = collect(self, job_execution_name, limit)
        return results

    # --- inside ------------------------------------------------------------------------------

    def _apply(self, spec: specs.OperatorSpec, name: str, **settings: Any) -> DataStream:
        """The stream of results of a new operator on this stream."""
        check_columns(spec, self)
        operator = self._add(spec, name, **settings)
        return DataStream(self._env, (Input(operator),), operator)

    def _add(self, spec: specs.OperatorSpec, name: str, **settings: Any) -> Transformation:
        return self._env._add_operator(spec, name, self._inputs, **settings)

    def _partitioned(self, partitioner: Partitioner) -> tuple[Input, ...]:
        return tuple(replace(one, partitioner=partitioner) for one in self._inputs)

    def _view(self, partitioner: Partitioner) -> DataStream:
        return DataStream(self._env, self._partitioned(partitioner))

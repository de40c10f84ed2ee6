"""strom: stateful stream processing in Python on Ray.

The public face. Names load their modules on first use, so `import strom` itself costs next to
nothing. This is also the composition root: it tells the API, which runs nothing, how a host is
opened, who serves a job's dashboard, who draws what notebooks show and which connector leads to
Spark's frames, and `strom.state` where `open` and `write` are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .api.jobs.host import register_host_opener, register_pages_opener
from .api.streams.frames import register_frame_bridge
from .core.shown import Shows, register_shows
from .state import register_open_state

# fmt: off
# isort: off
if TYPE_CHECKING:
    from .api.aggregates import (
        Aggregate as Aggregate, approx_count_distinct as approx_count_distinct, arg_max as arg_max,
        arg_min as arg_min, collect as collect, count as count, count_distinct as count_distinct,
        first as first, largest as largest, last as last, max_ as max_, mean as mean, min_ as min_,
        smallest as smallest, stddev as stddev, sum_ as sum_, variance as variance
    )
    from .api.configuration.checkpoints import CheckpointConfig as CheckpointConfig
    from .api.configuration.configuration import Configuration as Configuration
    from .api.configuration.execution_config import ExecutionConfig as ExecutionConfig
    from .api.configuration.memory import MemorySize as MemorySize
    from .api.configuration.modes import (
        CheckpointingMode as CheckpointingMode, ExternalizedCheckpointRetention as
        ExternalizedCheckpointRetention, RuntimeExecutionMode as RuntimeExecutionMode
    )
    from .api.configuration.options import (
        ConfigOption as ConfigOption, ConfigOptions as ConfigOptions
    )
    from .api.configuration.slots import SlotSharingGroup as SlotSharingGroup
    from .api.configuration.state_backends import (
        EmbeddedRocksDBStateBackend as EmbeddedRocksDBStateBackend, PredefinedOptions as
        PredefinedOptions
    )
    from .api.configuration.storage import (
        CheckpointStorage as CheckpointStorage, FileSystemCheckpointStorage as
        FileSystemCheckpointStorage, HashMapStateBackend as HashMapStateBackend,
        JobManagerCheckpointStorage as JobManagerCheckpointStorage, StateBackend as StateBackend
    )
    from .api.connectors.base import (
        Emit as Emit, EnumeratorContext as EnumeratorContext, NeedSplit as NeedSplit, ReaderContext
        as ReaderContext, Sink as Sink, SinkWriter as SinkWriter, Source as Source, SourceReader as
        SourceReader, SplitEnumerator as SplitEnumerator, Wait as Wait, WriterContext as
        WriterContext
    )
    from .api.connectors.builtin_sinks import (
        CollectSink as CollectSink, DiscardSink as DiscardSink, PrintSink as PrintSink
    )
    from .api.dead_letters import DeadLetters as DeadLetters, dead_letters as dead_letters
    from .api.functions.accumulators import (
        Accumulator as Accumulator, AverageAccumulator as AverageAccumulator, DoubleCounter as
        DoubleCounter, Histogram as Histogram, IntCounter as IntCounter, ListAccumulator as
        ListAccumulator, LongCounter as LongCounter, Maximum as Maximum, Minimum as Minimum
    )
    from .api.functions.async_functions import (
        AsyncFunction as AsyncFunction, AsyncRetryPredicate as AsyncRetryPredicate,
        AsyncRetryStrategy as AsyncRetryStrategy, ExponentialBackoffDelayRetryStrategy as
        ExponentialBackoffDelayRetryStrategy, FixedDelayRetryStrategy as FixedDelayRetryStrategy,
        NoRetryStrategy as NoRetryStrategy, RetryPredicate as RetryPredicate
    )
    from .api.functions.checkpointed import (
        CheckpointedFunction as CheckpointedFunction, FunctionInitializationContext as
        FunctionInitializationContext, FunctionSnapshotContext as FunctionSnapshotContext
    )
    from .api.functions.co_functions import (
        BaseBroadcastProcessFunction as BaseBroadcastProcessFunction, BroadcastProcessFunction as
        BroadcastProcessFunction, CoFlatMapFunction as CoFlatMapFunction, CoMapFunction as
        CoMapFunction, CoProcessFunction as CoProcessFunction, KeyedBroadcastProcessFunction as
        KeyedBroadcastProcessFunction, KeyedCoProcessFunction as KeyedCoProcessFunction
    )
    from .api.functions.metrics import (
        Counter as Counter, Distribution as Distribution, Meter as Meter, MetricGroup as MetricGroup
    )
    from .api.functions.user_functions import (
        AggregateFunction as AggregateFunction, AllWindowFunction as AllWindowFunction,
        FilterFunction as FilterFunction, FlatMapFunction as FlatMapFunction, Function as Function,
        KeySelector as KeySelector, KeySelectorFunction as KeySelectorFunction, KeyedProcessFunction
        as KeyedProcessFunction, KeyedStateStore as KeyedStateStore, MapFunction as MapFunction,
        NullByteKeySelector as NullByteKeySelector, OutputTag as OutputTag, Partitioner as
        Partitioner, PassThroughAllWindowFunction as PassThroughAllWindowFunction,
        PassThroughWindowFunction as PassThroughWindowFunction, ProcessAllWindowFunction as
        ProcessAllWindowFunction, ProcessFunction as ProcessFunction, ProcessWindowFunction as
        ProcessWindowFunction, ReduceFunction as ReduceFunction, RuntimeContext as RuntimeContext,
        TimeDomain as TimeDomain, TimerService as TimerService, WindowFunction as WindowFunction
    )
    from .api.jobs.collected import (
        CloseableIterator as CloseableIterator, CollectedResults as CollectedResults
    )
    from .api.jobs.host import (
        Host as Host, JobClient as JobClient, JobExecutionResult as JobExecutionResult,
        RescaleResult as RescaleResult
    )
    from .api.jobs.restart_strategies import RestartStrategies as RestartStrategies
    from .api.streams.async_data_stream import AsyncDataStream as AsyncDataStream
    from .api.streams.connected import (
        BroadcastConnectedStream as BroadcastConnectedStream, BroadcastStream as BroadcastStream,
        ConnectedStreams as ConnectedStreams
    )
    from .api.streams.data_stream import (
        AllWindowedStream as AllWindowedStream, CachedDataStream as CachedDataStream, DataStream as
        DataStream, KeyedStream as KeyedStream, StreamExecutionEnvironment as
        StreamExecutionEnvironment, WindowedStream as WindowedStream
    )
    from .api.streams.settings import DataStreamSink as DataStreamSink
    from .api.types.durations import Duration as Duration, Instant as Instant, Time as Time
    from .api.types.type_classes import (
        BasicArrayTypeInfo as BasicArrayTypeInfo, BasicType as BasicType, BasicTypeInfo as
        BasicTypeInfo, DateTypeInfo as DateTypeInfo, InstantTypeInfo as InstantTypeInfo,
        ListTypeInfo as ListTypeInfo, MapTypeInfo as MapTypeInfo, ObjectArrayTypeInfo as
        ObjectArrayTypeInfo, PickledBytesTypeInfo as PickledBytesTypeInfo, PrimitiveArrayTypeInfo as
        PrimitiveArrayTypeInfo, RowTypeInfo as RowTypeInfo, SqlTimeTypeInfo as SqlTimeTypeInfo,
        TimeTypeInfo as TimeTypeInfo, TimestampTypeInfo as TimestampTypeInfo, TupleTypeInfo as
        TupleTypeInfo, TypeInformation as TypeInformation, UnionTypeInfo as UnionTypeInfo
    )
    from .api.types.type_info import TypeInfo as TypeInfo, Types as Types
    from .api.watermarks import (
        TimestampAssigner as TimestampAssigner, WatermarkGenerator as WatermarkGenerator,
        WatermarkStrategy as WatermarkStrategy
    )
    from .api.windows.base import (
        CountWindow as CountWindow, GlobalWindow as GlobalWindow, MergingWindowAssigner as
        MergingWindowAssigner, TimeWindow as TimeWindow, Trigger as Trigger, TriggerContext as
        TriggerContext, TriggerResult as TriggerResult, Window as Window, WindowAssigner as
        WindowAssigner
    )
    from .api.windows.continuous_triggers import (
        ContinuousEventTimeTrigger as ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger as
        ContinuousProcessingTimeTrigger
    )
    from .api.windows.count_windows import (
        CountSlidingWindowAssigner as CountSlidingWindowAssigner, CountTumblingWindowAssigner as
        CountTumblingWindowAssigner
    )
    from .api.windows.evictors import (
        CountEvictor as CountEvictor, DeltaEvictor as DeltaEvictor, DeltaFunction as DeltaFunction,
        Evictor as Evictor, TimeEvictor as TimeEvictor, TimestampedValue as TimestampedValue
    )
    from .api.windows.session_windows import (
        DynamicEventTimeSessionWindows as DynamicEventTimeSessionWindows,
        DynamicProcessingTimeSessionWindows as DynamicProcessingTimeSessionWindows,
        EventTimeSessionWindows as EventTimeSessionWindows, ProcessingTimeSessionWindows as
        ProcessingTimeSessionWindows, SessionWindowTimeGapExtractor as SessionWindowTimeGapExtractor
    )
    from .api.windows.time_windows import (
        CumulateEventTimeWindows as CumulateEventTimeWindows, GlobalWindows as GlobalWindows,
        SlidingEventTimeWindows as SlidingEventTimeWindows, SlidingProcessingTimeWindows as
        SlidingProcessingTimeWindows, TumblingEventTimeWindows as TumblingEventTimeWindows,
        TumblingProcessingTimeWindows as TumblingProcessingTimeWindows
    )
    from .api.windows.triggers import (
        CountTrigger as CountTrigger, EventTimeTrigger as EventTimeTrigger, NeverTrigger as
        NeverTrigger, ProcessingTimeTrigger as ProcessingTimeTrigger, PurgingTrigger as
        PurgingTrigger
    )
    from .cluster.session_client import attach as attach
    from .core.adaptive_config import AdaptiveConfig as AdaptiveConfig
    from .core.answered import CompletableFuture as CompletableFuture, JobID as JobID
    from .core.batch import Batch as Batch, ColumnBatch as ColumnBatch, ObjectBatch as ObjectBatch
    from .core.config import (
        ExchangeConfig as ExchangeConfig, ExponentialDelayRestart as ExponentialDelayRestart,
        FailureRateRestart as FailureRateRestart, FixedDelayRestart as FixedDelayRestart, JobConfig
        as JobConfig, NoRestart as NoRestart, RestartStrategyConfiguration as
        RestartStrategyConfiguration
    )
    from .core.errors import (
        AuthenticationError as AuthenticationError, CheckpointError as CheckpointError, CommitError
        as CommitError, ConfigurationError as ConfigurationError, ConnectorError as ConnectorError,
        CorruptCheckpointError as CorruptCheckpointError, GraphError as GraphError,
        IllegalTransitionError as IllegalTransitionError, JobCancelledError as JobCancelledError,
        JobFailedError as JobFailedError, OperatorError as OperatorError, RescaleError as
        RescaleError, ResourceError as ResourceError, RetryableCommitError as RetryableCommitError,
        SerializationError as SerializationError, StateError as StateError, StromError as
        StromError, TransportError as TransportError, TypeMismatchError as TypeMismatchError
    )
    from .core.job_status import JobStatus as JobStatus
    from .core.metrics_config import MetricsConfig as MetricsConfig
    from .core.row import Row as Row
    from .core.row import RowKind as RowKind
    from .core.state_config import StateConfig as StateConfig
    from .core.union_type import OfKind as OfKind
    from .engine.hosts.ray_connect import connect_to_ray as connect_to_ray
    from .state.descriptors import (
        AggregatingStateDescriptor as AggregatingStateDescriptor, ListStateDescriptor as
        ListStateDescriptor, MapStateDescriptor as MapStateDescriptor, ReducingStateDescriptor as
        ReducingStateDescriptor, StateDescriptor as StateDescriptor, ValueStateDescriptor as
        ValueStateDescriptor
    )
    from .state.faces import (
        AggregatingState as AggregatingState, AppendingState as AppendingState, BroadcastState as
        BroadcastState, ListState as ListState, MapState as MapState, MergingState as MergingState,
        OperatorStateStore as OperatorStateStore, ReadOnlyBroadcastState as ReadOnlyBroadcastState,
        ReducingState as ReducingState, State as State, ValueState as ValueState
    )
    from .state.ttl import StateTtlConfig as StateTtlConfig
# isort: on
# fmt: on

_PUBLIC = {
    "api.aggregates": (
        "Aggregate approx_count_distinct arg_max arg_min collect count count_distinct first "
        "largest last max_ mean min_ smallest stddev sum_ variance"
    ),
    "api.configuration.checkpoints": "CheckpointConfig",
    "api.configuration.configuration": "Configuration",
    "api.configuration.execution_config": "ExecutionConfig",
    "api.configuration.memory": "MemorySize",
    "api.configuration.modes": (
        "CheckpointingMode ExternalizedCheckpointRetention RuntimeExecutionMode"
    ),
    "api.configuration.options": "ConfigOption ConfigOptions",
    "api.configuration.slots": "SlotSharingGroup",
    "api.configuration.state_backends": "EmbeddedRocksDBStateBackend PredefinedOptions",
    "api.configuration.storage": (
        "CheckpointStorage FileSystemCheckpointStorage HashMapStateBackend "
        "JobManagerCheckpointStorage StateBackend"
    ),
    "api.connectors.base": (
        "Emit EnumeratorContext NeedSplit ReaderContext Sink SinkWriter Source SourceReader "
        "SplitEnumerator Wait WriterContext"
    ),
    "api.connectors.builtin_sinks": "CollectSink DiscardSink PrintSink",
    "api.dead_letters": "DeadLetters dead_letters",
    "api.functions.accumulators": (
        "Accumulator AverageAccumulator DoubleCounter Histogram IntCounter ListAccumulator "
        "LongCounter Maximum Minimum"
    ),
    "api.functions.async_functions": (
        "AsyncFunction AsyncRetryPredicate AsyncRetryStrategy ExponentialBackoffDelayRetryStrategy "
        "FixedDelayRetryStrategy NoRetryStrategy RetryPredicate"
    ),
    "api.functions.checkpointed": (
        "CheckpointedFunction FunctionInitializationContext FunctionSnapshotContext"
    ),
    "api.functions.co_functions": (
        "BaseBroadcastProcessFunction BroadcastProcessFunction CoFlatMapFunction CoMapFunction "
        "CoProcessFunction KeyedBroadcastProcessFunction KeyedCoProcessFunction"
    ),
    "api.functions.metrics": "Counter Distribution Meter MetricGroup",
    "api.functions.user_functions": (
        "AggregateFunction AllWindowFunction FilterFunction FlatMapFunction Function KeySelector "
        "KeySelectorFunction KeyedProcessFunction KeyedStateStore MapFunction NullByteKeySelector "
        "OutputTag Partitioner PassThroughAllWindowFunction PassThroughWindowFunction "
        "ProcessAllWindowFunction ProcessFunction ProcessWindowFunction ReduceFunction "
        "RuntimeContext TimeDomain TimerService WindowFunction"
    ),
    "api.jobs.collected": "CloseableIterator CollectedResults",
    "api.jobs.host": "Host JobClient JobExecutionResult RescaleResult",
    "api.jobs.restart_strategies": "RestartStrategies",
    "api.streams.async_data_stream": "AsyncDataStream",
    "api.streams.connected": "BroadcastConnectedStream BroadcastStream ConnectedStreams",
    "api.streams.data_stream": (
        "AllWindowedStream CachedDataStream DataStream KeyedStream StreamExecutionEnvironment "
        "WindowedStream"
    ),
    "api.streams.settings": "DataStreamSink",
    "api.types.durations": "Duration Instant Time",
    "api.types.type_classes": (
        "BasicArrayTypeInfo BasicType BasicTypeInfo DateTypeInfo InstantTypeInfo ListTypeInfo "
        "MapTypeInfo ObjectArrayTypeInfo PickledBytesTypeInfo PrimitiveArrayTypeInfo RowTypeInfo "
        "SqlTimeTypeInfo TimeTypeInfo TimestampTypeInfo TupleTypeInfo TypeInformation "
        "UnionTypeInfo"
    ),
    "api.types.type_info": "TypeInfo Types",
    "api.watermarks": "TimestampAssigner WatermarkGenerator WatermarkStrategy",
    "api.windows.base": (
        "CountWindow GlobalWindow MergingWindowAssigner TimeWindow Trigger TriggerContext "
        "TriggerResult Window WindowAssigner"
    ),
    "api.windows.continuous_triggers": "ContinuousEventTimeTrigger ContinuousProcessingTimeTrigger",
    "api.windows.count_windows": "CountSlidingWindowAssigner CountTumblingWindowAssigner",
    "api.windows.evictors": (
        "CountEvictor DeltaEvictor DeltaFunction Evictor TimeEvictor TimestampedValue"
    ),
    "api.windows.session_windows": (
        "DynamicEventTimeSessionWindows DynamicProcessingTimeSessionWindows "
        "EventTimeSessionWindows ProcessingTimeSessionWindows SessionWindowTimeGapExtractor"
    ),
    "api.windows.time_windows": (
        "CumulateEventTimeWindows GlobalWindows SlidingEventTimeWindows "
        "SlidingProcessingTimeWindows TumblingEventTimeWindows TumblingProcessingTimeWindows"
    ),
    "api.windows.triggers": (
        "CountTrigger EventTimeTrigger NeverTrigger ProcessingTimeTrigger PurgingTrigger"
    ),
    "cluster.session_client": "attach",
    "core.adaptive_config": "AdaptiveConfig",
    "core.answered": "CompletableFuture JobID",
    "core.batch": "Batch ColumnBatch ObjectBatch",
    "core.config": (
        "ExchangeConfig ExponentialDelayRestart FailureRateRestart FixedDelayRestart JobConfig "
        "NoRestart RestartStrategyConfiguration"
    ),
    "core.errors": (
        "AuthenticationError CheckpointError CommitError ConfigurationError ConnectorError "
        "CorruptCheckpointError GraphError IllegalTransitionError JobCancelledError JobFailedError "
        "OperatorError RescaleError ResourceError RetryableCommitError SerializationError "
        "StateError StromError TransportError TypeMismatchError"
    ),
    "core.job_status": "JobStatus",
    "core.metrics_config": "MetricsConfig",
    "core.row": "Row RowKind",
    "core.state_config": "StateConfig",
    "core.union_type": "OfKind",
    "engine.hosts.ray_connect": "connect_to_ray",
    "state.descriptors": (
        "AggregatingStateDescriptor ListStateDescriptor MapStateDescriptor ReducingStateDescriptor "
        "StateDescriptor ValueStateDescriptor"
    ),
    "state.faces": (
        "AggregatingState AppendingState BroadcastState ListState MapState MergingState "
        "OperatorStateStore ReadOnlyBroadcastState ReducingState State ValueState"
    ),
    "state.ttl": "StateTtlConfig",
}
"""Module -> the public names it holds; the imports above say the same to type checkers."""

_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def _open_host(name: str, options: Mapping[str, Any]) -> Host:
    if name == "ray":
        from .cluster.session_host import SessionHost

        return SessionHost(**options)
    from .engine import hosts

    host: Host = hosts.open_host(name, **options)
    return host


def _open_pages(client: JobClient) -> Any:
    from .rest.servers.job_server import open_pages

    return open_pages(client)


def _frame_bridge() -> Any:
    from .connectors.spark import frames

    return frames


def _shows() -> Shows:
    from .notebook import views

    return views


def _open_state() -> Any:
    from . import snapshots

    return snapshots


register_host_opener(_open_host)
register_pages_opener(_open_pages)
register_frame_bridge(_frame_bridge)
register_shows(_shows)
register_open_state(_open_state)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        from importlib import import_module

        value = getattr(import_module(f".{module}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

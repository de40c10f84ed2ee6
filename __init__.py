"""strom: stateful stream processing in Python on Ray.

The public face. Names load their modules on first use, so `import strom` itself costs next to
nothing. This is also the composition root: it tells the API, which runs nothing, how a host is
opened and how an aggregate is run over rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .api.aggregates import register_row_functions
from .api.jobs.host import register_host_opener

# fmt: off
# isort: off
if TYPE_CHECKING:
    from .api.aggregates import (
        Aggregate as Aggregate, approx_count_distinct as approx_count_distinct, arg_max as arg_max,
        arg_min as arg_min, collect as collect, count as count, count_distinct as count_distinct,
        first as first, largest as largest, last as last, max_ as max_, mean as mean, min_ as min_,
        smallest as smallest, stddev as stddev, sum_ as sum_, variance as variance
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
    from .api.functions.user_functions import (
        AggregateFunction as AggregateFunction, AllWindowFunction as AllWindowFunction,
        FilterFunction as FilterFunction, FlatMapFunction as FlatMapFunction, Function as Function,
        KeySelector as KeySelector, KeySelectorFunction as KeySelectorFunction, KeyedProcessFunction
        as KeyedProcessFunction, MapFunction as MapFunction, OutputTag as OutputTag, Partitioner as
        Partitioner, ProcessAllWindowFunction as ProcessAllWindowFunction, ProcessFunction as
        ProcessFunction, ProcessWindowFunction as ProcessWindowFunction, ReduceFunction as
        ReduceFunction, RuntimeContext as RuntimeContext, TimeDomain as TimeDomain, TimerService as
        TimerService, WindowFunction as WindowFunction
    )
    from .api.jobs.collected import CollectedResults as CollectedResults
    from .api.jobs.host import (
        Host as Host, JobClient as JobClient, JobExecutionResult as JobExecutionResult
    )
    from .api.jobs.settings import RestartStrategies as RestartStrategies
    from .api.streams.data_stream import (
        AllWindowedStream as AllWindowedStream, DataStream as DataStream, KeyedStream as
        KeyedStream, StreamExecutionEnvironment as StreamExecutionEnvironment, WindowedStream as
        WindowedStream
    )
    from .api.streams.settings import DataStreamSink as DataStreamSink
    from .api.types.durations import Duration as Duration, Time as Time
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
    from .core.batch import Batch as Batch, ColumnBatch as ColumnBatch, ObjectBatch as ObjectBatch
    from .core.config import (
        CheckpointConfig as CheckpointConfig, ExchangeConfig as ExchangeConfig,
        ExponentialDelayRestart as ExponentialDelayRestart, FailureRateRestart as
        FailureRateRestart, FixedDelayRestart as FixedDelayRestart, JobConfig as JobConfig,
        NoRestart as NoRestart
    )
    from .core.errors import (
        AuthenticationError as AuthenticationError, CheckpointError as CheckpointError,
        ConfigurationError as ConfigurationError, ConnectorError as ConnectorError,
        CorruptCheckpointError as CorruptCheckpointError, GraphError as GraphError,
        IllegalTransitionError as IllegalTransitionError, JobCancelledError as JobCancelledError,
        JobFailedError as JobFailedError, OperatorError as OperatorError, ResourceError as
        ResourceError, SerializationError as SerializationError, StateError as StateError,
        StromError as StromError, TransportError as TransportError, TypeMismatchError as
        TypeMismatchError
    )
    from .core.job_status import JobStatus as JobStatus
    from .core.row import Row as Row
    from .core.row_kind import RowKind as RowKind
    from .engine.hosts.ray_connect import connect_to_ray as connect_to_ray
    from .state.descriptors import (
        AggregatingStateDescriptor as AggregatingStateDescriptor, ListStateDescriptor as
        ListStateDescriptor, MapStateDescriptor as MapStateDescriptor, ReducingStateDescriptor as
        ReducingStateDescriptor, ValueStateDescriptor as ValueStateDescriptor
    )
    from .state.faces import (
        AggregatingState as AggregatingState, ListState as ListState, MapState as MapState,
        ReducingState as ReducingState, ValueState as ValueState
    )
# isort: on
# fmt: on

_PUBLIC = {
    "api.aggregates": (
        "Aggregate approx_count_distinct arg_max arg_min collect count count_distinct first "
        "largest last max_ mean min_ smallest stddev sum_ variance"
    ),
    "api.connectors.base": (
        "Emit EnumeratorContext NeedSplit ReaderContext Sink SinkWriter Source SourceReader "
        "SplitEnumerator Wait WriterContext"
    ),
    "api.connectors.builtin_sinks": "CollectSink DiscardSink PrintSink",
    "api.functions.user_functions": (
        "AggregateFunction AllWindowFunction FilterFunction FlatMapFunction Function KeySelector "
        "KeySelectorFunction KeyedProcessFunction MapFunction OutputTag Partitioner "
        "ProcessAllWindowFunction ProcessFunction ProcessWindowFunction ReduceFunction "
        "RuntimeContext TimeDomain TimerService WindowFunction"
    ),
    "api.jobs.collected": "CollectedResults",
    "api.jobs.host": "Host JobClient JobExecutionResult",
    "api.jobs.settings": "RestartStrategies",
    "api.streams.data_stream": (
        "AllWindowedStream DataStream KeyedStream StreamExecutionEnvironment WindowedStream"
    ),
    "api.streams.settings": "DataStreamSink",
    "api.types.durations": "Duration Time",
    "api.types.type_info": "TypeInfo Types",
    "api.watermarks": "TimestampAssigner WatermarkGenerator WatermarkStrategy",
    "api.windows.base": (
        "CountWindow GlobalWindow MergingWindowAssigner TimeWindow Trigger TriggerContext "
        "TriggerResult Window WindowAssigner"
    ),
    "api.windows.continuous_triggers": "ContinuousEventTimeTrigger ContinuousProcessingTimeTrigger",
    "api.windows.count_windows": "CountSlidingWindowAssigner CountTumblingWindowAssigner",
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
    "core.batch": "Batch ColumnBatch ObjectBatch",
    "core.config": (
        "CheckpointConfig ExchangeConfig ExponentialDelayRestart FailureRateRestart "
        "FixedDelayRestart JobConfig NoRestart"
    ),
    "core.errors": (
        "AuthenticationError CheckpointError ConfigurationError ConnectorError "
        "CorruptCheckpointError GraphError IllegalTransitionError JobCancelledError "
        "JobFailedError OperatorError ResourceError SerializationError StateError StromError "
        "TransportError TypeMismatchError"
    ),
    "core.job_status": "JobStatus",
    "core.row": "Row",
    "core.row_kind": "RowKind",
    "engine.hosts.ray_connect": "connect_to_ray",
    "state.descriptors": (
        "AggregatingStateDescriptor ListStateDescriptor MapStateDescriptor "
        "ReducingStateDescriptor ValueStateDescriptor"
    ),
    "state.faces": "AggregatingState ListState MapState ReducingState ValueState",
}
"""Module -> the public names it holds; the imports above say the same to type checkers."""

_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def _open_host(name: str, options: Mapping[str, Any]) -> Host:
    from .engine import hosts

    host: Host = hosts.open_host(name, **options)
    return host


def _row_functions(aggregate: Aggregate) -> AggregateFunction:
    from .operators.row_folds.aggregate import RowAggregate

    return RowAggregate(aggregate)


register_host_opener(_open_host)
register_row_functions(_row_functions)

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

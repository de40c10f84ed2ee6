"""The names of `pyflink.datastream`, which load their modules on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy_names

if TYPE_CHECKING:
    from .async_data_stream import AsyncDataStream as AsyncDataStream
    from .async_retry_strategies import (
        ExponentialBackoffDelayRetryStrategy as ExponentialBackoffDelayRetryStrategy,
        FixedDelayRetryStrategy as FixedDelayRetryStrategy,
        NoRetryStrategy as NoRetryStrategy,
        RetryPredicate as RetryPredicate,
    )
    from .checkpoint_config import CheckpointConfig as CheckpointConfig
    from .checkpoint_storage import (
        CheckpointStorage as CheckpointStorage,
        FileSystemCheckpointStorage as FileSystemCheckpointStorage,
        JobManagerCheckpointStorage as JobManagerCheckpointStorage,
    )
    from .checkpointing_mode import CheckpointingMode as CheckpointingMode
    from .data_stream import (
        AllWindowedStream as AllWindowedStream,
        BroadcastConnectedStream as BroadcastConnectedStream,
        BroadcastStream as BroadcastStream,
        CachedDataStream as CachedDataStream,
        CloseableIterator as CloseableIterator,
        ConnectedStreams as ConnectedStreams,
        DataStream as DataStream,
        DataStreamSink as DataStreamSink,
        KeyedStream as KeyedStream,
        WindowedStream as WindowedStream,
    )
    from .execution_mode import RuntimeExecutionMode as RuntimeExecutionMode
    from .externalized_checkpoint_retention import (
        ExternalizedCheckpointRetention as ExternalizedCheckpointRetention,
    )
    from .functions import (
        AggregateFunction as AggregateFunction,
        AllWindowFunction as AllWindowFunction,
        AsyncFunction as AsyncFunction,
        AsyncRetryPredicate as AsyncRetryPredicate,
        AsyncRetryStrategy as AsyncRetryStrategy,
        BaseBroadcastProcessFunction as BaseBroadcastProcessFunction,
        BroadcastProcessFunction as BroadcastProcessFunction,
        CoFlatMapFunction as CoFlatMapFunction,
        CoMapFunction as CoMapFunction,
        CoProcessFunction as CoProcessFunction,
        FilterFunction as FilterFunction,
        FlatMapFunction as FlatMapFunction,
        Function as Function,
        KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
        KeyedCoProcessFunction as KeyedCoProcessFunction,
        KeyedProcessFunction as KeyedProcessFunction,
        KeyedStateStore as KeyedStateStore,
        KeySelector as KeySelector,
        MapFunction as MapFunction,
        NullByteKeySelector as NullByteKeySelector,
        Partitioner as Partitioner,
        PassThroughAllWindowFunction as PassThroughAllWindowFunction,
        PassThroughWindowFunction as PassThroughWindowFunction,
        ProcessAllWindowFunction as ProcessAllWindowFunction,
        ProcessFunction as ProcessFunction,
        ProcessWindowFunction as ProcessWindowFunction,
        ReduceFunction as ReduceFunction,
        RuntimeContext as RuntimeContext,
        WindowFunction as WindowFunction,
    )
    from .output_tag import OutputTag as OutputTag
    from .slot_sharing_group import MemorySize as MemorySize, SlotSharingGroup as SlotSharingGroup
    from .state import (
        AggregatingState as AggregatingState,
        AggregatingStateDescriptor as AggregatingStateDescriptor,
        AppendingState as AppendingState,
        BroadcastState as BroadcastState,
        ListState as ListState,
        ListStateDescriptor as ListStateDescriptor,
        MapState as MapState,
        MapStateDescriptor as MapStateDescriptor,
        MergingState as MergingState,
        OperatorStateStore as OperatorStateStore,
        ReadOnlyBroadcastState as ReadOnlyBroadcastState,
        ReducingState as ReducingState,
        ReducingStateDescriptor as ReducingStateDescriptor,
        State as State,
        StateDescriptor as StateDescriptor,
        StateTtlConfig as StateTtlConfig,
        ValueState as ValueState,
        ValueStateDescriptor as ValueStateDescriptor,
    )
    from .state_backend import (
        EmbeddedRocksDBStateBackend as EmbeddedRocksDBStateBackend,
        HashMapStateBackend as HashMapStateBackend,
        PredefinedOptions as PredefinedOptions,
        StateBackend as StateBackend,
    )
    from .stream_execution_environment import (
        StreamExecutionEnvironment as StreamExecutionEnvironment,
    )
    from .time_domain import TimeDomain as TimeDomain
    from .timerservice import TimerService as TimerService
    from .window import (
        ContinuousEventTimeTrigger as ContinuousEventTimeTrigger,
        ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
        CountSlidingWindowAssigner as CountSlidingWindowAssigner,
        CountTrigger as CountTrigger,
        CountTumblingWindowAssigner as CountTumblingWindowAssigner,
        CountWindow as CountWindow,
        DynamicEventTimeSessionWindows as DynamicEventTimeSessionWindows,
        DynamicProcessingTimeSessionWindows as DynamicProcessingTimeSessionWindows,
        EventTimeSessionWindows as EventTimeSessionWindows,
        EventTimeTrigger as EventTimeTrigger,
        GlobalWindow as GlobalWindow,
        GlobalWindows as GlobalWindows,
        MergingWindowAssigner as MergingWindowAssigner,
        NeverTrigger as NeverTrigger,
        ProcessingTimeSessionWindows as ProcessingTimeSessionWindows,
        ProcessingTimeTrigger as ProcessingTimeTrigger,
        PurgingTrigger as PurgingTrigger,
        SessionWindowTimeGapExtractor as SessionWindowTimeGapExtractor,
        SlidingEventTimeWindows as SlidingEventTimeWindows,
        SlidingProcessingTimeWindows as SlidingProcessingTimeWindows,
        TimeWindow as TimeWindow,
        Trigger as Trigger,
        TriggerResult as TriggerResult,
        TumblingEventTimeWindows as TumblingEventTimeWindows,
        TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
        Window as Window,
        WindowAssigner as WindowAssigner,
    )

_NAMES = {
    "async_data_stream": "AsyncDataStream",
    "async_retry_strategies": (
        "ExponentialBackoffDelayRetryStrategy FixedDelayRetryStrategy NoRetryStrategy "
        "RetryPredicate"
    ),
    "checkpoint_config": "CheckpointConfig",
    "checkpoint_storage": (
        "CheckpointStorage FileSystemCheckpointStorage JobManagerCheckpointStorage"
    ),
    "checkpointing_mode": "CheckpointingMode",
    "data_stream": (
        "AllWindowedStream BroadcastConnectedStream BroadcastStream CachedDataStream "
        "CloseableIterator ConnectedStreams DataStream DataStreamSink KeyedStream WindowedStream"
    ),
    "execution_mode": "RuntimeExecutionMode",
    "externalized_checkpoint_retention": "ExternalizedCheckpointRetention",
    "functions": (
        "AggregateFunction AllWindowFunction AsyncFunction AsyncRetryPredicate AsyncRetryStrategy "
        "BaseBroadcastProcessFunction BroadcastProcessFunction CoFlatMapFunction CoMapFunction "
        "CoProcessFunction FilterFunction FlatMapFunction Function KeySelector "
        "KeyedBroadcastProcessFunction KeyedCoProcessFunction KeyedProcessFunction "
        "KeyedStateStore MapFunction NullByteKeySelector Partitioner PassThroughAllWindowFunction "
        "PassThroughWindowFunction ProcessAllWindowFunction ProcessFunction ProcessWindowFunction "
        "ReduceFunction RuntimeContext WindowFunction"
    ),
    "output_tag": "OutputTag",
    "slot_sharing_group": "MemorySize SlotSharingGroup",
    "state": (
        "AggregatingState AggregatingStateDescriptor AppendingState BroadcastState ListState "
        "ListStateDescriptor MapState MapStateDescriptor MergingState OperatorStateStore "
        "ReadOnlyBroadcastState ReducingState ReducingStateDescriptor State StateDescriptor "
        "StateTtlConfig ValueState ValueStateDescriptor"
    ),
    "state_backend": (
        "EmbeddedRocksDBStateBackend HashMapStateBackend PredefinedOptions StateBackend"
    ),
    "stream_execution_environment": "StreamExecutionEnvironment",
    "time_domain": "TimeDomain",
    "timerservice": "TimerService",
    "window": (
        "ContinuousEventTimeTrigger ContinuousProcessingTimeTrigger CountSlidingWindowAssigner "
        "CountTrigger CountTumblingWindowAssigner CountWindow DynamicEventTimeSessionWindows "
        "DynamicProcessingTimeSessionWindows EventTimeSessionWindows EventTimeTrigger "
        "GlobalWindow GlobalWindows MergingWindowAssigner NeverTrigger "
        "ProcessingTimeSessionWindows ProcessingTimeTrigger PurgingTrigger "
        "SessionWindowTimeGapExtractor SlidingEventTimeWindows SlidingProcessingTimeWindows "
        "TimeWindow Trigger TriggerResult TumblingEventTimeWindows TumblingProcessingTimeWindows "
        "Window WindowAssigner"
    ),
}

__all__, __getattr__ = lazy_names(__name__, _NAMES)

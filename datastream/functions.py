"""The names of `pyflink.datastream.functions`."""

from ..api.functions.async_functions import (
    AsyncFunction as AsyncFunction,
    AsyncRetryPredicate as AsyncRetryPredicate,
    AsyncRetryStrategy as AsyncRetryStrategy,
)
from ..api.functions.co_functions import (
    BaseBroadcastProcessFunction as BaseBroadcastProcessFunction,
    BroadcastProcessFunction as BroadcastProcessFunction,
    CoFlatMapFunction as CoFlatMapFunction,
    CoMapFunction as CoMapFunction,
    CoProcessFunction as CoProcessFunction,
    KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction as KeyedCoProcessFunction,
)
from ..api.functions.user_functions import (
    AggregateFunction as AggregateFunction,
    AllWindowFunction as AllWindowFunction,
    FilterFunction as FilterFunction,
    FlatMapFunction as FlatMapFunction,
    Function as Function,
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
    TimerService as TimerService,
    WindowFunction as WindowFunction,
)

"""The names of `pyflink.datastream.state`."""

from ..state.descriptors import (
    AggregatingStateDescriptor as AggregatingStateDescriptor,
    ListStateDescriptor as ListStateDescriptor,
    MapStateDescriptor as MapStateDescriptor,
    ReducingStateDescriptor as ReducingStateDescriptor,
    StateDescriptor as StateDescriptor,
    ValueStateDescriptor as ValueStateDescriptor,
)
from ..state.faces import (
    AggregatingState as AggregatingState,
    AppendingState as AppendingState,
    BroadcastState as BroadcastState,
    ListState as ListState,
    MapState as MapState,
    MergingState as MergingState,
    OperatorStateStore as OperatorStateStore,
    ReadOnlyBroadcastState as ReadOnlyBroadcastState,
    ReducingState as ReducingState,
    State as State,
    ValueState as ValueState,
)
from ..state.ttl import StateTtlConfig as StateTtlConfig

"""What a user function may ask of its subtask, over the operator's own context."""

from __future__ import annotations

from typing import Any

from ...api.functions.accumulators import Accumulator
from ...core.errors import ConfigurationError, StateError, TypeMismatchError
from ...core.job_files import DistributedCache
from ...state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from ...state.faces import AggregatingState, ListState, MapState, ReducingState, ValueState
from ..base import OperatorContext
from .metric_group import OperatorMetricGroup


class OperatorRuntimeContext:
    """The RuntimeContext of row functions. `keyed`: it may ask for state of the current key."""

    def __init__(self, ctx: OperatorContext, keyed: bool) -> None:
        self._ctx = ctx
        self._keyed = keyed
        self._metrics = OperatorMetricGroup(ctx)

    @property
    def operator(self) -> OperatorContext:
        """The operator's own context."""
        return self._ctx

    def get_task_name(self) -> str:
        return self._ctx.name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._ctx.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._ctx.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._ctx.subtask

    def get_attempt_number(self) -> int:
        return self._ctx.attempt

    def get_task_name_with_subtasks(self) -> str:
        return f"{self._ctx.name} ({self._ctx.subtask + 1}/{self._ctx.parallelism})"

    def get_job_parameter(self, key: str, default_value: Any = None) -> Any:
        return self._ctx.config.job_parameters.get(key, default_value)

    def get_distributed_cache(self) -> DistributedCache:
        return DistributedCache(self._ctx.job_id, self._ctx.config.job_files)

    def get_metrics_group(self) -> OperatorMetricGroup:
        return self._metrics

    def add_accumulator(self, name: str, accumulator: Accumulator[Any, Any]) -> None:
        """See `api.functions.accumulators`. Once per name in an operator."""
        held = self._ctx.user_metrics.accumulators
        if not isinstance(accumulator, Accumulator):
            raise TypeMismatchError(
                f"operator '{self._ctx.name}': accumulator '{name}' must be an Accumulator such as "
                f"LongCounter(), is {accumulator!r}"
            )
        if name in held:
            raise ConfigurationError(
                f"operator '{self._ctx.name}' has an accumulator '{name}' already: use "
                "get_accumulator, or another name"
            )
        held[name] = accumulator

    def get_accumulator(self, name: str) -> Accumulator[Any, Any] | None:
        """What this subtask of the operator added under the name; None: nothing."""
        return self._ctx.user_metrics.accumulators.get(name)

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState:
        self._require_key(state_descriptor)
        return self._ctx.keyed_state.get_state(state_descriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        self._require_key(state_descriptor)
        return self._ctx.keyed_state.get_list_state(state_descriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState:
        self._require_key(state_descriptor)
        return self._ctx.keyed_state.get_map_state(state_descriptor)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState:
        self._require_key(state_descriptor)
        return self._ctx.keyed_state.get_reducing_state(state_descriptor)

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState:
        self._require_key(state_descriptor)
        return self._ctx.keyed_state.get_aggregating_state(state_descriptor)

    def _require_key(self, descriptor: StateDescriptor) -> None:
        if not self._keyed:
            raise StateError(
                f"operator '{self._ctx.name}' asks for keyed state '{descriptor.name}', but its "
                "input has no key: put key_by(...) before it"
            )

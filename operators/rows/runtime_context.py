"""What a user function may ask of its subtask, over the operator's own context."""

from __future__ import annotations

from typing import Any

from ...core.errors import StateError
from ...state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from ...state.faces import AggregatingState, ListState, MapState, ReducingState, ValueState
from ..base import Metrics, OperatorContext


class MetricCounter:
    """One named counter of the operator's subtask."""

    __slots__ = ("_metrics", "_name")

    def __init__(self, metrics: Metrics, name: str) -> None:
        self._metrics = metrics
        self._name = name

    def inc(self, n: int = 1) -> None:
        self._metrics.count(self._name, n)

    def dec(self, n: int = 1) -> None:
        self._metrics.count(self._name, -n)

    def get_count(self) -> int:
        return self._metrics.get_count(self._name)


class OperatorMetricGroup:
    """Metrics of one operator's subtask."""

    __slots__ = ("_metrics",)

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def counter(self, name: str) -> MetricCounter:
        """The counter `name`; asked for twice, the same count."""
        return MetricCounter(self._metrics, name)


class OperatorRuntimeContext:
    """The RuntimeContext of row functions. `keyed`: it may ask for state of the current key."""

    def __init__(self, ctx: OperatorContext, keyed: bool) -> None:
        self._ctx = ctx
        self._keyed = keyed
        self._metrics = OperatorMetricGroup(ctx.metrics)

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

    def get_metrics_group(self) -> OperatorMetricGroup:
        return self._metrics

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

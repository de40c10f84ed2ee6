"""What triggers, assigners and window functions may ask for, all over one selected window.

One object of each kind serves a whole operator: `select` points them at a window of the current
key, and they are valid until the next call. States that users name get a prefix, so that a
trigger's, a window's and a key's state of one name are three states.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ...core.errors import StateError
from ...state.backend import KeyedStateBackend
from ...state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from ..rows.metric_group import OperatorMetricGroup
from ..rows.runtime_context import OperatorRuntimeContext
from ..rows.timers import Timers, timer_time
from .window_namespace import Namespace


class PrefixedStates:
    """Per-window states whose names start with a prefix."""

    def __init__(self, state: KeyedStateBackend, prefix: str) -> None:
        self._state = state
        self._prefix = prefix
        self._known: dict[str, tuple[Any, Any]] = {}

    def of(self, descriptor: Any, namespace: Namespace) -> Any:
        """The current key's state under `namespace`; valid until the next call for this name."""
        kind, state = self._known.get(descriptor.name, (None, None))
        if kind is not type(descriptor):
            renamed = copy.copy(descriptor)
            object.__setattr__(renamed, "name", f"{self._prefix}{descriptor.name}")
            state = self._state.namespaced(renamed)
            self._known[descriptor.name] = (type(descriptor), state)
        return state.of(namespace)


class AssignerContext:
    """WindowAssignerContext."""

    def __init__(self, timers: Timers, runtime: OperatorRuntimeContext) -> None:
        self._runtime = runtime
        self.get_current_processing_time = timers.now

    def get_runtime_context(self) -> OperatorRuntimeContext:
        return self._runtime


class TriggerWindow:
    """TriggerContext and OnMergeContext."""

    def __init__(
        self, state: KeyedStateBackend, timers: Timers, group: OperatorMetricGroup
    ) -> None:
        self._states = PrefixedStates(state, "trigger:")
        self._timers = timers
        self._group = group
        self._namespace: Namespace = None
        self._merged: Sequence[Namespace] = ()
        """During `on_merge`: the windows whose state is to be folded into the selected one."""

    def select(self, namespace: Namespace, merged: Sequence[Namespace] = ()) -> None:
        self._namespace = namespace
        self._merged = merged

    def get_current_processing_time(self) -> int:
        return self._timers.now()

    def get_current_watermark(self) -> int:
        return self._timers.watermark

    def get_metric_group(self) -> OperatorMetricGroup:
        return self._group

    def register_processing_time_timer(self, time: int) -> None:
        self._timers.register_processing(
            timer_time(time, "register_processing_time_timer"), self._namespace
        )

    def register_event_time_timer(self, time: int) -> None:
        self._timers.register_event(timer_time(time, "register_event_time_timer"), self._namespace)

    def delete_processing_time_timer(self, time: int) -> None:
        self._timers.delete_processing(
            timer_time(time, "delete_processing_time_timer"), self._namespace
        )

    def delete_event_time_timer(self, time: int) -> None:
        self._timers.delete_event(timer_time(time, "delete_event_time_timer"), self._namespace)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        return self._states.of(state_descriptor, self._namespace)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        if not isinstance(state_descriptor, (ListStateDescriptor, ReducingStateDescriptor)):
            raise StateError(
                f"trigger state '{state_descriptor.name}' of type "
                f"{type(state_descriptor).__name__} cannot be merged: use list or reducing state"
            )
        for source in self._merged:
            state = self._states.of(state_descriptor, source)
            held = state.get()
            values = list(held) if isinstance(state_descriptor, ListStateDescriptor) else [held]
            state.clear()
            target = self._states.of(state_descriptor, self._namespace)
            for value in values:
                if value is not None:
                    target.add(value)


class _WindowStateStore:
    """State of the selected window, for `window_state()`."""

    def __init__(self, context: ProcessContext, states: PrefixedStates) -> None:
        self._context = context
        self._states = states

    def get_state(self, state_descriptor: ValueStateDescriptor) -> Any:
        return self._of(state_descriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> Any:
        return self._of(state_descriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> Any:
        return self._of(state_descriptor)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> Any:
        return self._of(state_descriptor)

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> Any:
        return self._of(state_descriptor)

    def _of(self, descriptor: Any) -> Any:
        return self._states.of(descriptor, self._context.namespace)


class ProcessContext:
    """ProcessWindowFunction.Context."""

    def __init__(
        self,
        state: KeyedStateBackend,
        timers: Timers,
        runtime: OperatorRuntimeContext,
        merging: bool,
    ) -> None:
        self._timers = timers
        self._runtime = runtime
        self._merging = merging
        self._store = _WindowStateStore(self, PrefixedStates(state, "window:"))
        self._window: Any = None
        self.namespace: Namespace = None

    def select(self, window: Any, namespace: Namespace) -> None:
        self._window = window
        self.namespace = namespace

    def window(self) -> Any:
        return self._window

    def current_processing_time(self) -> int:
        return self._timers.now()

    def current_watermark(self) -> int:
        return self._timers.watermark

    def window_state(self) -> Any:
        """State of this key and window; the function's `clear` must clear it."""
        if self._merging:
            raise StateError("per-window state is not available with merging windows (sessions)")
        return self._store

    def global_state(self) -> Any:
        """State of this key, whatever the window."""
        return self._runtime

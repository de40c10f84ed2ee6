"""User functions, under PyFlink's names. Plain callables are accepted wherever one method suffices.

Lifecycle of every function object, per parallel subtask: unpickled, `open(runtime_context)` once,
its methods for each record, `close()` once. After a failure a fresh copy is made from the job
graph; only state kept through the runtime context survives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ...state.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
    )
    from ...state.faces import AggregatingState, ListState, MapState, ReducingState, ValueState


class RuntimeContext(Protocol):
    """What a function may ask of the subtask it runs in. State is scoped to the current key."""

    def get_task_name(self) -> str: ...
    def get_number_of_parallel_subtasks(self) -> int: ...
    def get_max_number_of_parallel_subtasks(self) -> int: ...
    def get_index_of_this_subtask(self) -> int: ...
    def get_attempt_number(self) -> int: ...
    def get_task_name_with_subtasks(self) -> str: ...
    def get_job_parameter(self, key: str, default_value: Any = None) -> Any: ...
    def get_metrics_group(self) -> MetricGroup: ...
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState: ...
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState: ...
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState: ...
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState: ...
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState: ...


class Counter(Protocol):
    """A metric that only counts."""

    def inc(self, n: int = 1) -> None: ...
    def get_count(self) -> int: ...


class MetricGroup(Protocol):
    """Metrics of one operator's subtask."""

    def counter(self, name: str) -> Counter: ...


class TimerService(Protocol):
    """Time and timers of the current key."""

    def current_processing_time(self) -> int: ...
    def current_watermark(self) -> int: ...
    def register_processing_time_timer(self, timestamp: int) -> None: ...
    def register_event_time_timer(self, timestamp: int) -> None: ...
    def delete_processing_time_timer(self, timestamp: int) -> None: ...
    def delete_event_time_timer(self, timestamp: int) -> None: ...


class TimeDomain(Enum):
    """Event time (driven by watermarks) or processing time (driven by the clock)."""

    EVENT_TIME = "event_time"
    PROCESSING_TIME = "processing_time"


@dataclass(frozen=True)
class OutputTag:
    """Names a side output. Two tags with one `tag_id` are the same side output."""

    tag_id: str
    type_info: Any = None

    def __post_init__(self) -> None:
        if not self.tag_id:
            raise ValueError("an OutputTag needs a non-empty tag_id")


class Function:
    """Base of all user functions."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called once per subtask before any record."""

    def close(self) -> None:
        """Called once per subtask after the last record, also on failure and cancel."""


class MapFunction(Function, ABC):
    @abstractmethod
    def map(self, value: Any) -> Any: ...


class FlatMapFunction(Function, ABC):
    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any]: ...


class FilterFunction(Function, ABC):
    @abstractmethod
    def filter(self, value: Any) -> bool: ...


class KeySelectorFunction(Function, ABC):
    @abstractmethod
    def get_key(self, value: Any) -> Any: ...


KeySelector = KeySelectorFunction
"""PyFlink's name."""


class Partitioner(Function, ABC):
    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int: ...


class ReduceFunction(Function, ABC):
    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any: ...


class AggregateFunction(Function, ABC):
    """Incremental aggregation. An accumulator may be mutated by `add`, which returns it."""

    @abstractmethod
    def create_accumulator(self) -> Any: ...
    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any: ...
    @abstractmethod
    def get_result(self, accumulator: Any) -> Any: ...
    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any: ...


class ProcessFunction(Function, ABC):
    """Per-record logic. Results are yielded; `yield OutputTag(...), value` goes to a side
    output."""

    class Context(Protocol):
        def timestamp(self) -> int | None: ...
        def timer_service(self) -> TimerService: ...

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any] | None: ...


class KeyedProcessFunction(Function, ABC):
    """Per-record logic with keyed state and timers."""

    class Context(Protocol):
        def timestamp(self) -> int | None: ...
        def timer_service(self) -> TimerService: ...
        def get_current_key(self) -> Any: ...

    class OnTimerContext(Protocol):
        def timestamp(self) -> int: ...
        def timer_service(self) -> TimerService: ...
        def get_current_key(self) -> Any: ...
        def time_domain(self) -> Any: ...

    @abstractmethod
    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None: ...

    def on_timer(
        self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext
    ) -> Iterable[Any] | None:
        """Called when a timer set by `timer_service()` for the current key fires."""
        return None


class WindowFunction(Function, ABC):
    @abstractmethod
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]: ...


class AllWindowFunction(Function, ABC):
    @abstractmethod
    def apply(self, window: Any, inputs: Iterable[Any]) -> Iterable[Any]: ...


class ProcessWindowFunction(Function, ABC):
    """All of a window's records at once (or its single aggregate, after `reduce`/`aggregate`)."""

    class Context(Protocol):
        def window(self) -> Any: ...
        def current_processing_time(self) -> int: ...
        def current_watermark(self) -> int: ...
        def window_state(self) -> Any: ...
        def global_state(self) -> Any: ...

    @abstractmethod
    def process(
        self, key: Any, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterable[Any]: ...

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        """Called when the window is dropped; clear what `window_state()` holds."""


class ProcessAllWindowFunction(Function, ABC):
    @abstractmethod
    def process(
        self, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterable[Any]: ...

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        """Called when the window is dropped."""

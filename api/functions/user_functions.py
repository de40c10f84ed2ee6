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
from typing import TYPE_CHECKING, Any, Generic, Protocol, runtime_checkable

from ...core.job_files import DistributedCache
from .metrics import MetricGroup

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ...state.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
    )
    from ...state.faces import AggregatingState, ListState, MapState, ReducingState, ValueState
    from .accumulators import Accumulator

    IN = TypeVar("IN", default=Any)
    OUT = TypeVar("OUT", default=Any)
    KEY = TypeVar("KEY", default=Any)
    W = TypeVar("W", default=Any)
    W2 = TypeVar("W2", default=Any, covariant=True)
else:
    from typing import TypeVar

    IN, OUT, KEY, W, W2 = (TypeVar(name) for name in ("IN", "OUT", "KEY", "W", "W2"))


@runtime_checkable
class KeyedStateStore(Protocol):
    """State of the current key, by descriptors."""

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState: ...
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState: ...
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState: ...
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState: ...
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState: ...


@runtime_checkable
class RuntimeContext(KeyedStateStore, Protocol):
    """What a function may ask of the subtask it runs in. State is scoped to the current key."""

    def get_task_name(self) -> str: ...
    def get_number_of_parallel_subtasks(self) -> int: ...
    def get_max_number_of_parallel_subtasks(self) -> int: ...
    def get_index_of_this_subtask(self) -> int: ...
    def get_attempt_number(self) -> int: ...
    def get_task_name_with_subtasks(self) -> str: ...
    def get_job_parameter(self, key: str, default_value: Any = None) -> Any: ...
    def get_distributed_cache(self) -> DistributedCache: ...
    def get_metrics_group(self) -> MetricGroup: ...
    def add_accumulator(self, name: str, accumulator: Accumulator[Any, Any]) -> None: ...
    def get_accumulator(self, name: str) -> Accumulator[Any, Any] | None: ...


@runtime_checkable
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
    """Names a side output. Two tags with one `tag_id` are the same side output. What a function
    emits under a tag with a type, or what the program asks for with one (`get_side_output`), late
    records too, becomes records of that type: of a row type columns."""

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


class NullByteKeySelector(KeySelectorFunction):
    """One key for all records."""

    def get_key(self, value: Any) -> int:
        return 0


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


class WindowFunction(Function, ABC, Generic[IN, OUT, KEY, W]):
    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]: ...


class AllWindowFunction(Function, ABC, Generic[IN, OUT, W]):
    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]: ...


class PassThroughWindowFunction(WindowFunction[IN, IN, KEY, W]):
    """The records of a window as they are."""

    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[IN]:
        return inputs


class PassThroughAllWindowFunction(AllWindowFunction[IN, IN, W]):
    """The records of a window as they are."""

    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[IN]:
        return inputs


class ProcessWindowFunction(Function, ABC, Generic[IN, OUT, KEY, W]):
    """All of a window's records at once (or its single aggregate, after `reduce`/`aggregate`)."""

    class Context(Protocol[W2]):
        """Valid during the call only. `window_state`: of the key and window; `global_state`: of the
        key, over all windows."""

        def window(self) -> W2: ...
        def current_processing_time(self) -> int: ...
        def current_watermark(self) -> int: ...
        def window_state(self) -> KeyedStateStore: ...
        def global_state(self) -> KeyedStateStore: ...

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT]: ...

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Called when the window is dropped; clear what `window_state()` holds."""


class ProcessAllWindowFunction(Function, ABC, Generic[IN, OUT, W]):
    """All of a window's records at once, of a stream without keys."""

    class Context(ProcessWindowFunction.Context[W2], Protocol[W2]):
        """As that of ProcessWindowFunction; the state is the one subtask's."""

    @abstractmethod
    def process(
        self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT]: ...

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """Called when the window is dropped."""

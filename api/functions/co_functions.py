"""User functions of two inputs, under PyFlink's names.

One object per parallel subtask handles both inputs, so what the first input leaves in it, or in
state, the second one finds. The methods are called one at a time: records of the two inputs come
in turn, in no order between them that a program may rely on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from .user_functions import Function, TimerService

if TYPE_CHECKING:
    from ...state.descriptors import MapStateDescriptor, StateDescriptor
    from ...state.faces import BroadcastState, ReadOnlyBroadcastState

KEY = TypeVar("KEY")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class CoMapFunction(Function, ABC):
    """At most one result per record of either input; None is no result."""

    @abstractmethod
    def map1(self, value: Any) -> Any: ...
    @abstractmethod
    def map2(self, value: Any) -> Any: ...


class CoFlatMapFunction(Function, ABC):
    """Any number of results per record of either input."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None: ...
    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None: ...


class CoProcessFunction(Function, ABC):
    """Per-record logic over two inputs. Results are yielded; `yield OutputTag(...), value` goes to
    a side output. On keyed streams it has state, timers and `on_timer`, if it defines one, as a
    KeyedCoProcessFunction has."""

    class Context(Protocol):
        def timestamp(self) -> int | None: ...
        def timer_service(self) -> TimerService: ...

    @abstractmethod
    def process_element1(
        self, value: Any, ctx: CoProcessFunction.Context
    ) -> Iterable[Any] | None: ...
    @abstractmethod
    def process_element2(
        self, value: Any, ctx: CoProcessFunction.Context
    ) -> Iterable[Any] | None: ...


class KeyedCoProcessFunction(Function, ABC):
    """The same for two keyed streams, which share state and timers of a key."""

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
    def process_element1(
        self, value: Any, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[Any] | None: ...
    @abstractmethod
    def process_element2(
        self, value: Any, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[Any] | None: ...

    def on_timer(
        self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext
    ) -> Iterable[Any] | None:
        """Called when a timer fires that either input set for the current key."""
        return None


class BaseBroadcastProcessFunction(Function, ABC):
    """What functions with broadcast state have in common."""

    class BaseContext(Protocol):
        def timestamp(self) -> int | None: ...
        def current_processing_time(self) -> int: ...
        def current_watermark(self) -> int: ...

    class Context(BaseContext, Protocol):
        """Of the broadcast side: may read and write broadcast state."""

        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState:
            """The state of a descriptor that `broadcast(...)` was given; StateError for others."""
            ...

    class ReadOnlyContext(BaseContext, Protocol):
        """Of the other side, which may only read it."""

        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState:
            """The state of a descriptor that `broadcast(...)` was given; StateError for others, and
            for every attempt to write it."""
            ...


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """Records of a stream without key, and elements that every subtask gets.

    `process_broadcast_element` runs in every subtask for the same elements in the same order, and
    has to do the same with them in each: what it writes must not depend on the subtask, on a clock,
    or on chance. What it yields comes out once per subtask."""

    class Context(BaseBroadcastProcessFunction.Context, Protocol):
        """Of the broadcast side."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, Protocol):
        """Of the other side."""

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[OUT] | None: ...
    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: BroadcastProcessFunction.Context
    ) -> Iterable[OUT] | None: ...


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """The same with a keyed stream, whose side has state and timers of the current key. Elements of
    the broadcast side have no key."""

    class Context(BaseBroadcastProcessFunction.Context, Protocol):
        """Of the broadcast side."""

        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], None]
        ) -> None:
            """Call `function(key, state)` for each key of this subtask that has something in this
            state, in no particular order; it may change what the key has there. (Flink's
            `applyToKeyedState`, which PyFlink lacks.)"""
            ...

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, Protocol):
        """Of the keyed side."""

        def timer_service(self) -> TimerService: ...
        def get_current_key(self) -> Any: ...

    class OnTimerContext(ReadOnlyContext, Protocol):
        """Of a timer."""

        def time_domain(self) -> Any: ...

    @abstractmethod
    def process_element(
        self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[OUT] | None: ...
    @abstractmethod
    def process_broadcast_element(
        self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterable[OUT] | None: ...

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext
    ) -> Iterable[OUT] | None:
        """Called when a timer that `process_element` set for the current key fires."""
        return None

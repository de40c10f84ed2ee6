"""BroadcastProcessFunction and KeyedBroadcastProcessFunction: records, and elements for all.

Port 1 brings the same elements in the same order to every subtask (`one_order`), so at a barrier
all of them have the same broadcast state, and subtask 0's copy is what a checkpoint holds. The side
of port 0 sees it through views that refuse to write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from ...api.specs.connected import BroadcastProcessSpec, KeyedBroadcastProcessSpec
from ...core.batch import Batch, ObjectBatch
from ...core.errors import StateError
from ...core.key_kinds import given
from ...core.keys import KeySelector
from ...state.backend import KeyedStateBackend, NoKey
from ...state.broadcast_state import OperatorBroadcastState, ReadOnlyView
from ...state.copies import own
from ...state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from ..base import OperatorContext, Steps, plainly
from ..rows.keyed_process import KeyedContext, KeyedProcessOperator, KeyedTimerService
from ..rows.process import ProcessOperator, ReadOnlyTime

_METHODS = ("process_element", "process_broadcast_element")

ELEMENTS = 1
"""Port of what is broadcast."""


class BroadcastStates:
    """The broadcast states of one operator's subtask, to be written and to be read.

    Those to be written are locked but while elements are handled, and while the function opens: it
    may keep one that it got there, and write it where every subtask sees other records."""

    def __init__(self, ctx: OperatorContext, descriptors: Sequence[MapStateDescriptor]) -> None:
        self._ctx = ctx
        self._who = f"operator '{ctx.name}', subtask {ctx.subtask}"
        bind = ctx.operator_state.get_broadcast_state
        self.states = {one.name: bind(one) for one in descriptors}
        self.views = {name: state.read_only(self._who) for name, state in self.states.items()}

    def lock(self) -> None:
        for state in self.states.values():
            state.locked_by = self._who

    def owned(self, batch: Batch) -> Batch:
        """The elements as this subtask's own: within a process others are given the same objects,
        and the function may change what it is given."""
        if not isinstance(batch, ObjectBatch):
            return batch
        what = f"{self._who}: a broadcast element"
        return ObjectBatch([own(value, what) for value in batch.values], batch.timestamps)

    def writing(self, work: Steps) -> Steps:
        """`work`, which handles elements."""
        for state in self.states.values():
            state.locked_by = None
        yield from work
        self.lock()

    def unknown(self, descriptor: Any) -> StateError:
        """What to raise for a descriptor that the stream was not broadcast with."""
        name = getattr(descriptor, "name", descriptor)
        return StateError(
            f"{self._who}: there is no broadcast state {name!r}, only {sorted(self.states)}: give "
            "its descriptor to broadcast(...), too"
        )


class _BroadcastContext:
    """What both sides of a function without keys are given; one for each, changed for each record.
    `states`: by name, those to write or the views of them."""

    __slots__ = ("_all", "_states", "_time", "stamp")

    def __init__(
        self,
        every: BroadcastStates,
        states: Mapping[str, OperatorBroadcastState | ReadOnlyView],
        time: ReadOnlyTime | KeyedTimerService,
    ) -> None:
        self._all = every
        self._states = states
        self._time = time
        self.stamp: int | None = None

    def timestamp(self) -> int | None:
        return self.stamp

    def current_processing_time(self) -> int:
        return self._time.current_processing_time()

    def current_watermark(self) -> int:
        return self._time.current_watermark()

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> Any:
        try:
            return self._states[state_descriptor.name]
        except (KeyError, AttributeError):
            raise self._all.unknown(state_descriptor) from None


class _KeyedElementsContext(_BroadcastContext):
    """Of the broadcast side of a function with keys."""

    __slots__ = ("_keyed",)

    def __init__(
        self, every: BroadcastStates, time: KeyedTimerService, keyed: KeyedStateBackend
    ) -> None:
        super().__init__(every, every.states, time)
        self._keyed = keyed

    def apply_to_keyed_state(
        self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], None]
    ) -> None:
        state, current = _state_of(self._keyed, state_descriptor), self._keyed.current
        try:
            for key in self._keyed.keys_of(state_descriptor):
                current.key = key
                function(given(key), state)
        finally:
            current.key = _NO_KEY

    def get_current_key(self) -> NoReturn:
        raise StateError(_ELEMENTS_HAVE_NO_KEY)

    def timer_service(self) -> NoReturn:
        raise StateError(_ELEMENTS_HAVE_NO_KEY)


_ELEMENTS_HAVE_NO_KEY = (
    "process_broadcast_element asks for the current key or its timers, but broadcast elements have "
    "no key: use them in process_element and on_timer"
)


class _KeyedRecordsContext(KeyedContext):
    """Of the keyed side, and of its timers."""

    __slots__ = ("_all",)

    def __init__(
        self, every: BroadcastStates, service: KeyedTimerService, keyed: KeyedStateBackend
    ) -> None:
        super().__init__(service, keyed)
        self._all = every

    def current_processing_time(self) -> int:
        return self._service.current_processing_time()

    def current_watermark(self) -> int:
        return self._service.current_watermark()

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyView:
        try:
            return self._all.views[state_descriptor.name]
        except (KeyError, AttributeError):
            raise self._all.unknown(state_descriptor) from None


class _NoKeyOfElements(NoKey):
    """Stands for the key of a broadcast element."""

    def __hash__(self) -> int:
        raise StateError(
            "keyed state was used in process_broadcast_element, whose elements have no key: use it "
            "in process_element, or ctx.apply_to_keyed_state(descriptor, function)"
        )


_NO_KEY = _NoKeyOfElements()


class BroadcastProcessOperator(ProcessOperator):
    """Runs a BroadcastProcessFunction."""

    METHODS = _METHODS

    def __init__(self, spec: BroadcastProcessSpec) -> None:
        super().__init__(spec)
        self._descriptors = spec.descriptors

    def open(self) -> None:
        self._states = BroadcastStates(self.ctx, self._descriptors)
        super().open()
        self._states.lock()

    def _make_contexts(self) -> tuple[Any, ...]:
        every, time = self._states, ReadOnlyTime(self)
        return tuple(_BroadcastContext(every, s, time) for s in (every.views, every.states))

    def process(self, batch: Batch, port: int = 0) -> Steps:
        if port != ELEMENTS:
            return super().process(batch, port)
        return self._states.writing(super().process(self._states.owned(batch), port))


class KeyedBroadcastProcessOperator(KeyedProcessOperator):
    """Runs a KeyedBroadcastProcessFunction. Elements have no key, and may set no timers."""

    METHODS = _METHODS

    def __init__(self, spec: KeyedBroadcastProcessSpec) -> None:
        super().__init__(spec)
        self._descriptors = spec.descriptors

    def _keys_of(self, spec: Any) -> tuple[KeySelector, ...]:
        return (spec.key,)

    def open(self) -> None:
        self._states = BroadcastStates(self.ctx, self._descriptors)
        super().open()
        self._states.lock()

    def _make_context(self, service: KeyedTimerService) -> KeyedContext:
        every, keyed = self._states, self.ctx.keyed_state
        self._elements = _KeyedElementsContext(every, service, keyed)
        self._by_element = False
        """Whether an element is at work, whose time is that of what it does."""
        return _KeyedRecordsContext(every, service, keyed)

    def process(self, batch: Batch, port: int = 0) -> Steps:
        if port != ELEMENTS:
            return super().process(batch, port)
        return self._process_elements(batch)

    def _process_elements(self, batch: Batch) -> Steps:
        if self._firing.unfinished:
            yield from plainly(self._resume())
        self.ctx.keyed_state.current.key = _NO_KEY
        call, method = self._calls[ELEMENTS], self.METHODS[ELEMENTS]
        elements = self._states.owned(batch)
        work = self._each(call, method, self._elements, elements)
        self._by_element = True
        try:
            yield from self._states.writing(work)
        finally:
            self._by_element = False

    def _event_stamp(self) -> int | None:
        return self._elements.stamp if self._by_element else super()._event_stamp()


def _state_of(keyed: KeyedStateBackend, descriptor: StateDescriptor) -> Any:
    match descriptor:
        case ValueStateDescriptor():
            return keyed.get_state(descriptor)
        case ListStateDescriptor():
            return keyed.get_list_state(descriptor)
        case MapStateDescriptor():
            return keyed.get_map_state(descriptor)
        case ReducingStateDescriptor():
            return keyed.get_reducing_state(descriptor)
        case AggregatingStateDescriptor():
            return keyed.get_aggregating_state(descriptor)
    raise StateError(f"{descriptor!r} is not a descriptor of keyed state")

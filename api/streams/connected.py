"""Two streams handled by one function, and a stream handled with what another one broadcasts.

stream.connect(other)                  -> ConnectedStreams
stream.broadcast(descriptor, ...)      -> BroadcastStream
stream.connect(broadcast_stream)       -> BroadcastConnectedStream
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, cast

from ...core.errors import ConfigurationError, GraphError
from ...core.key_types import check_comparable
from ...core.keys import KeySelector
from ...engine.graph.model import Broadcast
from ...engine.graph.transformation import Input, Transformation
from ...state.descriptors import MapStateDescriptor
from ..functions.checkpointed import FunctionAdapter
from ..functions.co_functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from ..functions.user_functions import Function
from ..functions.validation import require_instance
from ..specs.connected import (
    BroadcastProcessSpec,
    CoMapBatchesSpec,
    CoProcessSpec,
    KeyedBroadcastProcessSpec,
    KeyedCoProcessSpec,
    OneOrderSpec,
)
from ..specs.records import OperatorSpec, SourceSpec, WatermarkSpec
from ..specs.schemas import known_keys
from ..types.declared import declared_records
from ..types.type_info import schema_of
from .records import BatchFormat, require_format
from .sides import key_width
from .stream import Keyed, Out, Stream, known_schema


class ConnectedStreams(Generic[Out]):
    """Two streams for one function, which has a method for each. They may hold different things.

    If both are keyed, equal keys of one type meet: the function has state and timers per key, one
    for both."""

    def __init__(self, stream1: Stream[Out], stream2: Stream[Out]) -> None:
        _same_environment(stream1, stream2)
        self.stream1 = stream1
        self.stream2 = stream2
        if self._keys is not None:
            _check_keys(*self._keys, stream1, stream2)

    def key_by(
        self, key_selector1: Any, key_selector2: Any, key_type: Any = None
    ) -> ConnectedStreams[Out]:
        """The same streams, keyed: each selector is what `key_by` of a stream takes, a list or
        tuple of several columns or expressions. Both have to give keys of one type."""
        schema_of(key_type)
        keyed = [
            cast(Any, stream).key_by(*(key if isinstance(key, (list, tuple)) else (key,)))
            for stream, key in ((self.stream1, key_selector1), (self.stream2, key_selector2))
        ]
        return ConnectedStreams(*keyed)

    def map(self, func: CoMapFunction, output_type: Any = None) -> Out:
        """`func.map1` for each record of the first stream, `func.map2` for each of the second; None
        is no result."""
        require_instance("map of connected streams", func, CoMapFunction)
        return self._process(_CoMap(func), output_type, "CoMap")

    def flat_map(self, func: CoFlatMapFunction, output_type: Any = None) -> Out:
        """`func.flat_map1` and `func.flat_map2`, likewise; each gives any number of results."""
        require_instance("flat_map of connected streams", func, CoFlatMapFunction)
        return self._process(_CoFlatMap(func), output_type, "CoFlatMap")

    def process(
        self, func: CoProcessFunction | KeyedCoProcessFunction, output_type: Any = None
    ) -> Out:
        """`func.process_element1` and `func.process_element2`, likewise. With keys on both streams
        also timers; only then a KeyedCoProcessFunction."""
        require_instance(
            "process of connected streams", func, CoProcessFunction, KeyedCoProcessFunction
        )
        if self._keys is None and not isinstance(func, CoProcessFunction):
            raise ConfigurationError(
                f"process: {type(func).__name__} is a KeyedCoProcessFunction, and not both streams "
                "are keyed: use key_by(key_selector1, key_selector2) before, or a CoProcessFunction"
            )
        name = "CoProcess" if self._keys is None else "KeyedCoProcess"
        return self._process(func, output_type, name)

    def map_batches(
        self, func: Any, batch_format: BatchFormat = "arrow", output_type: Any = None
    ) -> Out:
        """`func.map_batches1(batch)` for each batch of the first stream, `func.map_batches2(batch)`
        for each of the second; each gives a batch of any length, or None. A class is instantiated
        once per subtask, without arguments; an object is copied into each.

        Both methods are called on one object, one at a time, in no order between the inputs. What
        it keeps has to be in state, or a restart begins without it. A class that is also a
        `CheckpointedFunction` has state of its subtask; where both streams are keyed, the runtime
        context that `open` is given has state of keys, under the key that was named last with
        `runtime_context.set_current_key(key)`, in this call of a method."""
        require_format("map_batches", batch_format)
        missing = [
            name
            for name in ("map_batches1", "map_batches2")
            if not callable(getattr(func, name, None))
        ]
        if missing:
            raise ConfigurationError(
                f"map_batches of connected streams: {func!r} has no method {' and '.join(missing)}"
            )
        keyed = self._keys is not None
        spec = CoMapBatchesSpec(func, keyed, batch_format, declared_records(output_type))
        return self._apply(spec, "CoMapBatches")

    # --- inside ------------------------------------------------------------------------------

    @property
    def _keys(self) -> tuple[KeySelector, KeySelector] | None:
        """The keys of both streams; None unless both have one."""
        first, second = self.stream1, self.stream2
        if isinstance(first, Keyed) and isinstance(second, Keyed):
            return first._key, second._key
        return None

    def _process(self, func: Function, output_type: Any, name: str) -> Out:
        schema, keys = declared_records(output_type), self._keys
        if keys is None:
            return self._apply(CoProcessSpec(func, schema), name)
        return self._apply(KeyedCoProcessSpec(*keys, func, schema), name)

    def _apply(self, spec: OperatorSpec, name: str) -> Out:
        first = [replace(one, port=0) for one in self.stream1._inputs]
        second = [replace(one, port=1) for one in self.stream2._inputs]
        return self.stream1._apply(spec, name, (*first, *second))


class BroadcastStream(Generic[Out]):
    """A stream whose elements go to every subtask of what it is connected with, in one order for
    all, to be kept there in the states of these descriptors. Made by `stream.broadcast(...)`."""

    def __init__(
        self,
        input_stream: Stream[Out],
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        _check_descriptors(broadcast_state_descriptors)
        self.input_stream = input_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)
        self._ordered: Transformation | None = None

    def _input(self) -> Input:
        """What the operator reads at port 1. All elements come through one subtask."""
        if self._ordered is None:
            stream = self.input_stream
            spec = OneOrderSpec(_says_nothing_of_time(stream._inputs))
            self._ordered = stream._add(spec, "Broadcast", fixed_parallelism=True)
            self._ordered.parallelism = 1
        return Input(self._ordered, partitioner=Broadcast(), port=1)


class BroadcastConnectedStream(Generic[Out]):
    """A stream, and what is broadcast to the subtasks that handle it."""

    def __init__(
        self,
        non_broadcast_stream: Stream[Out],
        broadcast_stream: BroadcastStream[Out],
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        _same_environment(non_broadcast_stream, broadcast_stream.input_stream)
        _check_descriptors(broadcast_state_descriptors)
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, Any]
        | KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        output_type: Any = None,
    ) -> Out:
        """`func.process_element` for each record, which may read broadcast state, and
        `func.process_broadcast_element` in every subtask for each element that is broadcast, which
        may write it. On a keyed stream a KeyedBroadcastProcessFunction, on others a
        BroadcastProcessFunction."""
        stream = self.non_broadcast_stream
        schema, descriptors = declared_records(output_type), tuple(self.broadcast_state_descriptors)
        spec: OperatorSpec
        if isinstance(stream, Keyed):
            hint = "the stream is keyed"
            require_instance("process", func, KeyedBroadcastProcessFunction, hint=hint)
            spec = KeyedBroadcastProcessSpec(stream._key, func, descriptors, schema)
            name = "KeyedBroadcastProcess"
        else:
            hint = "the stream is not keyed"
            require_instance("process", func, BroadcastProcessFunction, hint=hint)
            spec, name = BroadcastProcessSpec(func, descriptors, schema), "BroadcastProcess"
        records = [replace(one, port=0) for one in stream._inputs]
        return stream._apply(spec, name, (*records, self.broadcast_stream._input()))


class _CoMap(FunctionAdapter, CoProcessFunction):
    function: CoMapFunction

    def process_element1(self, value: Any, ctx: Any) -> Any:
        result = self.function.map1(value)
        return None if result is None else (result,)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        result = self.function.map2(value)
        return None if result is None else (result,)


class _CoFlatMap(FunctionAdapter, CoProcessFunction):
    function: CoFlatMapFunction

    def process_element1(self, value: Any, ctx: Any) -> Any:
        return self.function.flat_map1(value)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return self.function.flat_map2(value)


def _same_environment(first: Stream[Any], second: Any) -> None:
    if not isinstance(second, Stream):
        raise ConfigurationError(f"connect: expected a stream, got {second!r}")
    if first._env is not second._env:
        raise GraphError("connect: the streams belong to different environments")


def _check_keys(
    left: KeySelector, right: KeySelector, first: Stream[Any], second: Stream[Any]
) -> None:
    """ConfigurationError or TypeMismatchError where keys are known to be never equal."""
    widths = [key_width(left), key_width(right)]
    if None not in widths and widths[0] != widths[1]:
        raise ConfigurationError(
            f"connect: the first stream has {widths[0]} key columns ({left.describe()}), the "
            f"second one {widths[1]} ({right.describe()}); give equally many"
        )
    keys = known_keys(known_schema(first), left), known_keys(known_schema(second), right)
    if keys[0] is not None and keys[1] is not None and len(keys[0]) == len(keys[1]):
        check_comparable(keys[0], keys[1], "connect")


def _check_descriptors(descriptors: Sequence[MapStateDescriptor]) -> None:
    for one in descriptors:
        if not isinstance(one, MapStateDescriptor):
            raise ConfigurationError(f"broadcast: expected MapStateDescriptors, got {one!r}")
        if one.ttl_config is not None:
            raise ConfigurationError(
                f"broadcast: state '{one.name}' has a time to live, but only keyed state expires: "
                "remove what is old when an element comes"
            )
    names = [one.name for one in descriptors]
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(
            f"broadcast: give descriptors with different names, one at least, not {names}"
        )


def _says_nothing_of_time(inputs: Sequence[Input]) -> bool:
    """Whether no watermark will ever come, nor an end: from one of the sources behind these inputs,
    which is enough to hold back the time of all."""
    for one in inputs:
        operator = one.source
        match operator.spec:
            case WatermarkSpec():
                continue
            case SourceSpec(source=source, watermarks=watermarks):
                if watermarks is None and not source.bounded:
                    return True
            case _:
                if _says_nothing_of_time(operator.inputs):
                    return True
    return False

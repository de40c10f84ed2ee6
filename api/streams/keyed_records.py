"""Record by record on keyed streams: functions with state per key, and rolling aggregates.

A function object on a keyed stream may ask its runtime context for state of the current key, which
only a keyed operator has: it runs as a keyed process function. A plain callable cannot, and takes
the cheaper unkeyed operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from ...core.errors import ConfigurationError
from ..functions.user_functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
)
from ..functions.validation import require_function, require_instance
from ..specs.records import KeyedProcessSpec, ReduceSpec, RollingSpec
from ..types.type_info import schema_of
from .records import Records
from .stream import Keyed, Out

RollingKind = Literal["sum", "min", "max", "min_by", "max_by"]


class KeyedRecords(Keyed[Out], Records[Out]):
    """Part of `KeyedStream`. Map, filter and flat map work as on any stream; given as function
    objects they may use state of the current key."""

    def map(self, func: Any, output_type: Any = None) -> Out:
        if not isinstance(func, MapFunction):
            return super().map(func, output_type)
        return self._process(KeyedMap(func), output_type, "Map")

    def flat_map(self, func: Any, output_type: Any = None) -> Out:
        if not isinstance(func, FlatMapFunction):
            return super().flat_map(func, output_type)
        return self._process(KeyedFlatMap(func), output_type, "FlatMap")

    def filter(self, *predicates: Any) -> Out:
        if len(predicates) != 1 or not isinstance(predicates[0], FilterFunction):
            return super().filter(*predicates)
        return self._process(KeyedFilter(predicates[0]), None, "Filter")

    def process(self, func: KeyedProcessFunction | ProcessFunction, output_type: Any = None) -> Out:
        """A KeyedProcessFunction: state and timers per key."""
        function = require_instance(
            "process on a keyed stream",
            func,
            KeyedProcessFunction,
            hint="a ProcessFunction has no keyed state; use it before key_by",
        )
        return self._process(function, output_type, "KeyedProcess")

    def reduce(self, func: Any, output_type: Any = None) -> Out:
        """One result per record: `func(reduction so far of its key, record)`."""
        require_function("reduce", func, ReduceFunction)
        return self._apply(ReduceSpec(self._key, func, schema_of(output_type)), "Reduce")

    def sum(self, position_to_sum: int | str = 0) -> Out:
        """Each record with this field (name or position) replaced by its key's sum so far.

        >>> from strom import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> pairs = env.from_collection([("a", 1), ("b", 5), ("a", 2)])
        >>> pairs.key_by(lambda pair: pair[0]).sum(1).execute_and_collect(limit=3)
        [('a', 1), ('b', 5), ('a', 3)]
        """
        return self._rolling("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> Out:
        """Each record with this field replaced by its key's minimum so far."""
        return self._rolling("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> Out:
        """Each record with this field replaced by its key's maximum so far."""
        return self._rolling("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> Out:
        """For each record, the key's first record so far that has the least value in this field."""
        return self._rolling("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> Out:
        """For each record, the key's first record so far that has the greatest value in this
        field."""
        return self._rolling("max_by", position_to_max_by)

    def _process(self, function: KeyedProcessFunction, output_type: Any, name: str) -> Out:
        spec = KeyedProcessSpec(self._key, function, schema_of(output_type))
        return self._apply(spec, name)

    def _rolling(self, kind: RollingKind, field: int | str) -> Out:
        valid = isinstance(field, str) or (isinstance(field, int) and field >= 0)
        if not valid or isinstance(field, bool) or field == "":
            raise ConfigurationError(
                f"{kind}: the field must be a name or a position from 0, is {field!r}"
            )
        name = kind.title().replace("_", "")
        return self._apply(RollingSpec(self._key, kind, field), f"{name}({field})")


class _KeyedFunction(KeyedProcessFunction):
    """Owns the user's function and passes its lifecycle on."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        self.function.open(runtime_context)

    def close(self) -> None:
        self.function.close()


class KeyedMap(_KeyedFunction):
    function: MapFunction

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        return [self.function.map(value)]


class KeyedFlatMap(_KeyedFunction):
    function: FlatMapFunction

    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None:
        return self.function.flat_map(value)


class KeyedFilter(_KeyedFunction):
    function: FilterFunction

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        return [value] if self.function.filter(value) else []

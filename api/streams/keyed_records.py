"""Record by record on keyed streams: functions with state per key, and rolling aggregates.

A function object on a keyed stream may ask its runtime context for state of the current key, which
only a keyed operator has: it runs as a keyed process function. A plain callable cannot, and takes
the cheaper unkeyed operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from ...core.errors import ConfigurationError
from ...core.keys import FunctionKey
from ..functions.checkpointed import FunctionAdapter
from ..functions.user_functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
)
from ..functions.validation import require_function, require_instance
from ..specs.records import KeyedProcessSpec, ReduceSpec, RollingSpec
from ..specs.schemas import scalars_of_inputs
from ..types.declared import declared_records
from .records import Records
from .sides import TimeToLive, to_ttl
from .stream import Keyed, Out, known_records

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

    def filter(self, *predicates: Any, func: Any = None) -> Out:
        if func is not None:
            predicates = (*predicates, func)
        if len(predicates) != 1 or not isinstance(predicates[0], FilterFunction):
            return super().filter(*predicates)
        spec = KeyedProcessSpec(self._key, KeyedFilter(predicates[0]), known_records(self))
        return self._apply(spec, "Filter")

    def process(self, func: KeyedProcessFunction | ProcessFunction, output_type: Any = None) -> Out:
        """A KeyedProcessFunction: state and timers per key."""
        function = require_instance(
            "process on a keyed stream",
            func,
            KeyedProcessFunction,
            hint="a ProcessFunction has no keyed state; use it before key_by",
        )
        return self._process(function, output_type, "KeyedProcess")

    def reduce(self, func: Any, output_type: Any = None, *, ttl: TimeToLive | None = None) -> Out:
        """One result per record: `func(reduction so far of its key, record)`. Results are of the
        records' type, unless `output_type` is another one. ttl, as of the aggregates below: forget
        keys that had no records for so long (of processing time, or with a `StateTtlConfig` of
        event time)."""
        require_function("reduce", func, ReduceFunction)
        declared = declared_records(output_type)
        if output_type is None:
            declared = scalars_of_inputs(self._inputs)
        spec = ReduceSpec(self._key, func, declared, to_ttl("reduce", ttl))
        return self._apply(spec, "Reduce")

    def sum(self, position_to_sum: int | str = 0, *, ttl: TimeToLive | None = None) -> Out:
        """Each record with this field (name or position) replaced by its key's sum so far.

        Where the key is a function, the other fields are those of the key's first record, as in
        Flink; where it is columns, the record's own, which costs no state. `min` and `max` alike.

        >>> from strom import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> pairs = env.from_collection([("a", 1), ("b", 5), ("a", 2)])
        >>> pairs.key_by(lambda pair: pair[0]).sum(1).execute_and_collect(limit=3)
        [('a', 1), ('b', 5), ('a', 3)]
        """
        return self._rolling("sum", position_to_sum, ttl)

    def min(self, position_to_min: int | str = 0, *, ttl: TimeToLive | None = None) -> Out:
        """Each record with this field replaced by its key's minimum so far."""
        return self._rolling("min", position_to_min, ttl)

    def max(self, position_to_max: int | str = 0, *, ttl: TimeToLive | None = None) -> Out:
        """Each record with this field replaced by its key's maximum so far."""
        return self._rolling("max", position_to_max, ttl)

    def min_by(self, position_to_min_by: int | str = 0, *, ttl: TimeToLive | None = None) -> Out:
        """For each record, the key's first record so far that has the least value in this field."""
        return self._rolling("min_by", position_to_min_by, ttl)

    def max_by(self, position_to_max_by: int | str = 0, *, ttl: TimeToLive | None = None) -> Out:
        """For each record, the key's first record so far that has the greatest value in this
        field."""
        return self._rolling("max_by", position_to_max_by, ttl)

    def _process(self, function: KeyedProcessFunction, output_type: Any, name: str) -> Out:
        spec = KeyedProcessSpec(self._key, function, declared_records(output_type))
        return self._apply(spec, name)

    def _rolling(self, kind: RollingKind, field: int | str, ttl: TimeToLive | None) -> Out:
        valid = isinstance(field, str) or (isinstance(field, int) and field >= 0)
        if not valid or isinstance(field, bool) or field == "":
            raise ConfigurationError(
                f"{kind}: the field must be a name or a position from 0, is {field!r}"
            )
        name = kind.title().replace("_", "")
        of_first = isinstance(self._key, FunctionKey) and not kind.endswith("_by")
        declared = scalars_of_inputs(self._inputs)
        spec = RollingSpec(self._key, kind, field, to_ttl(kind, ttl), of_first, declared)
        return self._apply(spec, f"{name}({field})")


class KeyedMap(FunctionAdapter, KeyedProcessFunction):
    function: MapFunction

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        return [self.function.map(value)]


class KeyedFlatMap(FunctionAdapter, KeyedProcessFunction):
    function: FlatMapFunction

    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterable[Any] | None:
        return self.function.flat_map(value)


class KeyedFilter(FunctionAdapter, KeyedProcessFunction):
    function: FilterFunction

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        return [value] if self.function.filter(value) else []

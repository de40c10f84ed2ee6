"""`KeyedStream`: a stream partitioned by key; operators on it have state and timers per key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..core.errors import ConfigurationError
from ..core.keys import KeySelector
from ..engine.graph.transformation import Input
from . import specs
from .data_stream import DataStream
from .functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
)
from .joins import KeyedJoins
from .keyed_functions import KeyedFilter, KeyedFlatMap, KeyedMap
from .keyed_tables import KeyedTables
from .table_joins import KeyedTableJoins
from .types import schema_of
from .validation import require_function, require_instance, require_positive

if TYPE_CHECKING:
    from .environment import StreamExecutionEnvironment
    from .windowed_stream import WindowedStream
    from .windows import WindowAssigner

RollingKind = Literal["sum", "min", "max", "min_by", "max_by"]


class KeyedStream(KeyedTables, KeyedJoins, KeyedTableJoins, DataStream):
    """Map, filter and flat map work as on any stream; given as function objects they may use state
    of the current key."""

    def __init__(
        self, env: StreamExecutionEnvironment, inputs: tuple[Input, ...], key: KeySelector
    ) -> None:
        super().__init__(env, inputs)
        self._key = key

    def map(self, func: Any, output_type: Any = None) -> DataStream:
        if not isinstance(func, MapFunction):
            return super().map(func, output_type)
        return self._process(KeyedMap(func), output_type, "Map")

    def flat_map(self, func: Any, output_type: Any = None) -> DataStream:
        if not isinstance(func, FlatMapFunction):
            return super().flat_map(func, output_type)
        return self._process(KeyedFlatMap(func), output_type, "FlatMap")

    def filter(self, *predicates: Any) -> DataStream:
        if len(predicates) != 1 or not isinstance(predicates[0], FilterFunction):
            return super().filter(*predicates)
        return self._process(KeyedFilter(predicates[0]), None, "Filter")

    def process(
        self, func: KeyedProcessFunction | ProcessFunction, output_type: Any = None
    ) -> DataStream:
        """A KeyedProcessFunction: state and timers per key."""
        function = require_instance(
            "process on a keyed stream",
            func,
            KeyedProcessFunction,
            hint="a ProcessFunction has no keyed state; use it before key_by",
        )
        return self._process(function, output_type, "KeyedProcess")

    def reduce(self, func: Any, output_type: Any = None) -> DataStream:
        """One result per record: `func(reduction so far of its key, record)`."""
        require_function("reduce", func, ReduceFunction)
        return self._apply(specs.ReduceSpec(self._key, func, schema_of(output_type)), "Reduce")

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """Each record with this field (name or position) replaced by its key's sum so far.

        >>> from strom import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> pairs = env.from_collection([("a", 1), ("b", 5), ("a", 2)])
        >>> pairs.key_by(lambda pair: pair[0]).sum(1).execute_and_collect(limit=3)
        [('a', 1), ('b', 5), ('a', 3)]
        """
        return self._rolling("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """Each record with this field replaced by its key's minimum so far."""
        return self._rolling("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """Each record with this field replaced by its key's maximum so far."""
        return self._rolling("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """For each record, the key's first record so far that has the least value in this field."""
        return self._rolling("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """For each record, the key's first record so far that has the greatest value in this
        field."""
        return self._rolling("max_by", position_to_max_by)

    def window(self, window_assigner: WindowAssigner) -> WindowedStream:
        """Windows per key."""
        from .windowed_stream import WindowedStream

        return WindowedStream(self, window_assigner, self._key)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Windows of `size` records of a key; with `slide`, a new one every `slide` records."""
        from .windows import CountSlidingWindowAssigner, CountTumblingWindowAssigner

        require_positive("count_window", "size", size)
        if slide == 0:
            return self.window(CountTumblingWindowAssigner.of(size))
        require_positive("count_window", "slide", slide)
        return self.window(CountSlidingWindowAssigner.of(size, slide))

    def _process(self, function: KeyedProcessFunction, output_type: Any, name: str) -> DataStream:
        spec = specs.KeyedProcessSpec(self._key, function, schema_of(output_type))
        return self._apply(spec, name)

    def _rolling(self, kind: RollingKind, field: int | str) -> DataStream:
        valid = isinstance(field, str) or (isinstance(field, int) and field >= 0)
        if not valid or isinstance(field, bool) or field == "":
            raise ConfigurationError(
                f"{kind}: the field must be a name or a position from 0, is {field!r}"
            )
        name = kind.title().replace("_", "")
        return self._apply(specs.RollingSpec(self._key, kind, field), f"{name}({field})")

"""Windows on streams: what happens to the records of each window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, Self

from ...core.constants import END, START
from ...core.errors import ConfigurationError
from ...core.keys import ColumnKey, KeySelector
from ..aggregates import Aggregate
from ..functions.user_functions import (
    AggregateFunction,
    Function,
    OutputTag,
    ReduceFunction,
)
from ..functions.validation import (
    require_function,
    require_instance,
    require_positive,
    require_text,
)
from ..specs.columns import to_order
from ..specs.windows import (
    COLUMN_FUNCTIONS,
    AggregateWindow,
    BuiltinWindow,
    ExtremeWindow,
    ProcessWindow,
    ReduceWindow,
    TopNWindow,
    WindowFunctionSpec,
    WindowSpec,
)
from ..types.declared import declared_records
from ..types.durations import Interval, to_ms, to_timedelta
from ..types.type_classes import TypeInformation
from ..types.type_info import schema_of
from ..windows.base import Trigger, WindowAssigner
from ..windows.evictors import Evictor
from .stream import Out, Stream, known_records, type_of_records

MAX_N = 100_000
"""At least so many rows may be kept per key and slice of time."""


@dataclass(frozen=True)
class _Settings:
    """What is set between `window(...)` and the window function."""

    trigger: Trigger | None = None
    allowed_lateness_ms: int = 0
    late_tag: OutputTag | None = None
    evictor: Evictor[Any, Any] | None = None


class Windows(Generic[Out]):
    """What keyed and whole-stream windows share. `trigger`, `evictor`, `allowed_lateness` and
    `side_output_late_data` change and return this object; the functions make an operator."""

    _apply_function: ClassVar[type[Function]]
    _process_function: ClassVar[type[Function]]
    _keyed: ClassVar[bool]

    def __init__(self, stream: Stream[Out], assigner: WindowAssigner, key: KeySelector) -> None:
        if not isinstance(assigner, WindowAssigner):
            raise ConfigurationError(
                f"window: expected a window assigner such as TumblingEventTimeWindows.of(...), got "
                f"{assigner!r}"
            )
        self._stream = stream
        self._assigner = assigner
        self._key = key
        self._settings = _Settings()

    def trigger(self, trigger: Trigger) -> Self:
        """When a window's results are emitted; replaces the assigner's default."""
        if not isinstance(trigger, Trigger):
            raise ConfigurationError(f"trigger: expected a Trigger, got {trigger!r}")
        self._settings = replace(self._settings, trigger=trigger)
        return self

    def allowed_lateness(self, time_ms: Interval) -> Self:
        """Keep windows for so long (timedelta or ms) after the watermark passed their end; each
        late record fires again. Event-time windows only."""
        lateness = to_ms(to_timedelta(time_ms, "allowed_lateness"))
        self._settings = replace(self._settings, allowed_lateness_ms=lateness)
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Records too late for any window go to this side output of the window operator."""
        if not isinstance(output_tag, OutputTag):
            raise ConfigurationError(
                f"side_output_late_data: expected an OutputTag, got {output_tag!r}"
            )
        self._settings = replace(self._settings, late_tag=output_tag)
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """What takes records out of a window when it fires. Each window then keeps all its records;
        for `process`, `apply`, `reduce` and `aggregate` with an AggregateFunction."""
        if not isinstance(evictor, Evictor):
            raise ConfigurationError(
                f"evictor: expected an Evictor such as CountEvictor.of(10), got {evictor!r}"
            )
        self._settings = replace(self._settings, evictor=evictor)
        return self

    def get_input_type(self) -> TypeInformation:
        """The type of the records; see `DataStream.get_type`."""
        return type_of_records(self._stream)

    # --- window functions --------------------------------------------------------------------

    def reduce(
        self, reduce_function: Any, window_function: Any = None, output_type: Any = None
    ) -> Out:
        """Fold records as they come; `window_function` gets the one result. Without it results are
        of the records' type, unless `output_type` is another one."""
        require_function("reduce", reduce_function, ReduceFunction)
        self._check_window_function("reduce", window_function)
        records = known_records(self._stream) if output_type is None or window_function else None
        function = ReduceWindow(reduce_function, window_function, records)
        return self._operator(function, "reduce", output_type)

    def aggregate(
        self,
        aggregate_function: AggregateFunction | None = None,
        window_function: Any = None,
        accumulator_type: Any = None,
        output_type: Any = None,
        **aggregates: Aggregate,
    ) -> Out:
        """An AggregateFunction, or built-in aggregates by output column:
        `aggregate(n=count(), top=max_("price"))`, which run on columns and give the key columns,
        `window_start`, `window_end` and the aggregates.

        `accumulator_type` is PyFlink's: accumulators need no declared type, it is only checked."""
        if aggregates:
            if aggregate_function is not None or window_function is not None:
                raise ConfigurationError(
                    "aggregate: give either an AggregateFunction or built-in aggregates by name"
                )
            return self._builtin(aggregates, output_type)
        hint = "or built-in aggregates by output column: aggregate(n=count())"
        require_instance("aggregate", aggregate_function, AggregateFunction, hint=hint)
        schema_of(accumulator_type)
        self._check_window_function("aggregate", window_function)
        function = AggregateWindow(aggregate_function, window_function)
        return self._operator(function, "aggregate", output_type)

    def process(self, process_window_function: Any, output_type: Any = None) -> Out:
        """All records of the window at once, with a context."""
        require_instance("process", process_window_function, self._process_function)
        function = ProcessWindow(process_window_function)
        return self._operator(function, "process", output_type)

    def apply(self, window_function: Any, output_type: Any = None) -> Out:
        """All records of the window at once."""
        require_instance("apply", window_function, self._apply_function)
        return self._operator(ProcessWindow(window_function), "apply", output_type)

    def sum(self, field: str) -> Out:
        """The sum of a column: `aggregate` with one built-in, under the column's own name."""
        return self._one_builtin("sum", field)

    def min(self, field: str) -> Out:
        """The minimum of a column; see `sum`."""
        return self._one_builtin("min", field)

    def max(self, field: str) -> Out:
        """The maximum of a column; see `sum`."""
        return self._one_builtin("max", field)

    def min_by(self, field: str, ties: bool = False) -> Out:
        """The whole records that have the window's least `field`: the first, or all `ties`; with
        `window_start` and `window_end` appended."""
        return self._extreme("min", field, ties)

    def max_by(self, field: str, ties: bool = False) -> Out:
        """The whole records that have the window's greatest `field`; see `min_by`."""
        return self._extreme("max", field, ties)

    def top_n(self, n: int, order_by: Any, rank: str | None = None) -> Out:
        """The `n` records of each key and window that come first in `order_by`, ties in order of
        arrival, with `window_start` and `window_end` appended; all at once when the window fires.
        With `rank` they get an int64 column of that name with their place from 1.

        order_by: a column name, ("price", "desc"), or a list of these. Nulls come last in either
        direction; NaN is the greatest number.

        >>> from strom import StreamExecutionEnvironment, TumblingEventTimeWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> bids = env.from_collection([{"a": 1, "p": p, "ts": p} for p in (3, 9, 5)])
        >>> bids = bids.with_event_time("ts")
        >>> windows = bids.key_by("a").window(TumblingEventTimeWindows.of(10))
        >>> best = windows.top_n(2, ("p", "desc"), rank="place")
        >>> [(row.p, row.place) for row in best.execute_and_collect()]
        [(9, 1), (5, 2)]
        """
        require_positive("top_n", "n", n, MAX_N)
        if rank is not None:
            require_text("top_n", "rank", rank)
            if rank in (START, END):
                raise ConfigurationError(f"top_n: rank cannot be '{rank}', which exists already")
        function = TopNWindow(n, to_order("top_n", order_by), rank)
        return self._operator(function, f"top {n}", None)

    # --- inside ------------------------------------------------------------------------------

    def _check_window_function(self, method: str, function: Any) -> None:
        if function is not None:
            kinds = (self._process_function, self._apply_function)
            require_instance(f"{method}: window_function", function, *kinds)

    def _one_builtin(self, kind: Literal["sum", "min", "max"], field: str) -> Out:
        name = self._field(kind, field)
        return self._builtin({name: Aggregate(kind, name)}, None)

    def _builtin(self, aggregates: dict[str, Aggregate], output_type: Any) -> Out:
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise ConfigurationError(
                    f"aggregate: {name} must be a built-in aggregate such as count() or "
                    f'max_("price"), is {aggregate!r}'
                )
        taken: tuple[str, ...] = (START, END)
        if isinstance(self._key, ColumnKey):
            taken += self._key.names
        clash = [name for name in aggregates if name in taken]
        if clash:
            raise ConfigurationError(
                f"aggregate: output columns {clash} already exist in the result, which has the "
                f"columns {list(taken)}; choose other names"
            )
        function = BuiltinWindow(tuple(aggregates.items()))
        return self._operator(function, ", ".join(aggregates), output_type)

    def _extreme(self, kind: Literal["min", "max"], field: str, ties: bool) -> Out:
        name = self._field(f"{kind}_by", field)
        function = ExtremeWindow(name, kind, bool(ties))
        return self._operator(function, f"{kind}_by {name}", None)

    @staticmethod
    def _field(method: str, field: object) -> str:
        if not isinstance(field, str) or not field:
            raise ConfigurationError(f"{method}: the field must be a column name, is {field!r}")
        return field

    def _operator(self, function: WindowFunctionSpec, what: str, output_type: Any) -> Out:
        schema = declared_records(output_type)
        if isinstance(function, ReduceWindow) and function.window_function is None:
            schema = schema or function.records
        if self._settings.evictor is not None and isinstance(function, COLUMN_FUNCTIONS):
            raise ConfigurationError(
                f"evictor: {what} keeps no records that could be evicted: use process, apply, "
                "reduce, or aggregate with an AggregateFunction"
            )
        spec = WindowSpec(
            key=self._key,
            assigner=self._assigner,
            function=function,
            trigger=self._settings.trigger,
            allowed_lateness_ms=self._settings.allowed_lateness_ms,
            late_tag=self._settings.late_tag,
            schema=schema,
            keyed=self._keyed,
            evictor=self._settings.evictor,
        )
        name = f"{type(self._assigner).__name__}({what})"
        stream = self._stream._apply(spec, name)
        return stream if self._keyed else stream.force_non_parallel()

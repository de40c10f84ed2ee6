"""ProcessFunction: per-record logic without keys, with side outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from ...api.types.declared import Declared
from ...core.batch import Batch
from ...core.elements import MIN_TIMESTAMP
from ...core.errors import StateError
from ...state.copies import FIXED
from ..base import Operator, Steps
from ..letters import open_letters
from .collector import Collector, check_iterable
from .emitted import keeper
from .gathering import Gathering
from .pace import Pace
from .runtime_context import OperatorRuntimeContext
from .user_function import UserFunction


class ReadOnlyTime:
    """The TimerService of a stream without keys: it tells the time but sets no timers."""

    def __init__(self, operator: ProcessOperator) -> None:
        self._operator = operator

    def current_processing_time(self) -> int:
        return self._operator.ctx.clock.now_ms()

    def current_watermark(self) -> int:
        return self._operator.watermark

    def register_processing_time_timer(self, timestamp: int) -> NoReturn:
        self._refuse()

    def register_event_time_timer(self, timestamp: int) -> NoReturn:
        self._refuse()

    def delete_processing_time_timer(self, timestamp: int) -> NoReturn:
        self._refuse()

    def delete_event_time_timer(self, timestamp: int) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StateError(
            f"operator '{self._operator.ctx.name}' sets a timer, but its input has no key: timers "
            f"need key_by(...) and a {self._operator.KEYED}"
        )


class ElementContext:
    """ProcessFunction.Context; one object, changed for each record."""

    __slots__ = ("_time", "stamp")

    def __init__(self, time: ReadOnlyTime) -> None:
        self._time = time
        self.stamp: int | None = None

    def timestamp(self) -> int | None:
        return self.stamp

    def timer_service(self) -> ReadOnlyTime:
        return self._time


class ProcessOperator(Operator):
    """Runs a ProcessFunction; results carry the timestamp of the record they come from.

    A record may give results without end: they go out batch by batch, with a pause after each. No
    checkpoint is taken within a record.

    What runs functions of several inputs says which method handles the records of which port, and
    which context that is given."""

    METHODS: tuple[str, ...] = ("process_element",)
    KEYED = "KeyedProcessFunction"
    """What sets timers in its place."""

    def __init__(self, spec: Any) -> None:
        self._function = UserFunction(spec.function, self.METHODS[0])
        self._calls = [self._function.other(name) for name in self.METHODS]
        self._schema = spec.schema
        self.watermark: int = MIN_TIMESTAMP

    def open(self) -> None:
        self._each = each_of(self, self._schema)
        self._contexts = self._make_contexts()
        self._function.open(OperatorRuntimeContext(self.ctx, keyed=False))

    def _make_contexts(self) -> tuple[Any, ...]:
        """By port: what a call is given, with a `stamp` that is set for each record."""
        return (ElementContext(ReadOnlyTime(self)),) * len(self.METHODS)

    def process(self, batch: Batch, port: int = 0) -> Steps:
        call, context = self._calls[port], self._contexts[port]
        return self._each(call, self.METHODS[port], context, batch)

    def process_watermark(self, timestamp: int) -> None:
        self.watermark = timestamp
        self.out.emit_watermark(timestamp)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._function.snapshot(checkpoint_id)

    def close(self) -> None:
        self._function.close(self.ctx.name)


class NoKey:
    """Where the keys of records without keys go."""

    __slots__ = ("key",)


def collector_of(operator: Operator, declared: Declared | None) -> Collector:
    """In `open`: what gathers the results of an operator's function."""
    config = operator.ctx.config
    pace = Pace(config.batch_size, operator.ctx.clock)
    return Collector(operator.out, declared, pace, keeper(config))


def each_of(operator: Operator, declared: Declared | None) -> Callable[..., Steps]:
    """In `open`: `each_record` for this operator, or what does it where it writes dead letters."""
    letters = open_letters(operator)
    if letters is None:
        return partial(each_record, collector_of(operator, declared))
    return Gathering(operator, letters, declared, sides=True).each_record


def each_record(
    collector: Collector,
    call: Callable[..., Any],
    method: str,
    context: Any,
    batch: Batch,
    keys: Sequence[Any] | None = None,
    current: Any = None,
) -> Steps:
    """Call `call(record, context)` for each record, and collect what it gives; `method` names it in
    errors, `context.stamp` is the record's time, and `current.key` its key if there are `keys`.

    This loop around the user's function is the whole cost of such operators, so it does nothing per
    record that can be done per batch."""
    values, bound, full = collector.values, collector.bounds.append, collector.begin()
    rows, times = batch.rows(), batch.timestamps
    stamps = [None] * len(rows) if times is None else times.tolist()
    if keys is None:
        keys, current = stamps, NoKey()
    append, size, fixed, keep = values.append, len(values), FIXED, collector.keep
    first = 0  # the record to which the first of the bounds belongs
    result: Any = None
    try:
        for value, current.key, context.stamp in zip(rows, keys, stamps, strict=True):
            result = call(value, context)
            if result is not None:
                rest = iter(result)
                for one in rest:
                    kind = type(one)
                    if kind is tuple:
                        for part in one:
                            if type(part) not in fixed:
                                one = keep(one)
                                break
                    elif kind not in fixed:
                        one = keep(one)
                    append(one)
                    size += 1
                    if size >= full:
                        break
                if size >= full:
                    this = first + len(collector.bounds)
                    yield from collector.overflow(rest, times, first)
                    values, bound, full = (
                        collector.values,
                        collector.bounds.append,
                        collector.size,
                    )
                    first = this
                    append, size = values.append, len(values)
            bound(size)
    except TypeError as error:
        if result is not None:
            check_iterable(result, method, error)
        raise
    collector.flush_groups(None if times is None else times[first:])

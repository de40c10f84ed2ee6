"""ProcessFunction: per-record logic without keys, with side outputs."""

from __future__ import annotations

from typing import Any, NoReturn

from ...api.specs.records import ProcessSpec
from ...core.batch import Batch
from ...core.elements import MIN_TIMESTAMP
from ...core.errors import StateError
from ..base import Operator
from .collector import Collector, check_iterable
from .runtime_context import OperatorRuntimeContext
from .user_function import UserFunction


class _ReadOnlyTime:
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
            "need key_by(...) and a KeyedProcessFunction"
        )


class _Context:
    """ProcessFunction.Context; one object, changed for each record."""

    __slots__ = ("_time", "stamp")

    def __init__(self, time: _ReadOnlyTime) -> None:
        self._time = time
        self.stamp: int | None = None

    def timestamp(self) -> int | None:
        return self.stamp

    def timer_service(self) -> _ReadOnlyTime:
        return self._time


class ProcessOperator(Operator):
    """Runs a ProcessFunction; results carry the timestamp of the record they come from."""

    def __init__(self, spec: ProcessSpec) -> None:
        self._function = UserFunction(spec.function, "process_element")
        self._schema = spec.schema
        self.watermark: int = MIN_TIMESTAMP

    def open(self) -> None:
        self._collector = Collector(self.out, self._schema, self.ctx.config.batch_size)
        self._context = _Context(_ReadOnlyTime(self))
        self._function.open(OperatorRuntimeContext(self.ctx, keyed=False))

    def process(self, batch: Batch, port: int = 0) -> None:
        collector, context, call = self._collector, self._context, self._function.call
        values, bound = collector.values, collector.bounds.append
        rows = batch.rows()
        stamps = [None] * len(rows) if batch.timestamps is None else batch.timestamps.tolist()
        result: Any = None
        try:
            for value, context.stamp in zip(rows, stamps, strict=True):
                result = call(value, context)
                if result is not None:
                    values.extend(result)
                bound(len(values))
        except TypeError as error:
            if result is not None:
                check_iterable(result, "process_element", error)
            raise
        collector.flush_groups(batch.timestamps)

    def process_watermark(self, timestamp: int) -> None:
        self.watermark = timestamp
        self.out.emit_watermark(timestamp)

    def close(self) -> None:
        self._function.close(self.ctx.name)

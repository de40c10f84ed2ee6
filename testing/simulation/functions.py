"""What users would write in the jobs that are simulated. None of it depends on the order of
records, but for `Chains`."""

from __future__ import annotations

from typing import Any, Final

from ...api.functions.co_functions import KeyedBroadcastProcessFunction, KeyedCoProcessFunction
from ...api.functions.user_functions import FlatMapFunction, KeyedProcessFunction, RuntimeContext
from ...core.row_kind import RowKind
from ...state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

SPAN: Final = 40
"""ms of event time that are summed up."""

BOUND: Final = 15
"""ms between two records that are joined."""

RULES: Final = MapStateDescriptor("rules")

_OVER: Final = 1 << 40
"""An event time after those of all records."""

_KEPT: Final = ListStateDescriptor("kept")


def span_end(ts: int, spans: int = 1) -> int:
    size = SPAN * spans
    return ts - ts % size + size - 1


def chained(n: int, chain: int, v: int) -> tuple[int, int]:
    """Tells in which order values came."""
    return n + 1, (chain * 31 + v + 1) % 1_000_003


class Doubled(FlatMapFunction):
    """Two records of one."""

    def flat_map(self, value: Any) -> Any:
        yield value
        yield value[0], 2 * value[1]


class Spans(KeyedProcessFunction):
    """The sum of a key's values in each span of time, given out by a timer at its end."""

    def __init__(self, spans: int = 1) -> None:
        self.spans = spans

    def open(self, runtime_context: RuntimeContext) -> None:
        self.totals = runtime_context.get_map_state(MapStateDescriptor("totals"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        end = span_end(value[2], self.spans)
        self.totals.put(end, (self.totals.get(end) or 0) + value[1])
        ctx.timer_service().register_event_time_timer(end)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield ctx.get_current_key(), timestamp, self.totals.get(timestamp)
        self.totals.remove(timestamp)


class Chains(KeyedProcessFunction):
    """How many records a key has had, and in which order."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        n, chain = self.seen.value() or (0, 0)
        seen = chained(n, chain, value[1])
        self.seen.update(seen)
        yield ctx.get_current_key(), *seen


class Latest(KeyedProcessFunction):
    """The row that a changelog has left of each key, when all event time is over."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.row = runtime_context.get_state(ValueStateDescriptor("row"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        *row, kind = value
        if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            self.row.update(tuple(row))
            ctx.timer_service().register_event_time_timer(_OVER)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield self.row.value()


class Pairs(KeyedCoProcessFunction):
    """Each record of one input with each of the other, whichever comes first."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.left = runtime_context.get_list_state(ListStateDescriptor("left"))
        self.right = runtime_context.get_list_state(ListStateDescriptor("right"))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        self.left.add(value)
        for other in self.right.get():
            yield (*value, *other)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        self.right.add(value)
        for other in self.left.get():
            yield (*other, *value)


class Matches(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Each record with each rule, whichever comes first."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.kept = runtime_context.get_list_state(_KEPT)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.kept.add(value)
        for rule in ctx.get_broadcast_state(RULES):
            yield (*value, rule)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        rule = value[1]
        ctx.get_broadcast_state(RULES).put(rule, True)
        found: list[Any] = []
        ctx.apply_to_keyed_state(_KEPT, lambda key, kept: found.extend(kept.get()))
        for record in found:
            yield (*record, rule)

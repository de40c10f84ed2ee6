"""A case's function, as a user writes one, over states of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....api.functions.co_functions import KeyedBroadcastProcessFunction, KeyedCoProcessFunction
from ....api.functions.user_functions import OutputTag
from ....state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from .cases import ConnectedCase, Effects, Record

SIDE = OutputTag("side")
RULES = MapStateDescriptor("rules")


class Held:
    """What the current key has, in a state of a kind."""

    def __init__(self, kind: str, context: Any) -> None:
        self._kind = kind
        match kind:
            case "value":
                self._state = context.get_state(ValueStateDescriptor("held"))
            case "list":
                self._state = context.get_list_state(ListStateDescriptor("held"))
            case _:
                self._state = context.get_map_state(MapStateDescriptor("held"))

    def get(self) -> tuple[int, ...]:
        match self._kind:
            case "value":
                return self._state.value() or ()
            case "list":
                return tuple(self._state.get())
        return tuple([value for _, value in sorted(self._state.items())])

    def set(self, values: tuple[int, ...]) -> None:
        match self._kind:
            case "value":
                self._state.update(values)
            case "list":
                self._state.update(list(values))
            case _:
                self._state.clear()
                self._state.put_all(dict(enumerate(values)))


class _Drawn:
    """What both kinds of functions do."""

    def __init__(self, case: ConnectedCase) -> None:
        self.case = case

    def open(self, runtime_context: Any) -> None:
        self.held = Held(self.case.state, runtime_context)

    def _record(self, value: Any, port: int, ctx: Any, rules: dict[int, int]) -> Iterator[Any]:
        record = Record(value.n, port, value.k, value.ts)
        assert (ctx.timestamp(), ctx.get_current_key()) == (record.ts, record.k)
        effects = self.case.on_record(self.held.get(), record, rules)
        yield from self._take(effects, ("record", value.n), ctx, rules)

    def _timer(self, timestamp: int, ctx: Any, rules: dict[int, int]) -> Iterator[Any]:
        effects = self.case.on_timer(self.held.get(), timestamp, rules)
        yield from self._take(effects, ("timer", timestamp), ctx, rules)

    def _take(
        self, effects: Effects, what: tuple[str, int], ctx: Any, rules: dict[int, int]
    ) -> Iterator[Any]:
        self.held.set(effects.held)
        for timestamp in effects.timers:
            ctx.timer_service().register_event_time_timer(timestamp)
        for timestamp in effects.deleted:
            ctx.timer_service().delete_event_time_timer(timestamp)
        key = ctx.get_current_key()
        for result in results_of(effects, key, what, rules):
            yield result if result[-1] % 3 < 2 else (SIDE, result)


class DrawnCo(_Drawn, KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        return self._record(value, 0, ctx, {})

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        return self._record(value, 1, ctx, {})

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        return self._timer(timestamp, ctx, {})


class DrawnBroadcast(_Drawn, KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        return self._record(value, 0, ctx, dict(ctx.get_broadcast_state(RULES).items()))

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        state = ctx.get_broadcast_state(RULES)
        rules = dict(state.items())
        self.case.on_element(rules, value.n)
        for key in set(state.keys()) - set(rules):
            state.remove(key)
        state.put_all(rules)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        return self._timer(timestamp, ctx, dict(ctx.get_broadcast_state(RULES).items()))


def results_of(
    effects: Effects, key: Any, what: tuple[str, int], rules: dict[int, int]
) -> Iterator[Any]:
    """What comes out: the key, what made it, what was there, and the result's number."""
    shown = tuple(sorted(rules.items()))
    for number in range(effects.results):
        yield key, what, effects.held, shown, number

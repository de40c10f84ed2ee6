"""Functions with broadcast state, one subtask at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pauses_kit import GROUPS
from strom import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    MapStateDescriptor,
    OutputTag,
    TimeDomain,
    ValueStateDescriptor,
)
from strom.api.specs.connected import (
    BroadcastProcessSpec,
    KeyedBroadcastProcessSpec,
    OneOrderSpec,
)
from strom.core.batch import ObjectBatch
from strom.core.config import JobConfig
from strom.core.elements import MAX_TIMESTAMP, StreamStatus, Watermark
from strom.core.errors import StateError
from strom.core.keys import FunctionKey
from strom.operators.time.valve import WatermarkValve
from strom.testing.operator_harness import OperatorHarness

SIDE = OutputTag("side")
RULES = MapStateDescriptor("rules")
SEEN = ValueStateDescriptor("seen")
KEY = FunctionKey(lambda n: n % 40)


class Ruled(KeyedBroadcastProcessFunction):
    """Timers tell the rules that are there."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(SEEN)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update([*(self.seen.value() or ()), value])
        for time in (3, 4, 5 + value % 3):
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + time)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES)[value] = [ctx.timestamp()]

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        rules = [(key, tuple(value)) for key, value in ctx.get_broadcast_state(RULES).items()]
        assert ctx.current_watermark() >= timestamp
        assert ctx.current_processing_time() == 0
        yield ctx.get_current_key(), timestamp, tuple(self.seen.value()), tuple(rules)


def ruled(**settings: Any) -> OperatorHarness:
    spec = KeyedBroadcastProcessSpec(KEY, Ruled(), (RULES,))
    config = JobConfig(batch_size=4, max_parallelism=GROUPS)
    return OperatorHarness(spec, config=config, max_parallelism=GROUPS, **settings)


@pytest.mark.parametrize("elements_first", [False, True])
def test_checkpoints_between_timers_with_broadcast_state(elements_first: bool) -> None:
    """What was due is fired by the rules that were there, before an element changes them."""
    rules = [(1, ObjectBatch([100, 200], np.array([1, 2])))]
    more = (1, ObjectBatch([100, 300], np.array([21, 22])))
    harness = ruled()
    records = (0, ObjectBatch(list(range(40)), np.zeros(40, np.int64)))
    for port, batch in [*rules, records]:
        harness.push(batch, port=port)
    whole = ruled(restored=harness.snapshot())
    whole.watermark(10)
    expected = sorted(whole.outputs())
    assert {row[3] for row in expected} == {((100, (1,)), (200, (2,)))}
    harness.pausing = True
    harness.watermark(10)
    pauses = 0
    while harness.busy:
        if harness.settled:
            pauses += 1
            again = ruled(restored=harness.snapshot())
            if elements_first:
                again.push(more[1], port=more[0])
            again.watermark(10)
            assert sorted([*harness.outputs(), *again.outputs()]) == expected
        harness.resume()
    assert pauses >= 4


class Odd(KeyedBroadcastProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(SEEN)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update(value)
        if value == "write":
            ctx.get_broadcast_state(RULES).clear()
        if value == "unknown":
            ctx.get_broadcast_state(MapStateDescriptor("other"))
        if value == "timer":
            ctx.timer_service().register_processing_time_timer(5)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        if value == "keyed":
            self.seen.value()
        if value == "all":
            ctx.apply_to_keyed_state(SEEN, self._shout)
            self.seen.value()
        if value == "key":
            ctx.get_current_key()
        if value == "alarm":
            ctx.timer_service().register_event_time_timer(1)
        if value == "clear":
            ctx.apply_to_keyed_state(SEEN, lambda key, state: state.clear())
        rules["last"] = value

    def _shout(self, key: Any, state: Any) -> None:
        state.update(f"{state.value()}!")

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        assert ctx.time_domain() is TimeDomain.PROCESSING_TIME
        yield self.seen.value(), ctx.get_broadcast_state(RULES)["last"]


def odd() -> OperatorHarness:
    return OperatorHarness(KeyedBroadcastProcessSpec(FunctionKey(str), Odd(), (RULES,)))


@pytest.mark.parametrize(
    ("port", "value", "text"),
    [
        (0, "write", r"'operator', subtask 0: clear\(\) on broadcast state 'rules', .* read-only"),
        (0, "unknown", r"no broadcast state 'other', only \['rules'\]: give its descriptor to"),
        (1, "keyed", "process_broadcast_element, whose elements have no key: use it in"),
        (1, "key", "broadcast elements have no key: use them in process_element and on_timer"),
        (1, "alarm", "broadcast elements have no key: use them in process_element and on_timer"),
        (1, "all", "process_broadcast_element, whose elements have no key: use it in"),
    ],
)
def test_errors_of_broadcast_functions(port: int, value: str, text: str) -> None:
    harness = odd()
    harness.push(["a"], [1])
    with pytest.raises(StateError, match=text):
        harness.push([value], [1], port=port)


class Keeps(BroadcastProcessFunction, CheckpointedFunction):
    """Writes a state that it got where it may, where it may not."""

    def initialize_state(self, context: Any) -> None:
        self.first = context.get_operator_state_store().get_broadcast_state(RULES)
        self.first["opened"] = (self.first["opened"] or 0) + 1

    def snapshot_state(self, context: Any) -> None:
        pass

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value is not None:
            self.kept["a"] = value
        yield dict(self.first.items())

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        self.kept = ctx.get_broadcast_state(RULES)
        self.kept["a"] = value


@pytest.mark.parametrize("keyed", [False, True])
def test_a_state_that_was_kept_cannot_be_written_later(keyed: bool) -> None:
    function: Any = type("Both", (Keeps, KeyedBroadcastProcessFunction), {})() if keyed else Keeps()
    descriptors = (RULES,)
    spec: Any = BroadcastProcessSpec(function, descriptors)
    if keyed:
        spec = KeyedBroadcastProcessSpec(FunctionKey(str), function, descriptors)
    harness = OperatorHarness(spec)
    harness.push([1], port=1)
    harness.push([None])
    assert harness.outputs() == [{"opened": 1, "a": 1}]
    with pytest.raises(StateError, match=r"subtask 0: put\('a', ...\) on .* is read-only here"):
        harness.push([2])
    harness.push([3], port=1)
    harness.push([None])
    assert harness.outputs()[-1] == {"opened": 1, "a": 3}


def test_elements_reach_the_state_of_every_key() -> None:
    harness = odd()
    harness.push(["timer", "b"], [1, 1])
    with pytest.raises(StateError):
        harness.push(["all"], [1], port=1)
    harness.push(["x"], [1], port=1)
    harness.advance_processing_time(6)
    assert harness.outputs() == [("timer!", "x")]
    harness.push(["clear"], [1], port=1)
    snapshot = harness.snapshot()
    assert sum(len(table.data) for table in snapshot.keyed if table.name == "seen") == 0


def test_a_record_has_its_key_again_behind_an_element() -> None:
    harness = odd()
    harness.push(["a"], [1])
    harness.push(["x"], [1], port=1)
    harness.push(["a", "timer"], [2, 2])
    harness.advance_processing_time(6)
    assert harness.outputs() == [("timer", "x")]


class Plain(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        yield value, rules[value], ctx.timestamp(), ctx.current_watermark()

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put_all(value)
        yield SIDE, ctx.current_processing_time()


def test_broadcast_state_without_keys() -> None:
    harness = OperatorHarness(BroadcastProcessSpec(Plain(), (RULES,)))
    harness.advance_processing_time(50)
    harness.push(["a"], [1])
    harness.push([{"a": 1}], [2], port=1)
    harness.watermark(3)
    harness.push(["a"], [4])
    assert harness.outputs() == [("a", None, 1, -(2**63)), ("a", 1, 4, 3)]
    assert harness.side_outputs("side") == [50]


def test_an_input_that_never_says_a_time_holds_back_nobody() -> None:
    """What comes out of `OneOrderOperator`, as the valve behind it takes it."""
    harness = OperatorHarness(OneOrderSpec(timeless=True))
    harness.advance_processing_time(0)
    harness.push(["rule"])
    harness.status(False)
    harness.status(True)
    assert harness.controls() == [StreamStatus(False)]
    valve = WatermarkValve(2)
    assert valve.on_watermark(0, 5) == []
    assert valve.on_status(1, False) == [Watermark(5)]
    harness.watermark(7)
    harness.advance_processing_time(9)
    harness.status(False)
    assert harness.controls()[1:] == [StreamStatus(True), Watermark(7), StreamStatus(False)]
    plain = OperatorHarness(OneOrderSpec())
    plain.advance_processing_time(5)
    plain.push(["rule"], [3])
    plain.finish()
    assert plain.stamped_outputs() == [("rule", 3)]
    assert plain.controls() == [Watermark(MAX_TIMESTAMP)]

"""What one record or timer gives goes out batch by batch, with a pause after each."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pauses_kit import GROUPS, RANGES, check_pauses, of_groups, run
from strom import Types, ValueStateDescriptor
from strom.api.functions.user_functions import KeyedProcessFunction, OutputTag, ProcessFunction
from strom.api.specs.records import FlatMapSpec, KeyedProcessSpec, OperatorSpec, ProcessSpec
from strom.core.batch import ObjectBatch
from strom.core.clock import VirtualClock
from strom.core.config import JobConfig
from strom.core.elements import Watermark
from strom.core.keys import FunctionKey
from strom.operators.rows.pace import FIRST, LEAST, LONG_S, Pace
from strom.testing.operator_harness import OperatorHarness, regroup

SIDE = OutputTag("side")
CONFIG = JobConfig(batch_size=4)


class Calls(ProcessFunction):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def process_element(self, value: Any, ctx: Any) -> Any:
        return self.function(value)


class KeyedCalls(KeyedProcessFunction):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def process_element(self, value: Any, ctx: Any) -> Any:
        for result in self.function(value) or ():
            assert ctx.get_current_key() == repr(value)
            yield result


def specs(function: Callable[[Any], Any]) -> list[OperatorSpec]:
    return [
        FlatMapSpec(lambda value: function(value) or ()),
        ProcessSpec(Calls(function)),
        KeyedProcessSpec(FunctionKey(repr), KeyedCalls(function)),
    ]


@pytest.mark.parametrize("kind", range(3))
def test_a_record_without_end(kind: int) -> None:
    """ASCII timeline: each resume is one batch; what comes meanwhile waits."""
    taken = []

    def counting(value: int) -> Any:
        for number in itertools.count():
            taken.append(number)
            yield number

    harness = OperatorHarness(specs(counting)[kind], config=CONFIG)
    harness.pausing = True
    harness.push([7, 8], timestamps=[1, 2])
    harness.push([9], timestamps=[3])
    harness.watermark(5)
    assert [len(batch) for batch in harness.batches()] == [4]
    for _ in range(9):
        harness.resume()
    assert harness.stamped_outputs() == [(n, 1) for n in range(40)]
    assert len(taken) <= 44, "no more is asked for than goes out"
    assert harness.busy
    assert not harness.settled, "no checkpoint within a record"
    assert harness.controls() == []


RESULTS = st.lists(st.none() | st.integers(0, 13), min_size=1, max_size=8)


@settings(max_examples=examples(60), deadline=None)
@given(RESULTS, st.integers(1, 6), st.booleans(), st.integers(0, 2))
def test_nothing_is_lost_or_doubled(
    sizes: list[int | None], batch_size: int, stamped: bool, kind: int
) -> None:
    """Whatever the sizes of groups and batches, also with side outputs among them."""
    with_side = kind > 0
    numbered = list(enumerate(sizes))

    def results(record: tuple[int, int | None]) -> Any:
        index, count = record
        if count is None:
            return None
        values = [f"{index}/{n}" for n in range(count)]
        return [(SIDE, v) if with_side and v.endswith("3") else v for v in values]

    harness = OperatorHarness(specs(results)[kind], config=JobConfig(batch_size=batch_size))
    harness.push(numbered, timestamps=range(len(sizes)) if stamped else None)
    everything = [
        (f"{index}/{n}", index if stamped else None)
        for index, count in numbered
        for n in range(count or 0)
    ]
    aside = [pair for pair in everything if with_side and pair[0].endswith("3")]
    assert harness.stamped_outputs() == [pair for pair in everything if pair not in aside]
    assert harness.side_outputs("side") == [value for value, _ in aside]
    assert all(len(batch) < 2 * batch_size for batch in harness.batches())
    assert not harness.busy


class Storm(KeyedProcessFunction):
    """A timer for each record; each gives `results`."""

    def __init__(self, results: int) -> None:
        self.results = results
        self.fired: list[Any] = []

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(10)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        self.fired.append(ctx.get_current_key())
        for n in range(self.results):
            yield ctx.get_current_key(), n


@pytest.mark.parametrize("results", [0, 1, 3, 5])
def test_timers_fire_in_steps(results: int) -> None:
    function = Storm(results)
    harness = OperatorHarness(KeyedProcessSpec(FunctionKey(abs), function), config=CONFIG)
    harness.push(range(30), timestamps=[0] * 30)
    harness.pausing = True
    harness.watermark(10)
    assert len(function.fired) <= 5
    pauses = 0
    while harness.busy:
        assert harness.controls() == [], "the watermark is behind all that it fired"
        harness.resume()
        pauses += 1
    assert pauses >= max(1, results) * 30 // 4 - 1
    assert harness.stamped_outputs() == [((k, n), 10) for k in range(30) for n in range(results)]
    assert harness.controls() == [Watermark(10)]
    assert all(len(batch) <= 4 for batch in harness.batches())


def test_the_pace_follows_the_function() -> None:
    clock = VirtualClock()
    pace = Pace(10_000, clock)
    sizes = []
    for milliseconds in [0] * 10 + [int(LONG_S * 4000)] * 8 + [0] * 3:
        pace.begin()
        clock.advance_ms(milliseconds)
        pace.full()
        sizes.append(pace.size)
    assert sizes[:3] == [2 * FIRST, 4 * FIRST, 8 * FIRST]
    assert sizes[9] == 10_000
    assert sizes[17] == LEAST
    assert sizes[20] == 8 * LEAST


def test_the_pace_of_a_job_with_small_batches() -> None:
    clock = VirtualClock()
    pace = Pace(2, clock)
    pace.begin()
    clock.advance_ms(10_000)
    pace.full()
    assert pace.size == 2


class Ticking(KeyedProcessFunction):
    """Timers at 3 and 7 for each record, and another at 9 from the first; each result tells what
    the key has seen, so that a record which comes too early would be seen in it."""

    def __init__(self, results: int) -> None:
        self.results = results

    def open(self, ctx: Any) -> None:
        self.seen = ctx.get_state(ValueStateDescriptor("seen", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.seen.update([*(self.seen.value() or []), value])
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 3)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 7)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        now = ctx.timer_service().current_watermark()
        if timestamp == 3:
            ctx.timer_service().register_event_time_timer(9)
        for n in range(self.results):
            yield ctx.get_current_key(), timestamp, now, n, tuple(self.seen.value())


def ticking(results: int) -> Callable[..., OperatorHarness]:
    def make(**settings: Any) -> OperatorHarness:
        spec = KeyedProcessSpec(FunctionKey(lambda n: n % 40), Ticking(results))
        config = JobConfig(batch_size=4, max_parallelism=GROUPS)
        return OperatorHarness(spec, config=config, max_parallelism=GROUPS, **settings)

    return make


@pytest.mark.parametrize("results", [0, 1, 3, 5])
def test_a_checkpoint_between_two_timers(results: int) -> None:
    """At any such pause: a record of a key that has still to fire does not get ahead of it."""
    before = [(0, ObjectBatch(list(range(40)), np.zeros(40, dtype=np.int64)))]
    after = [(0, ObjectBatch(list(range(40, 60)), np.full(20, 11))), 10, 30]
    keys = FunctionKey(lambda n: n % 40)
    settled = check_pauses(
        ticking(results), keys, before, 10, after, in_order_of=lambda row: row[0]
    )
    assert settled >= 120 * max(1, results) // 12 - 2


class Alarms(KeyedProcessFunction):
    """A processing-time timer for each record."""

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_processing_time_timer(5 + value % 3)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), timestamp


def test_a_checkpoint_between_two_timers_by_the_clock() -> None:
    def make(**settings: Any) -> OperatorHarness:
        return OperatorHarness(
            KeyedProcessSpec(FunctionKey(abs), Alarms()), config=CONFIG, **settings
        )

    first = make()
    first.push(range(60))
    first.pausing = True
    first.advance_processing_time(6)
    settled = 0
    while first.busy:
        if first.settled:
            settled += 1
            before, snapshot = first.outputs(), first.snapshot()
            second = make(restored=snapshot)
            second.advance_processing_time(20)
            found = Counter([*before, *second.outputs()])
            assert found == {(n, 5 + n % 3): 1 for n in range(60)}
        first.resume()
    assert settled >= 4


def test_timers_of_key_groups_that_were_not_told_yet_stay() -> None:
    """Two subtasks at one barrier: one fires its timers, the other waits for what is before the
    watermark. Continued as one, the other's timers fire when the watermark comes to it, after the
    records that were before it."""
    halves = RANGES[1]
    keys = FunctionKey(lambda n: n % 40)
    before = [(0, ObjectBatch(list(range(40)), np.zeros(40, dtype=np.int64)))]
    late = of_groups(
        [(0, ObjectBatch(list(range(40, 80)), np.zeros(40, np.int64)))], keys, halves[1]
    )
    found: Counter[Any] = Counter()
    expected: Counter[Any] = Counter()
    snapshots = []
    for number, groups in enumerate(halves):
        mine = of_groups(before, keys, groups)
        whole, half = ticking(1)(key_groups=groups), ticking(1)(key_groups=groups)
        run(whole, [*mine, *(late if number else []), 10, 30])
        expected.update(whole.outputs())
        run(half, mine)
        if not number:
            half.pausing = True
            half.watermark(10)
            while not half.settled:
                half.resume()
            assert half.busy
        snapshots.append(half.snapshot())
        found.update(half.outputs())
    both = ticking(1)(restored=regroup(snapshots, RANGES[0][0]))
    both.pausing = True
    both.advance_processing_time(0)
    while not both.settled:
        both.resume()
    assert both.busy
    found.update(both.outputs())
    last = ticking(1)(restored=regroup([both.snapshot()], RANGES[0][0]))
    run(last, [*late, 10, 30])
    found.update(last.outputs())
    assert found == expected

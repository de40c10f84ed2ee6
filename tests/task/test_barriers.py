"""The barriers of a real gate, in random order: every snapshot, and what is recorded behind it,
hold exactly what came before the barriers."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from strom.core.batch import ObjectBatch
from strom.core.checkpointing_mode import CheckpointingMode
from strom.core.clock import VirtualClock
from strom.core.config import CheckpointConfig, ExchangeConfig
from strom.core.elements import CheckpointBarrier, StreamStatus, Watermark
from strom.core.ids import ChannelId, CheckpointId, TaskId, VertexId
from strom.engine.exchange.gate import Gate
from strom.engine.exchange.kept import Kept
from strom.engine.exchange.metering import InFlight
from strom.engine.graph.model import Channel
from strom.engine.task.barriers import Barriers, due_ms
from strom.engine.task.in_flight import element_of, item_of

TARGET = TaskId(VertexId("target"), 0)


def gate_of(channels: int) -> Gate:
    wired = [
        Channel(ChannelId(i), 0, TaskId(VertexId("source"), i), TARGET, 0, i)
        for i in range(channels)
    ]
    return Gate(wired, ExchangeConfig(exclusive_buffers=1000), lambda item: item, InFlight())


class Run:
    """One task on a gate; channels deliver their streams bit by bit, the task reads bit by bit."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.channels = rng.randint(1, 4)
        self.in_order = [i for i in range(self.channels) if rng.random() < 0.25]
        self.timeout = rng.choice([0, 0, 5, 50])
        self.clock = VirtualClock()
        self.gate = gate_of(self.channels)
        self.barriers = Barriers(
            self.channels,
            self.in_order,
            self.gate,
            self.clock,
            CheckpointConfig(
                unaligned=True, alignment_timeout=timedelta(milliseconds=self.timeout)
            ),
            lambda ms: None,
            self,
        )
        self.read: list[list[Any]] = [[] for _ in range(self.channels)]
        self.sent: list[list[Any]] = [[] for _ in range(self.channels)]
        self.before: dict[int, list[int | None]] = {}
        """How much each channel delivered before barrier n."""
        self.taken: dict[int, tuple[list[int], frozenset[int]]] = {}
        self.complete: list[int] = []
        self.overtook = 0
        self.waiting: deque[Any] = deque()
        """Snapshots that the chain does not allow yet; no input is read meanwhile."""

    # --- Taker ---------------------------------------------------------------------------------

    def take(
        self, barrier: CheckpointBarrier, alignment_ms: float, overtaken: frozenset[int] | None
    ) -> None:
        self.waiting.append((barrier.checkpoint_id, overtaken))
        if self.rng.random() < 0.7:
            self.settle()

    def settle(self) -> None:
        while self.waiting:
            n, overtaken = self.waiting.popleft()
            self.taken[n] = ([len(read) for read in self.read], overtaken or frozenset())
            if overtaken is None:
                self.check(n, {})
            else:
                self.overtook += 1
                assert not overtaken & set(self.in_order)
                self.gate.record(n, overtaken)

    def recorded(
        self, checkpoint_id: CheckpointId, items: Mapping[int, Sequence[Kept]], passed: bool
    ) -> None:
        self.check(checkpoint_id, items)

    def abandoned(self, checkpoint_id: CheckpointId) -> None:
        self.waiting = deque(one for one in self.waiting if one[0] != checkpoint_id)

    def check(self, n: int, items: Mapping[int, Sequence[Kept]]) -> None:
        counts, overtaken = self.taken[n]
        assert set(items) == overtaken
        for index in range(self.channels):
            had = self.read[index][: counts[index]]
            had += [_value(element_of(item_of(kept()))) for kept in items.get(index, ())]
            expected = self.sent[index][: self.before[n][index]]
            assert had == expected, f"seed {self.seed}: checkpoint {n}, channel {index}"
        self.complete.append(n)

    # --- the schedule --------------------------------------------------------------------------

    def deliver(self, index: int, number: int) -> None:
        value: Any = (index, number)
        match self.rng.randrange(6):
            case 0:
                self.gate.deliver_control(index, Watermark(number))
                value = number
            case 1:
                self.gate.deliver_control(index, StreamStatus(bool(number % 2)))
                value = bool(number % 2)
            case _:
                self.gate.deliver_buffer(index, ObjectBatch([value]), 1, 0)
        self.sent[index].append(value)

    def poll(self) -> None:
        item = self.gate.poll()
        if item is None:
            return
        index, element = item
        if isinstance(element, CheckpointBarrier):
            self.barriers.on_barrier(index, element)
        else:
            self.read[index].append(_value(element))

    def run(self) -> None:
        rng = self.rng
        due = [1] * self.channels
        """The barrier that each channel delivers next."""
        triggered, left = 1, 5
        started = self.clock.now_ms()
        for step in range(400):
            index = rng.randrange(self.channels)
            match rng.randrange(8):
                case 0 | 1:
                    self.deliver(index, step)
                case 2 if due[index] <= triggered:
                    n = due[index]
                    due[index] += 1
                    self.before.setdefault(n, [None] * self.channels)[index] = len(self.sent[index])
                    barrier = CheckpointBarrier(CheckpointId(n), started, overtakes=True)
                    self.gate.deliver_control(index, barrier)
                case 3:
                    self.clock.advance_ms(rng.randint(1, 10))
                    self.barriers.on_due(self.clock.now_ms())
                case 4:
                    self.settle()
                case 5 if rng.random() < 0.05:
                    self.barriers.on_aborted(CheckpointId(triggered))
                    self.abandoned(CheckpointId(triggered))
                    triggered += 1
                case _ if not self.waiting:
                    self.poll()
            self.barriers.look()
            self.gate.validate()
            if self.complete and self.complete[-1] == triggered and left:
                triggered, left = triggered + 1, left - 1
                started = self.clock.now_ms()


def _value(element: Any) -> Any:
    match element:
        case ObjectBatch():
            return element.values[0]
        case Watermark(timestamp):
            return timestamp
        case StreamStatus(active):
            return active
    raise AssertionError(element)


def test_snapshot_and_recorded_hold_what_is_before_the_barriers() -> None:
    complete = overtook = 0
    for seed in range(1500):
        run = Run(seed)
        run.run()
        assert sorted(set(run.complete)) == run.complete, f"seed {seed}"
        complete += len(run.complete)
        overtook += run.overtook
    assert complete > 3000
    assert overtook > 1500


def test_at_least_once_holds_nobody_back() -> None:
    gate = gate_of(2)
    clock = VirtualClock()
    taken: list[int] = []

    class Taker:
        def take(self, barrier: CheckpointBarrier, ms: float, overtaken: Any) -> None:
            assert overtaken is None
            taken.append(barrier.checkpoint_id)

        def recorded(self, *of: Any) -> None:
            raise AssertionError

        abandoned = recorded

    config = CheckpointConfig(mode=CheckpointingMode.AT_LEAST_ONCE, unaligned=True)
    assert not config.overtakes
    barriers = Barriers(2, (), gate, clock, config, lambda ms: None, Taker())
    gate.deliver_control(0, CheckpointBarrier(CheckpointId(1), 0))
    gate.deliver_buffer(0, ObjectBatch(["behind"]), 1, 0)
    index, barrier = gate.poll() or (-1, None)
    assert isinstance(barrier, CheckpointBarrier)
    barriers.on_barrier(index, barrier)
    assert gate.poll() is not None, "records behind the barrier are read on"
    assert not taken
    barriers.on_barrier(1, barrier)
    assert taken == [1]


@pytest.mark.parametrize(
    ("triggered", "timeout", "now", "due"),
    [(100, 50, 100, 150), (100, 50, 130, 150), (100, 50, 400, 400), (900, 50, 100, 150)],
)
def test_when_a_barrier_is_due(triggered: int, timeout: int, now: int, due: int) -> None:
    config = CheckpointConfig(unaligned=True, alignment_timeout=timedelta(milliseconds=timeout))
    barrier = CheckpointBarrier(CheckpointId(1), triggered, overtakes=True)
    assert due_ms(barrier, config, now) == due
    assert due_ms(CheckpointBarrier(CheckpointId(1), triggered), config, now) is None

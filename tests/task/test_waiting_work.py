"""Work that waits to be woken: no step is taken meanwhile, what comes is heard, snapshots are not
held up."""

from __future__ import annotations

from typing import Any

import pytest
from strom.core.batch import Batch, ObjectBatch
from strom.core.clock import VirtualClock
from strom.core.elements import Watermark
from strom.core.errors import OperatorError
from strom.engine.task.chain_node import ChainNode
from strom.engine.task.metrics import OperatorMetrics
from strom.engine.task.slices import Slice
from strom.operators.base import IN_STATE, WAITING, Operator, Steps, Work


class Writer:
    """An exchange that takes `room` batches."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.got: list[Any] = []

    @property
    def available(self) -> bool:
        return self.room > 0

    def emit(self, batch: Batch) -> None:
        self.room -= 1
        self.got += batch.rows()

    def broadcast(self, element: Any) -> None:
        self.got.append(element)


class Keeps(Operator):
    """Keeps what comes until it is told to let it go; then a record a step."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.steps = 0
        self.released = False
        self.parked = False
        self.greedy = False

    def process(self, batch: Batch, port: int = 0) -> Work:
        self.kept += batch.rows()
        return None if self.parked and not self.greedy else self._steps()

    def process_watermark(self, timestamp: int) -> None:
        self.kept.append(timestamp)

    def _steps(self) -> Steps:
        self.parked = True
        while self.kept:
            self.steps += 1
            if self.released:
                self.out.emit(ObjectBatch([self.kept.pop(0)]))
                yield IN_STATE
            else:
                yield WAITING
        self.parked = False


def wired(room: int = 100) -> tuple[ChainNode, Keeps, Writer]:
    writer, operator = Writer(room), Keeps()
    node = ChainNode(operator, OperatorMetrics("keeps"), 0, Slice(VirtualClock()))
    node.outer.append(writer)  # type: ignore[arg-type]
    operator.setup(None, node)  # type: ignore[arg-type]
    node.wired()
    return node, operator, writer


def resume(node: ChainNode) -> bool:
    """As a task's step does; whether anything was done."""
    node._slice.begin()
    if node.can_go_on and node.takes_more:
        node.go_on()
        return True
    return False


def test_waiting_work_is_left_alone_until_it_is_woken() -> None:
    node, operator, writer = wired()
    node.process(ObjectBatch([1]), 0)
    assert node.busy
    assert node.settled
    assert not resume(node)
    assert operator.steps == 1
    operator.released = True
    assert not resume(node), "nobody has woken it"
    node.wake(5)
    while resume(node):
        pass
    assert writer.got == [1]
    assert not node.busy


def test_what_comes_while_it_waits_is_heard_and_holds_up_no_snapshot() -> None:
    node, operator, writer = wired()
    node.process(ObjectBatch([1]), 0)
    node.process_watermark(7)
    node.process(ObjectBatch([2, 3]), 0)
    assert operator.kept == [1, 7, 2, 3]
    assert node.settled
    assert node.metrics.records_in == 3
    operator.released = True
    node.wake(5)
    while resume(node):
        pass
    assert writer.got == [1, 7, 2, 3]


def test_woken_work_waits_for_room_and_calls_for_the_work() -> None:
    """Between its steps that emit, calls wait as with any other work; when it waits again they are
    handed over, and none is lost."""
    node, operator, writer = wired(room=1)
    node.process(ObjectBatch([1, 2]), 0)
    operator.released = True
    node.wake(5)
    resume(node)
    assert writer.got == [1]
    assert node.busy
    assert not resume(node)
    node.process(ObjectBatch([3]), 0)
    assert operator.kept == [2]
    assert not node.settled
    operator.released = False
    writer.room = 9
    resume(node)
    assert operator.kept == [2, 3]
    assert node.settled
    assert not resume(node)
    operator.released = True
    node.wake(6)
    while resume(node):
        pass
    assert writer.got == [1, 2, 3]


def test_a_wake_up_that_comes_while_it_works_is_not_lost() -> None:
    node, operator, writer = wired(room=1)
    node.process(ObjectBatch([1, 2]), 0)
    operator.released = True
    node.wake(5)
    resume(node)
    node.wake(6)
    operator.released = False
    writer.room = 9
    resume(node)
    assert node.can_go_on, "woken before it began to wait"


def test_a_snapshot_does_not_wait_for_what_waits() -> None:
    node, operator, _ = wired()
    node.process(ObjectBatch([1]), 0)
    node.complete()
    assert operator.kept == [1]
    assert node.settled


def test_more_work_while_work_waits_is_refused_by_name() -> None:
    node, operator, _ = wired()
    node.process(ObjectBatch([1]), 0)
    operator.greedy = True
    with pytest.raises(OperatorError, match="'keeps', subtask 0: it began more work while"):
        node.process(ObjectBatch([2]), 0)


def test_closing_ends_waiting_work() -> None:
    node, _, writer = wired()
    node.process(ObjectBatch([1]), 0)
    node.close()
    assert not node.busy
    assert writer.got == []
    assert Watermark(1) not in writer.got

"""Work in steps: parked while outputs are full, in order, named in errors, closed in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from strom.core.batch import Batch, ObjectBatch
from strom.core.clock import VirtualClock
from strom.core.elements import Control, Watermark
from strom.core.errors import OperatorError
from strom.engine.task.chain_node import ChainNode
from strom.engine.task.metrics import OperatorMetrics
from strom.engine.task.slices import SLICE_STEPS, Slice
from strom.operators.base import IN_STATE, Operator, Pause, Steps, Work
from strom.state.expiry import AT_A_WATERMARK, StateTime


class Writer:
    """An exchange that takes `room` batches; everything it was given, in order."""

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.got: list[Any] = []

    @property
    def available(self) -> bool:
        return self.room > 0

    def emit(self, batch: Batch) -> None:
        self.room -= 1
        self.got += batch.rows()

    def broadcast(self, element: Control) -> None:
        self.got.append(element)


class Copies(Operator):
    """`(value, n)` becomes n times value, each a step; so does a watermark, as a firing would."""

    def __init__(self, pause: Pause | None = None) -> None:
        self._pause = pause
        self.closed: list[str] = []

    def process(self, batch: Batch, port: int = 0) -> Work:
        return self._copies(batch.rows())

    def _copies(self, rows: list[Any]) -> Steps:
        try:
            for value, times in rows:
                for _ in range(times):
                    self.out.emit(ObjectBatch([value]))
                    yield self._pause
        finally:
            self.closed.append("work")

    def process_watermark(self, timestamp: int) -> Steps:
        yield from self._copies([("fired", 2)])
        self.out.emit_watermark(timestamp)

    def on_processing_time(self, now_ms: int) -> None:
        self.out.emit(ObjectBatch([("woken", now_ms)]))

    def finish(self) -> None:
        self.out.emit(ObjectBatch(["last"]))

    def close(self) -> None:
        self.closed.append("operator")


class Plain(Operator):
    """Passes everything on at once."""

    def process(self, batch: Batch, port: int = 0) -> None:
        self.out.emit(batch)


def wired(
    operators: list[Operator], writer: Writer, clock: VirtualClock | None = None
) -> tuple[list[ChainNode], Slice]:
    """A chain in a row, the last before the writer."""
    slice_ = Slice(clock or VirtualClock())
    nodes = [ChainNode(o, OperatorMetrics(f"o{i}"), 0, slice_) for i, o in enumerate(operators)]
    for node, behind in pairwise(nodes):
        node.inner.append((behind, 0))
    nodes[-1].outer.append(writer)  # type: ignore[arg-type]
    for node in reversed(nodes):
        node.operator.setup(None, node)  # type: ignore[arg-type]
        node.wired()
    slice_.begin()
    return nodes, slice_


def rows(*values: Any) -> ObjectBatch:
    return ObjectBatch(list(values))


def resume(nodes: list[ChainNode], slice_: Slice) -> None:
    """As a task's step does."""
    slice_.begin()
    for node in reversed(nodes):
        if node.busy and node.takes_more:
            node.go_on()


def test_work_stops_when_the_output_is_full_and_goes_on_when_there_is_room() -> None:
    writer = Writer(room=2)
    (node,), slice_ = wired([Copies()], writer)
    node.process(rows(("a", 5)), 0)
    assert writer.got == ["a", "a"]
    assert node.busy
    resume([node], slice_)
    assert writer.got == ["a", "a"], "still no room"
    writer.room = 10
    resume([node], slice_)
    assert writer.got == ["a"] * 5
    assert not node.busy


def test_what_comes_meanwhile_waits_in_order() -> None:
    writer = Writer(room=1)
    (node,), slice_ = wired([Copies()], writer)
    node.process(rows(("a", 2)), 0)
    node.process_watermark(7)
    node.process_status(False)
    node.process(rows(("b", 1)), 0)
    node.finish()
    assert (writer.got, node.metrics.records_in) == (["a"], 1)
    for room in range(20):
        writer.room = room
        resume([node], slice_)
    controls = [e for e in writer.got if not isinstance(e, str)]
    assert [e if isinstance(e, str) else type(e).__name__ for e in writer.got] == [
        *("a", "a", "fired", "fired", "Watermark", "StreamStatus", "b", "last")
    ]
    assert controls[0] == Watermark(7)
    assert node.metrics.records_in == 2


def test_an_operator_does_not_run_ahead_of_a_busy_one_behind_it() -> None:
    """Each looks at its own pauses: no more than a batch of each waits."""
    writer = Writer(room=1)
    first, second = Copies(), Copies()
    nodes, slice_ = wired([first, Plain(), second], writer)
    nodes[0].process(rows((("x", 3), 4)), 0)
    assert writer.got == ["x"]
    assert nodes[0].busy
    assert nodes[2].busy
    assert nodes[2].metrics.records_in == 1
    while nodes[0].busy or nodes[2].busy:
        writer.room = 1
        resume(nodes, slice_)
        assert len(nodes[2]._calls) <= 1
    assert writer.got == ["x"] * 12


def test_the_first_step_is_taken_at_once_and_no_more_while_full() -> None:
    writer = Writer(room=0)
    (node,), _ = wired([Copies()], writer)
    node.process(rows(("a", 3)), 0)
    assert writer.got == ["a"]


def test_a_snapshot_waits_for_work_that_only_the_work_knows_of() -> None:
    for pause, settled in ((None, False), (IN_STATE, True)):
        writer = Writer(room=1)
        (node,), _ = wired([Copies(pause)], writer)
        assert node.settled
        node.process_watermark(3)
        assert node.busy
        assert node.settled is settled
        node.process(rows(("b", 1)), 0)
        assert not node.settled, "a batch waits that is in no state"
        node.complete()
        assert node.settled
        assert writer.got == ["fired", "fired", Watermark(3), "b"]


def test_it_stops_where_a_snapshot_may_be_taken_though_there_is_room() -> None:
    """Each step fills the output; only the second pause of three is one that state describes.

    got       f   f   f   f   ...
    pauses    -   S   -   -   S
    """

    class Mixed(Copies):
        def process_watermark(self, timestamp: int) -> Steps:
            for number, _ in enumerate(self._copies([("f", 8)])):
                yield IN_STATE if number % 3 == 1 else None

    writer = Writer(room=1)
    (node,), slice_ = wired([Mixed()], writer)
    node.process_watermark(3)
    settled = [node.settled]
    while node.busy:
        writer.room = 9
        resume([node], slice_)
        settled.append(node.settled)
        assert node.settled, "rooms for nine, and it stopped where it could be seen"
    assert settled == [False, True, True, True, True]
    assert writer.got == ["f"] * 8


def test_a_slice_ends_though_there_is_room_and_the_clock_stands_still() -> None:
    writer = Writer(room=10**6)
    (node,), slice_ = wired([Copies()], writer)
    node.process(rows(("a", 10**5)), 0)
    assert len(writer.got) == SLICE_STEPS
    resume([node], slice_)
    assert len(writer.got) == 2 * SLICE_STEPS


def test_a_slice_ends_by_the_clock() -> None:
    clock = VirtualClock()

    class Slow(Copies):
        def _copies(self, rows: list[Any]) -> Steps:
            for pause in super()._copies(rows):
                clock.advance_ms(4)
                yield pause

    writer = Writer(room=10**6)
    (node,), _ = wired([Slow()], writer, clock)
    node.process(rows(("a", 100)), 0)
    assert len(writer.got) == 3


def test_wake_ups_wait_as_one_while_outputs_are_full() -> None:
    writer = Writer(room=0)
    (node,), slice_ = wired([Copies()], writer)
    for now in (5, 6, 9):
        node.wake(now)
    assert writer.got == []
    assert node.settled, "it will be asked for again"
    writer.room = 5
    resume([node], slice_)
    assert writer.got == [("woken", 9)]
    assert not node.busy
    node.wake(10)
    assert writer.got[1:] == [("woken", 10)]


def test_an_error_in_a_later_step_names_the_operator() -> None:
    class Breaking(Copies):
        def _copies(self, rows: list[Any]) -> Steps:
            yield None
            raise ValueError("in the second step")

    writer = Writer(room=0)
    (node,), _ = wired([Breaking()], writer)
    node.process(rows(1), 0)
    with pytest.raises(OperatorError, match=r"o0.*in the second step"):
        node.go_on()


def test_an_error_behind_is_not_the_pausing_operators() -> None:
    class Failing(Operator):
        def process(self, batch: Batch, port: int = 0) -> None:
            if self.ready():
                raise ValueError("no")

        def ready(self) -> bool:
            writer.room -= 1
            return writer.room < 0

    writer = Writer(room=1)
    nodes, _ = wired([Copies(), Failing()], writer)
    nodes[0].process(rows(("a", 2)), 0)
    with pytest.raises(OperatorError, match="o1"):
        nodes[0].go_on()


@pytest.mark.parametrize("started", [True, False])
def test_closing_ends_parked_work_first(started: bool) -> None:
    writer = Writer(room=1)
    operator = Copies()
    (node,), _ = wired([operator], writer)
    if started:
        node.process(rows(("a", 9)), 0)
        node.process(rows(("b", 9)), 0)
    node.close()
    assert operator.closed == (["work", "operator"] if started else ["operator"])
    assert not node.busy


def test_work_that_fails_to_close_does_not_keep_the_operator_open() -> None:
    class Stubborn(Copies):
        def _copies(self, rows: list[Any]) -> Steps:
            try:
                yield None
            finally:
                raise ValueError("no end")

    operator = Stubborn()
    (node,), _ = wired([operator], Writer(room=0))
    node.process(rows(1), 0)
    with pytest.raises(ValueError, match="no end"):
        node.close()
    assert operator.closed == ["operator"]


def test_outputs_beside_are_asked_too() -> None:
    """A side output that is full parks the work, though the main output takes more."""
    main, side = Writer(room=10), Writer(room=0)
    (node,), slice_ = wired([Copies()], main)
    node.outer_tagged["late"] = [side]  # type: ignore[list-item]
    node.wired()
    node.process(rows(("a", 3)), 0)
    assert main.got == ["a"]
    side.room = 1
    resume([node], slice_)
    assert main.got == ["a"] * 3


def test_one_step_costs_no_pause() -> None:
    def steps(operator: Any) -> Callable[..., Iterator[None]]:
        def process(batch: Batch, port: int = 0) -> Iterator[None]:
            operator.out.emit(batch)
            return
            yield

        return process

    operator = Plain()
    operator.process = steps(operator)  # type: ignore[method-assign]
    writer = Writer(room=0)
    (node,), _ = wired([operator], writer)
    node.process(rows("a"), 0)
    assert (writer.got, node.busy) == (["a"], False)


class Expiring:
    """A state that notes what it is told."""

    def __init__(self, writer: Writer) -> None:
        self._got = writer.got

    def sweep(self, records: int) -> None:
        self._got.append(f"sweep {records}")

    def begin_event_time(self, watermark: int) -> None:
        self._got.append(f"first {watermark}")


def test_state_that_expires_is_told_of_batches_and_of_watermarks_behind_their_work() -> None:
    writer = Writer(100)
    nodes, _ = wired([Copies()], writer)
    node = nodes[0]
    node.time = StateTime(VirtualClock())
    node.time.states.append(Expiring(writer))
    node.process(ObjectBatch([("a", 1), ("b", 1)]), 0)
    writer.room = 1
    node.process_watermark(7)
    assert writer.got == ["sweep 2", "a", "b", "fired"]
    assert node.time.watermark < 7
    writer.room = 10
    node.complete()
    mark = f"sweep {AT_A_WATERMARK}"
    assert writer.got == ["sweep 2", "a", "b", "fired", "fired", Watermark(7), mark]
    assert node.time.watermark == 7


def test_a_state_that_is_asked_for_later_goes_by_the_watermarks_before_it() -> None:
    node = wired([Copies()], Writer(100))[0][0]
    node.time = StateTime(VirtualClock())
    node.process_watermark(7)
    assert node.time.event() == 7

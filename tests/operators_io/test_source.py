"""The source operator against a scripted reader: splits, time, idleness, end, checkpoints."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from strom.api.connectors.base import Emit, Wait
from strom.api.specs.records import SourceSpec
from strom.api.watermarks import WatermarkGenerator, WatermarkStrategy
from strom.core.batch import ObjectBatch
from strom.core.config import JobConfig
from strom.core.elements import MAX_TIMESTAMP
from strom.operators.base import PollStatus, run_to_end
from strom.operators.io.source import ReplayableSourceOperator
from strom.operators.io.split_asking import ASK_AGAIN_MS
from strom.state.operator_state import OperatorStateBackend

MORE, IDLE, ENDED = PollStatus.MORE, PollStatus.IDLE, PollStatus.ENDED
STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(0))
CONFIG = JobConfig(auto_watermark_interval=timedelta(milliseconds=10))


def source(reader: Any, strategy: Any = STRATEGY) -> ReplayableSourceOperator:
    made = SimpleNamespace(create_reader=lambda context: reader)
    return ReplayableSourceOperator(SourceSpec(made, strategy))


def emit(split_id: str, *stamps: int, finished: bool = False) -> Emit:
    times = np.array(stamps, dtype=np.int64)
    return Emit(ObjectBatch(list(stamps), times), split_id, finished)


def drain(setup: Any) -> PollStatus:
    while (status := setup.operator.poll()) is MORE:
        pass
    return status


def test_asks_once_until_answered(start: Any, reader: Any, split: Any) -> None:
    setup = start(source(reader))
    assert [setup.operator.poll() for _ in range(3)] == [IDLE] * 3
    assert len(setup.requests) == 1
    setup.operator.add_splits([split("a")])
    assert reader.added == [[split("a")]]
    reader.script.append(emit("a", 1, 2, finished=True))
    assert setup.operator.poll() is MORE
    assert len(setup.requests) == 1
    assert setup.operator.poll() is IDLE
    assert len(setup.requests) == 2
    assert setup.out.counts == {"splits_finished": 1}


def test_an_empty_answer_is_asked_again_after_a_pause(start: Any, reader: Any) -> None:
    setup = start(source(reader))
    setup.operator.poll()
    setup.operator.add_splits([])
    assert setup.operator.poll() is IDLE
    assert len(setup.requests) == 1
    assert setup.wakes[-1] == setup.clock.now_ms() + ASK_AGAIN_MS
    setup.clock.advance_ms(ASK_AGAIN_MS)
    assert setup.operator.poll() is IDLE
    assert len(setup.requests) == 2
    assert setup.operator.poll() is IDLE
    assert len(setup.requests) == 2


def test_ends_after_no_more_splits_and_stays_ended(start: Any, reader: Any) -> None:
    setup = start(source(reader, None))
    assert setup.operator.poll() is IDLE
    reader.script.append(emit("a", 5, finished=True))
    setup.operator.no_more_splits()
    assert [setup.operator.poll() for _ in range(4)] == [MORE, ENDED, ENDED, ENDED]
    assert setup.out.of("watermark") == [MAX_TIMESTAMP]
    setup.tick(1000)
    assert setup.out.of("watermark") == [MAX_TIMESTAMP]
    assert setup.snapshot(1).tables()[0].items == ()


def test_waits_until_the_readers_time(start: Any, reader: Any) -> None:
    setup = start(source(reader, None))
    reader.script.extend([Wait(123), Wait(None)])
    assert [setup.operator.poll(), setup.operator.poll()] == [IDLE, IDLE]
    assert setup.wakes == [123]


def test_reader_errors_propagate(start: Any, reader: Any) -> None:
    setup = start(source(reader))
    reader.script.append(OSError("disk on fire"))
    with pytest.raises(OSError, match="disk on fire"):
        setup.operator.poll()
    setup.operator.close()
    setup.operator.close()
    assert reader.closed == 1


def test_watermark_is_the_minimum_over_splits(start: Any, reader: Any, split: Any) -> None:
    #  a   10  .   30(end)
    #  b   .   20  .        (held back at nothing until its first record)
    #  wm      9   19
    setup = start(source(reader), config=CONFIG)
    setup.operator.add_splits([split("a"), split("b")])
    reader.script.extend([emit("a", 10), emit("b", 20), emit("a", 30, finished=True)])
    setup.operator.poll()
    setup.tick(10)
    assert setup.out.of("watermark") == []
    setup.operator.poll()
    setup.tick(10)
    assert setup.out.of("watermark") == [9]
    setup.operator.poll()
    setup.tick(10)
    assert setup.out.of("watermark") == [9, 19]


def test_watermarks_never_decrease_when_an_older_split_comes(
    start: Any, reader: Any, split: Any
) -> None:
    setup = start(source(reader), config=CONFIG)
    setup.operator.add_splits([split("a")])
    reader.script.append(emit("a", 100))
    setup.operator.poll()
    setup.tick(10)
    reader.script.append(emit("a", 101, finished=True))
    setup.operator.poll()
    setup.operator.add_splits([split("b")])
    for stamp in (5, 50, 200):
        reader.script.append(emit("b", stamp))
        setup.operator.poll()
        setup.tick(10)
    assert setup.out.of("watermark") == [99, 199]


def test_a_source_without_a_strategy_may_know_its_watermarks(
    start: Any, reader: Any, split: Any
) -> None:
    for strategy, expected in ((None, [5, 9]), (STRATEGY, [])):
        setup = start(source(reader, strategy))
        setup.operator.add_splits([split("a")])
        for rows, known in (((7, 8), 5), ((), 4), ((), 9)):
            reader.script.append(replace(emit("a", *rows), watermark=known))
        reader.script.append(Wait(None))
        drain(setup)
        assert setup.out.of("watermark") == expected
        kinds = [event[0] for event in setup.out.events]
        assert kinds == ["batch", *["watermark"] * len(expected)]


def test_periodic_watermarks_keep_their_interval(start: Any, reader: Any, split: Any) -> None:
    setup = start(source(reader), config=CONFIG)
    setup.operator.add_splits([split("a")])
    reader.script.extend([emit("a", 1), emit("a", 2)])
    setup.operator.poll()
    setup.tick(9)
    assert setup.out.of("watermark") == []
    setup.tick(1)
    setup.operator.poll()
    run_to_end(setup.operator.on_processing_time(setup.clock.now_ms()))
    assert setup.out.of("watermark") == [0]
    assert setup.wakes[-1] == setup.clock.now_ms() + 10


class EveryTen(WatermarkGenerator):
    def on_event(self, value: Any, timestamp: int) -> int | None:
        return timestamp if timestamp % 10 == 0 else None


def test_punctuated_watermarks_follow_their_batch(start: Any, reader: Any, split: Any) -> None:
    setup = start(source(reader, WatermarkStrategy.for_generator(EveryTen)))
    setup.operator.add_splits([split("a"), split("b")])
    reader.script.extend([emit("a", 20, 21), emit("b", 10), emit("b", 30)])
    drain(setup)
    kinds = [event[0] if event[0] == "batch" else event for event in setup.out.events]
    assert kinds == ["batch", "batch", ("watermark", 10), "batch", ("watermark", 20)]


def test_idle_after_the_timeout_and_active_at_the_next_record(
    start: Any, reader: Any, split: Any
) -> None:
    setup = start(source(reader, STRATEGY.with_idleness(30)), config=CONFIG)
    setup.operator.add_splits([split("a")])
    reader.script.extend([emit("a", 7), Wait(None)])
    drain(setup)
    for _ in range(2):
        setup.tick(10)
    assert setup.out.of("status") == []
    setup.tick(10)
    setup.tick(10)
    assert setup.out.of("status") == [False]
    reader.script.append(emit("a", 9))
    setup.operator.poll()
    setup.tick(10)
    assert setup.out.events[-3:-1] == [("status", True), setup.out.events[-2]]
    assert setup.out.of("watermark") == [6, 8]


def test_a_message_to_the_reader_is_no_split(start: Any, reader: Any, split: Any) -> None:
    #  a        10 (end)   .
    #  message  .          every 10 ms: holds no watermark back, and is no sign of life
    setup = start(source(reader, STRATEGY.with_idleness(30)), config=CONFIG)
    setup.operator.add_splits([split(""), split("a")])
    reader.script.append(emit("a", 10, finished=False))
    setup.operator.poll()
    setup.tick(10)
    assert setup.out.of("watermark") == [9]
    reader.script.append(emit("a", 11, finished=True))
    setup.operator.poll()
    for _ in range(4):
        reader.script.append(Wait(None))
        setup.operator.poll()
        setup.operator.add_splits([split("")])
        setup.tick(10)
    assert setup.out.of("status") == [False]


def test_an_idle_split_lets_the_others_pass(start: Any, reader: Any, split: Any) -> None:
    setup = start(source(reader, STRATEGY.with_idleness(30)), config=CONFIG)
    setup.operator.add_splits([split("a"), split("b")])
    for i in range(5):
        reader.script.append(emit("a", 100 + i))
        setup.operator.poll()
        setup.tick(10)
    assert setup.out.of("status") == []
    assert setup.out.of("watermark")[0] >= 99
    reader.script.append(emit("b", 1))
    setup.operator.poll()
    before = setup.out.of("watermark")
    setup.tick(10)
    assert setup.out.of("watermark") == before


def test_backpressure_is_not_idleness(start: Any, reader: Any, split: Any) -> None:
    setup = start(source(reader, STRATEGY.with_idleness(300)), config=CONFIG)
    setup.operator.add_splits([split("a")])
    reader.script.append(emit("a", 7))
    setup.operator.poll()
    for _ in range(100):
        setup.tick(100)
    assert setup.out.of("status") == []


def test_an_idle_source_turns_active_before_it_ends(start: Any, reader: Any) -> None:
    setup = start(source(reader, STRATEGY.with_idleness(10)), config=CONFIG)
    setup.operator.poll()
    for _ in range(3):
        setup.tick(10)
    setup.operator.no_more_splits()
    setup.operator.poll()
    assert setup.out.events == [("status", False), ("status", True), ("watermark", MAX_TIMESTAMP)]


def test_unfinished_splits_are_state_and_come_back(start: Any, reader: Any, split: Any) -> None:
    setup = start(source(reader))
    setup.operator.add_splits([split("a", 1), split("b", 2)])
    tables = setup.snapshot(3).tables()
    setup.operator.notify_checkpoint_complete(3)
    assert reader.completed == [3]

    again = type(reader)()
    restored = start(source(again), tables=tables, attempt=1)
    assert again.added == [[split("a", 1), split("b", 2)]]
    again.script.append(emit("a", 1))
    # Splits that nobody had then may hold earlier records: nothing is read before the answer.
    assert restored.operator.poll() is IDLE
    assert len(restored.requests) == 1, "no-more-splits is not state: ask at the first poll"
    restored.operator.no_more_splits()
    assert restored.operator.poll() is MORE
    assert restored.operator.poll() is ENDED


def test_a_restored_reader_gets_its_other_splits_before_it_goes_on(
    start: Any, reader: Any, split: Any
) -> None:
    """Else the watermark passes the records of a split that had not been assigned: they are late,
    and in no run without the failure."""
    setup = start(source(reader))
    setup.operator.add_splits([split("a", 1)])
    tables = setup.snapshot(3).tables()
    for answer in ([split("b")], []):
        again = type(reader)()
        restored = start(source(again), tables=tables, attempt=1)
        again.script.append(emit("a", 1))
        assert [restored.operator.poll(), restored.operator.poll()] == [IDLE, IDLE]
        assert len(restored.requests) == 1
        restored.operator.add_splits(answer)  # none now: that is an answer, too
        assert restored.operator.poll() is MORE
        assert again.added == [[split("a", 1)], answer][: 1 + len(answer)]


def test_split_state_is_dealt_out_on_a_rescale(start: Any, reader: Any, split: Any) -> None:
    setup = start(source(reader))
    setup.operator.add_splits([split(name) for name in "abc"])
    state = OperatorStateBackend()
    state.restore(setup.snapshot(1).tables())
    assert [t.mode for t in state.snapshot().tables()] == ["split"]


def test_a_wrong_poll_result_is_named(start: Any, reader: Any) -> None:
    from strom.core.errors import OperatorError

    setup = start(source(reader))
    reader.script.append("batch")
    with pytest.raises(OperatorError, match=r"my operator.*'batch', not Emit"):
        setup.operator.poll()


def test_a_reader_that_holds_splits_may_ask_for_more(start: Any, reader: Any, split: Any) -> None:
    reader.asks_every_ms = 1000
    setup = start(source(reader))
    setup.operator.poll()
    setup.operator.add_splits([split("a")])
    for step in range(1, 4):
        reader.script.append(Wait(None))
        setup.operator.poll()
        assert len(setup.requests) == step
        assert setup.clock.now_ms() + 1000 in setup.wakes
        setup.clock.advance_ms(1000)
        reader.script.extend([Wait(None)] * 2)
        setup.operator.poll()
        setup.operator.poll()
        assert len(setup.requests) == step + 1, "asked once, and not again before the answer"
        setup.operator.add_splits([])
    setup.operator.no_more_splits()
    setup.clock.advance_ms(10_000)
    reader.script.append(Wait(None))
    setup.operator.poll()
    assert len(setup.requests) == 4


def test_a_reader_hears_which_positions_are_durable(start: Any, reader: Any, split: Any) -> None:
    setup = start(source(reader))
    setup.operator.add_splits([split("a")])
    for checkpoint, position in ((1, 10), (2, 20), (3, 30), (4, 40)):
        reader.unfinished = [split("a", position)]
        setup.snapshot(checkpoint)
    setup.operator.notify_checkpoint_aborted(2)
    setup.operator.notify_checkpoint_complete(3)
    assert reader.durable == [split("a", 30)]
    setup.operator.notify_checkpoint_complete(4)
    assert reader.durable == [split("a", 40)]
    assert setup.operator._positions == {}


def test_a_reader_counts_among_the_metrics(start: Any, reader: Any) -> None:
    def create(context: Any) -> Any:
        context.count("passed_over", 2)
        context.count("passed_over", 1)
        return reader

    setup = start(ReplayableSourceOperator(SourceSpec(SimpleNamespace(create_reader=create), None)))
    assert setup.out.counts == {"passed_over": 3}


def test_side_outputs_go_out_before_the_records(start: Any, reader: Any) -> None:
    setup = start(source(reader, None))
    bad = ObjectBatch(["bad"])
    reader.script.append(Emit(ObjectBatch([1]), "a", side=[("wrong", bad)]))
    reader.script.append(Emit(ObjectBatch([]), "a", side=[("wrong", bad)]))
    drain(setup)
    assert [event[0] for event in setup.out.events] == ["side", "batch", "side"]
    assert setup.out.events[0] == ("side", "wrong", bad)

"""Watermark alignment: the source operator's part, the coordinator's part, and both together."""

from __future__ import annotations

import random
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from strom import ConfigurationError, StreamExecutionEnvironment
from strom.api.connectors.base import Emit, Wait
from strom.api.specs.records import SourceSpec
from strom.api.watermarks import WatermarkStrategy
from strom.core.batch import ObjectBatch
from strom.core.elements import MIN_TIMESTAMP
from strom.core.ids import OperatorId, TaskId, VertexId
from strom.engine.coordinator.watermark_alignment import AlignmentGroup, WatermarkAlignment
from strom.operators.base import PollStatus
from strom.operators.io.source import ReplayableSourceOperator
from strom.operators.io.split_alignment import SplitAlignment

STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
    "group", timedelta(milliseconds=100), timedelta(milliseconds=50)
)


def source(reader: Any, strategy: Any = STRATEGY) -> ReplayableSourceOperator:
    made = SimpleNamespace(create_reader=lambda context: reader)
    return ReplayableSourceOperator(SourceSpec(made, strategy))


def emit(split_id: str, *stamps: int) -> Emit:
    return Emit(ObjectBatch(list(stamps), np.array(stamps, dtype=np.int64)), split_id)


def test_a_reader_without_splits_that_expects_none_holds_nobody_back(
    start: Any, reader: Any, split: Any
) -> None:
    setup = start(source(reader))
    setup.operator.poll()
    setup.operator.add_splits([split("")])
    reader.script.append(Wait(None))
    setup.operator.poll()
    setup.tick(50)
    assert setup.reported == [None]
    setup.operator.poll()  # needs a split again, and one may be on its way
    setup.tick(50)
    assert setup.reported == [None]


def test_a_reader_that_can_lets_single_splits_wait(start: Any, reader: Any, split: Any) -> None:
    reader.can_pause = True
    setup = start(source(reader))
    setup.operator.add_splits([split("a"), split("b")])
    setup.tick(0)
    assert setup.reported == [MIN_TIMESTAMP], "no record yet: it holds everybody back"
    reader.script.extend([emit("a", 1000), emit("b", 200)])
    setup.operator.poll()
    setup.operator.poll()
    setup.tick(50)
    assert setup.reported[-1] == 199
    setup.operator.align(199 + 100)
    assert reader.paused == {"a"}
    reader.script.append(emit("b", 500))
    assert setup.operator.poll() is PollStatus.MORE
    assert reader.paused == {"a", "b"}
    setup.operator.align(998)
    assert reader.paused == {"a"}
    setup.operator.align(999)
    assert reader.paused == frozenset()
    setup.operator.align(0)
    setup.operator.align(None)
    assert reader.paused == frozenset()


def test_a_reader_that_cannot_waits_whole(start: Any, reader: Any, split: Any) -> None:
    """It reads one split after the other: those it has not begun hold nobody back, itself least."""
    setup = start(source(reader))
    setup.operator.add_splits([split("a"), split("b")])
    reader.script.extend([emit("a", 1000), emit("a", 1001)])
    setup.operator.poll()
    setup.tick(50)
    assert setup.reported[-1] == 999
    setup.operator.align(500)
    assert setup.operator.poll() is PollStatus.IDLE
    assert len(reader.script) == 1
    setup.operator.align(1000)
    assert setup.operator.poll() is PollStatus.MORE


def test_nobody_waits_for_one_that_ended_or_is_idle(start: Any, reader: Any, split: Any) -> None:
    reader.can_pause = True
    setup = start(source(reader, STRATEGY.with_idleness(timedelta(milliseconds=100))))
    setup.operator.align(2000)
    setup.operator.add_splits([split("a")])
    reader.script.append(emit("a", 1000))
    setup.operator.poll()
    setup.operator.poll()
    for _ in range(10):
        setup.tick(50)
        setup.operator.poll()
    assert setup.reported[-1] is None
    setup.operator.no_more_splits()
    assert setup.operator.poll() is PollStatus.ENDED
    told = len(setup.reported)
    assert setup.reported[-1] is None
    setup.tick(500)
    assert len(setup.reported) == told


def test_a_source_whose_splits_are_on_their_way_lets_nobody_go(
    start: Any, reader: Any, split: Any
) -> None:
    """Before its first answer, and between two splits: it would report that it holds nobody back,
    and the others would run away until it has one. Without any to come it does hold nobody."""
    reader.can_pause = True
    setup = start(source(reader))
    setup.tick(0)
    setup.operator.poll()
    setup.tick(50)
    assert setup.reported == []
    setup.operator.add_splits([split("a")])
    setup.tick(50)
    assert setup.reported == [MIN_TIMESTAMP]
    reader.script.append(Emit(ObjectBatch([]), "a", finished=True))
    setup.operator.poll()
    setup.tick(50)
    setup.operator.poll()
    setup.tick(50)
    assert setup.reported == [MIN_TIMESTAMP]
    setup.operator.add_splits([])
    setup.tick(50)
    assert setup.reported == [MIN_TIMESTAMP, None]


@pytest.mark.parametrize("can_pause", [True, False])
def test_a_split_that_must_wait_is_not_idle(
    start: Any, reader: Any, split: Any, can_pause: bool
) -> None:
    """Its silence is not its own; idle, it would be passed by, and its records late."""
    reader.can_pause = can_pause
    setup = start(source(reader, STRATEGY.with_idleness(timedelta(milliseconds=100))))
    setup.operator.add_splits([split("a")])
    reader.script.append(emit("a", 1000))
    setup.operator.poll()
    setup.operator.align(0)
    for _ in range(10):
        setup.operator.poll()
        setup.tick(50)
    assert setup.reported[-1] == 999
    assert setup.out.of("status") == []
    setup.operator.align(None)
    for _ in range(10):
        setup.operator.poll()
        setup.tick(50)
    assert setup.reported[-1] is None
    assert setup.out.of("status") == [False]


def reader_of(operator: str, subtask: int) -> tuple[OperatorId, TaskId]:
    return OperatorId(operator), TaskId(VertexId(operator), subtask)


def test_the_coordinator_answers_who_reports() -> None:
    one, two, other = (OperatorId(name) for name in ("one", "two", "other"))
    alignment = WatermarkAlignment(
        {
            one: AlignmentGroup("g", 10, (TaskId(VertexId("one"), 0),)),
            two: AlignmentGroup("g", 20, (TaskId(VertexId("two"), 0),)),
            other: AlignmentGroup("h", 5, (TaskId(VertexId("other"), 0),)),
        }
    )
    assert alignment.on_report(*reader_of("one", 0), 100) == (MIN_TIMESTAMP + 10,), "two is silent"
    assert alignment.on_report(*reader_of("two", 0), 50) == (70,)
    assert alignment.on_report(*reader_of("other", 0), 1) == (6,)
    assert alignment.on_report(*reader_of("one", 0), 100) == (60,)
    assert alignment.on_report(*reader_of("one", 0), 105) is None, "it knows"
    assert alignment.on_report(*reader_of("two", 0), None) == (125,)
    assert alignment.on_report(*reader_of("one", 0), None) == (None,)
    assert alignment.on_report(*reader_of("unknown", 0), 1) is None


def test_who_was_told_nothing_yet_is_told_that_there_is_no_limit() -> None:
    """It waits at its first watermark until it hears something."""
    one = OperatorId("one")
    alignment = WatermarkAlignment({one: AlignmentGroup("g", 10, (TaskId(VertexId("one"), 0),))})
    assert alignment.on_report(*reader_of("one", 0), None) == (None,)
    assert alignment.on_report(*reader_of("one", 0), None) is None


def test_readers_of_another_parallelism_hold_their_group_back_until_they_report() -> None:
    one, two = OperatorId("one"), OperatorId("two")

    def groups(readers: int) -> dict[OperatorId, AlignmentGroup]:
        tasks = tuple(reader_of("one", n)[1] for n in range(readers))
        return {
            one: AlignmentGroup("g", 10, tasks),
            two: AlignmentGroup("g", 10, (reader_of("two", 0)[1],)),
        }

    alignment = WatermarkAlignment(groups(2))
    for operator, subtask, watermark in (("one", 0, 50), ("one", 1, 60), ("two", 0, 70)):
        told = alignment.on_report(*reader_of(operator, subtask), watermark)
    assert told == (60,)
    for readers, reported in ((3, 80), (1, 90)):
        starts = groups(readers)[one].tasks
        alignment.adopt(groups(readers), starts)
        told = alignment.on_report(*reader_of("two", 0), reported)
        assert told == (MIN_TIMESTAMP + 10,), "none of them has said anything"
        for subtask in range(readers):
            alignment.on_report(*reader_of("one", subtask), 100 + subtask)
        assert alignment.on_report(*reader_of("two", 0), reported) == (reported + 10,)


@pytest.mark.parametrize("seed", range(20))
def test_no_split_runs_ahead_and_none_waits_for_ever(seed: int) -> None:
    """Subtasks with splits of random speeds, messages of random delay: a split is never read while
    it is beyond what the group's least watermark was when its limit was made, and all end."""
    chance = random.Random(seed)
    drift, end = chance.choice([0, 10, 100]), 500
    subtasks = [
        {f"{t}-{s}": 0 for s in range(chance.randint(1, 3))} for t in range(chance.randint(1, 4))
    ]
    tasks = tuple(TaskId(VertexId("one"), at) for at in range(len(subtasks)))
    coordinator = WatermarkAlignment({OperatorId("one"): AlignmentGroup("g", drift, tasks)})
    local = [SplitAlignment() for _ in subtasks]
    mail: list[tuple[int, int | None]] = []
    steps = 0
    while any(mark < end for marks in subtasks for mark in marks.values()):
        steps += 1
        assert steps < 200_000, "somebody waits for ever"
        at = chance.randrange(len(subtasks))
        marks, mine = subtasks[at], local[at]
        match chance.randrange(3):
            case 0:
                for name in marks:
                    if name not in mine.paused and marks[name] < end:
                        marks[name] = min(end, marks[name] + chance.randint(1, 40))
                mine.update(marks)
            case 1:
                unfinished = [mark for mark in marks.values() if mark < end]
                least = min(unfinished, default=None)
                told = coordinator.on_report(*reader_of("one", at), least)
                if told is not None:
                    mail.append((at, *told))
            case 2 if mail:
                to, limit = mail.pop(0)
                local[to].on_limit(limit)
                local[to].update(subtasks[to])
                running = [m for ms in subtasks for m in ms.values() if m < end]
                if limit is not None and running:
                    assert limit <= max(running) + drift


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda s: s.with_watermark_alignment("", 1), "name"),
        (lambda s: s.with_watermark_alignment("g", -1), "drift"),
        (lambda s: s.with_watermark_alignment("g", 1, 0), "interval"),
    ],
)
def test_what_is_refused(make: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        make(WatermarkStrategy.for_monotonous_timestamps())
    with pytest.raises(ConfigurationError, match="needs watermarks"):
        WatermarkStrategy.no_watermarks().with_watermark_alignment("g", 1)
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(ConfigurationError, match="from_source"):
        env.from_collection([1]).assign_timestamps_and_watermarks(STRATEGY)

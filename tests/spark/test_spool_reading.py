"""A spool read by source operators with checkpoints, questions that cross answers, and restores."""

from __future__ import annotations

import os
import pickle
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_kit import Subtask
from strom.api.connectors.base import EnumeratorContext
from strom.api.specs.records import SourceSpec
from strom.connectors.spark.spool import ENDED, RUNNING, Spool, SpoolState
from strom.connectors.spark.spool_source import SpoolSource
from strom.core.clock import VirtualClock
from strom.core.ids import Attempt, OperatorId, TaskId
from strom.engine.coordinator.actions import AskForSplits, Send
from strom.engine.coordinator.split_requests import SplitRequests
from strom.engine.messages import NoMoreSplits, SplitsAssigned
from strom.operators.base import PollStatus
from strom.operators.io.source import ReplayableSourceOperator
from strom.state.operator_state import redistribute

SCHEMA = pa.schema({"n": pa.int64()})
IN = OperatorId("in")
ROWS = 6
"""Of each micro-batch."""


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint. `read`: all numbers emitted before it."""

    id: int
    enumerator: bytes
    tables: tuple[Any, ...]
    read: tuple[int, ...]


class Reading:
    """One attempt to read a spool with several subtasks: the operators, and what the coordinator
    keeps of their questions. Mail lies where the test leaves it, in order."""

    def __init__(
        self, source: SpoolSource, parallelism: int, attempt: int = 0, saved: Saved | None = None
    ) -> None:
        self.clock = VirtualClock()
        state = None if saved is None else pickle.loads(saved.enumerator)
        self.enumerator = source.create_enumerator(
            EnumeratorContext("in", parallelism, "job"), state
        )
        tables = None if saved is None else redistribute(saved.tables, parallelism)
        self.subtasks = [
            Subtask(
                ReplayableSourceOperator(SourceSpec(source, None)),
                i,
                parallelism,
                attempt,
                None if tables is None else tables[i],
                self.clock,
            )
            for i in range(parallelism)
        ]
        self.before = () if saved is None else saved.read
        self.requests = SplitRequests(Attempt(attempt), {IN: "in"})
        self.requests.start()
        self._heard = [0] * parallelism
        self.questions: deque[int] = deque()
        """Of subtasks, not heard by the coordinator yet."""
        self.mail: list[deque[Any]] = [deque() for _ in self.subtasks]
        """To subtasks: answers, and checkpoints to be taken."""
        self.ended = [False] * parallelism
        self.parts: dict[int, tuple[Any, dict[int, Any]]] = {}
        """Of checkpoints under way: the enumerator's, and those of subtasks so far."""

    @property
    def read(self) -> tuple[int, ...]:
        return (*self.before, *(row.n for task in self.subtasks for row in task.rows()))

    def poll(self, i: int) -> None:
        task = self.subtasks[i]
        if self.ended[i]:
            return
        self.ended[i] = task.operator.poll() is PollStatus.ENDED
        self.questions.extend([i] * (task.asks - self._heard[i]))
        self._heard[i] = task.asks

    def hear(self) -> None:
        """The coordinator hears the oldest question."""
        if self.questions:
            i = self.questions.popleft()
            self._answer(self.requests.request(IN, TaskId(IN, i)))

    def retry(self) -> None:
        """It asks again for those who were told that there is nothing now."""
        self._answer(self.requests.retry(self.clock.now_ms()))

    def deliver(self, i: int) -> None:
        """The oldest mail."""
        if not self.mail[i]:
            return
        task = self.subtasks[i]
        match self.mail[i].popleft():
            case SplitsAssigned(_, splits):
                task.operator.add_splits(list(splits))
            case NoMoreSplits():
                task.operator.no_more_splits()
            case int(checkpoint):
                self.parts[checkpoint][1][i] = (task.snapshot(checkpoint), self._emitted(i))

    def trigger(self, checkpoint: int) -> None:
        self.parts[checkpoint] = pickle.dumps(self.enumerator.snapshot()), {}
        for box in self.mail:
            box.append(checkpoint)

    def completed(self, checkpoint: int) -> Saved | None:
        """None while a subtask's part is missing."""
        state, parts = self.parts[checkpoint]
        if len(parts) < len(self.subtasks):
            return None
        del self.parts[checkpoint]
        tables = tuple(parts[i][0] for i in range(len(parts)))
        read = tuple(n for i in range(len(parts)) for n in parts[i][1])
        return Saved(checkpoint, state, tables, (*self.before, *read))

    def checkpoint(self, number: int) -> Saved:
        """From the trigger to the completion, of which all subtasks hear."""
        self.trigger(number)
        for i, box in enumerate(self.mail):
            while box:
                self.deliver(i)
        saved = self.completed(number)
        assert saved is not None
        for task in self.subtasks:
            task.complete(number)
        return saved

    def run(self) -> None:
        """To the end."""
        for _ in range(10_000):
            if all(self.ended):
                return
            self.clock.advance_ms(50)
            self.retry()
            for i in range(len(self.subtasks)):
                self.poll(i)
                self.hear()
                self.deliver(i)
        raise AssertionError("the source does not end")

    def _emitted(self, i: int) -> list[int]:
        return [row.n for row in self.subtasks[i].rows()]

    def _answer(self, asked: list[AskForSplits]) -> None:
        for ask in asked:
            given = self.enumerator.next_splits(ask.task.subtask)
            answer: Any = NoMoreSplits(IN) if given is None else SplitsAssigned(IN, tuple(given))
            nothing = given is not None and not given
            sent = self.requests.on_answer(
                IN, ask.task, None if nothing else answer, self.clock.now_ms()
            )
            for send in sent:
                assert isinstance(send, Send)
                self.mail[ask.task.subtask].append(send.mail)


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # none of these tests loses its machine
    spool = Spool(tmp_path / "spool")
    spool.declare("{}")
    spool.say(SpoolState(RUNNING, 1))
    return spool


def write(spool: Spool, batch: int, files: int = 2) -> None:
    place = spool.new_place(batch)
    place.mkdir()
    numbers = range(batch * ROWS, batch * ROWS + ROWS)
    for index in range(files):
        table = pa.table({"n": list(numbers[index::files])}, SCHEMA)
        pq.write_table(table, place / f"part-{index:05d}.parquet")
    spool.publish(batch)


def folders(spool: Spool) -> list[int]:
    return sorted(int(path.name) for path in (spool.folder / "batches").iterdir())


def everything(batches: int) -> list[int]:
    return list(range(batches * ROWS))


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_restored_splits_are_kept_until_they_are_read(spool: Spool, parallelism: int) -> None:
    """A restored subtask asks at its first poll, though it holds splits."""
    source = SpoolSource(spool, SCHEMA, bounded=True)
    for batch in range(4):
        write(spool, batch)
    first = Reading(source, 1)
    first.poll(0)
    first.hear()
    first.deliver(0)  # holds micro-batches 0 to 3
    for batch in range(4, 20):
        write(spool, batch)
    spool.say(SpoolState(ENDED, 2))
    saved = first.checkpoint(1)

    second = Reading(source, parallelism, 1, saved)
    for i in range(parallelism):
        second.poll(i)
        second.hear()
    for number in (2, 3, 4):
        newest = second.checkpoint(number)  # under backpressure: nothing is read
    assert folders(spool)[0] == 0
    second.run()
    assert sorted(second.read) == everything(20)
    third = Reading(source, 1, 2, newest)
    third.run()
    assert sorted(third.read) == everything(20)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_question_that_crosses_its_answer_says_nothing_of_what_was_read(
    spool: Spool, parallelism: int
) -> None:
    source = SpoolSource(spool, SCHEMA, bounded=True)
    reading = Reading(source, parallelism)
    for i in range(parallelism):
        reading.poll(i)
        reading.hear()
        reading.deliver(i)  # nothing now
    for batch in range(3):
        write(spool, batch)
    reading.clock.advance_ms(100)
    for i in range(parallelism):
        reading.poll(i)  # asks again
    reading.retry()  # and is answered before that is heard
    for batch in range(3, 8):
        write(spool, batch)
    for i in range(parallelism):
        reading.hear()
        reading.deliver(i)
    for number in (1, 2, 3):
        newest = reading.checkpoint(number)
    assert folders(spool)[0] == 0
    spool.say(SpoolState(ENDED, 2))
    reading.run()
    assert sorted(reading.read) == everything(8)
    again = Reading(source, 3 - parallelism, 1, newest)
    again.run()
    assert sorted(again.read) == everything(8)


def test_what_a_dead_attempt_says_of_its_reading_does_not_count(spool: Spool) -> None:
    """It was further than the checkpoint that the job goes back to."""
    source = SpoolSource(spool, SCHEMA, bounded=True)
    dead = Reading(source, 2)
    saved = []
    for number in range(4):
        write(spool, number, files=1)
        for i in (0, 1):
            for _ in range(4):
                dead.poll(i)
                dead.hear()
                dead.deliver(i)
                dead.clock.advance_ms(100)
        saved.append(dead.checkpoint(number + 1))
    below = folders(spool)[0]
    going_back = next(one for one in saved if len(one.read) >= below * ROWS)
    Reading(source, 2, 1, going_back)
    dead.trigger(9)
    for i in (0, 1):
        dead.deliver(i)
        dead.subtasks[i].complete(9)
    assert folders(spool)[0] == below
    spool.say(SpoolState(ENDED, 2))
    again = Reading(source, 2, 2, going_back)
    again.run()
    assert sorted(again.read) == everything(4)


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_micro_batches_go_when_all_subtasks_have_read_them(spool: Spool, parallelism: int) -> None:
    source = SpoolSource(spool, SCHEMA, bounded=False)
    reading = Reading(source, parallelism)
    for batch in range(60):
        write(spool, batch, files=1)
        for i in range(parallelism):
            for _ in range(3):
                reading.clock.advance_ms(100)
                reading.retry()
                reading.poll(i)
                reading.hear()
                reading.deliver(i)
        reading.checkpoint(batch + 1)
        assert len(folders(spool)) <= 40
    assert len(folders(spool)) <= 40
    assert folders(spool)[0] > 0


@pytest.mark.parametrize("seed", range(25))
def test_every_row_once_whatever_happens(spool: Spool, seed: int) -> None:
    """Readers that lag, mail that waits, completions heard late, crashes, other parallelism, and
    the newest checkpoint damaged: then the one before it is restored."""
    random = Random(seed)
    source = SpoolSource(spool, SCHEMA, bounded=True)
    lag = random.choice([0.05, 0.3, 0.7])
    reading = Reading(source, random.randint(1, 3))
    saved: list[Saved] = []
    late: list[deque[int]] = []
    attempt = checkpoint = written = 0
    for _ in range(700):
        reading.clock.advance_ms(random.choice([1, 20, 60]))
        one = random.randrange(len(reading.subtasks))
        late = late or [deque() for _ in reading.subtasks]
        match random.choices(range(8), [lag * 10, 2, 2, 2, 1, 1, 1, 0.15])[0]:
            case 0:
                reading.poll(one)
            case 1:
                reading.hear()
            case 2:
                reading.deliver(one)
            case 3:
                reading.retry()
            case 4 if written < 25:
                write(spool, written, random.randint(1, 3))
                written += 1
            case 5 if not reading.parts:
                checkpoint += 1
                reading.trigger(checkpoint)
            case 6 if late[one]:
                reading.subtasks[one].complete(late[one].popleft())
            case 7 if saved:
                attempt += 1
                # One is not damaged after the next, without a checkpoint between.
                going_back = len(saved) > 1 and random.random() < 0.3
                saved = saved[-2:-1] if going_back else saved[-1:]
                reading = Reading(source, random.randint(1, 3), attempt, saved[0])
                late = []
        if checkpoint in reading.parts and (done := reading.completed(checkpoint)):
            saved = [*saved[-1:], done]
            for box in late:
                box.append(checkpoint)
    spool.say(SpoolState(ENDED, 2))
    reading.run()
    assert sorted(reading.read) == everything(written)

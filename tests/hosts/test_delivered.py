"""Published values from one coordinator after another: all of them once, or an error."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from strom.checkpoint.manifest import Manifest
from strom.core.errors import CorruptCheckpointError, TransportError
from strom.core.ids import CheckpointId, OperatorId
from strom.engine.exchange.pickling import opened
from strom.engine.hosts.delivered import Delivered
from strom.engine.hosts.published import PublishedValues, Read
from strom.engine.hosts.result_log import ResultLog

SINK = OperatorId("sink")


def read(*keys: str, of: int = 0, began: int | None = 0, **more: object) -> Read:
    fields = {"complete": began, **more}
    return Read([(key, key.upper()) for key in keys], False, of, began, **fields)  # type: ignore[arg-type]


def test_what_the_next_coordinator_publishes_again_is_not_given_out_again() -> None:
    delivered = Delivered("job")
    assert delivered.take(read("a", complete=3)) == ["A"]
    assert (delivered.position, delivered.complete) == (1, 3)
    delivered.restart()
    assert (delivered.position, delivered.complete) == (0, None)
    assert delivered.take(read(of=1, began=None)) == []
    assert delivered.take(read("a", "b", of=1, began=3)) == ["B"]
    assert delivered.position == 2


def test_who_lags_or_comes_late_misses_nothing() -> None:
    delivered = Delivered("job")
    assert delivered.take(read("a", complete=3)) == ["A"]
    assert delivered.take(read("a", "b", "c", of=1, began=9)) == ["B", "C"]
    assert Delivered("job").take(read("b", of=1, began=5)) == ["B"]
    assert Delivered("job").take(read("b", of=1)) == ["B"]


@pytest.mark.parametrize(
    ("complete", "began", "why"),
    [
        (3, 2, "goes on from checkpoint 2, and .* would come again"),
        (0, 0, "goes on from the beginning, and .* would come again"),  # published at once
    ],
)
def test_what_would_come_again_is_said(complete: int, began: int, why: str) -> None:
    delivered = Delivered("job")
    delivered.take(read("a", complete=complete))
    with pytest.raises(TransportError, match=why):
        delivered.take(read("b", of=1, began=began, ways_back=((1, began),)))


def test_tasks_that_run_on_say_nothing_anew() -> None:
    """Of a job without checkpoints they know all that they have published."""
    delivered = Delivered("job")
    delivered.take(read("a", complete=0))
    assert delivered.take(read("a", "b", of=1, began=0)) == ["B"]


@pytest.mark.parametrize(("complete", "known"), [(3, "checkpoint 3"), (0, "none")])
def test_what_cannot_be_read_is_said_to_who_may_need_it(complete: int, known: str) -> None:
    lost = read("b", of=1, began=4, lost="results-1-0-4 is torn")
    behind, level = Delivered("job"), Delivered("job")
    level.take(read("a", complete=4))
    assert level.take(lost) == ["B"]
    behind.take(read("a", complete=complete))
    why = rf"not all there \(results-1-0-4 is torn\), and .* only up to {known}: some may be"
    with pytest.raises(TransportError, match=why):
        behind.take(lost)


class Folder:
    """A job's record."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def put_results(self, name: str, data: bytes) -> None:
        self.files[name] = data

    def all_results(self) -> Mapping[str, bytes | CorruptCheckpointError]:
        return dict(self.files)


class Job:
    """Two subtasks that prepare values with each checkpoint, and publish them once it is complete;
    what is not yet published is in the next one. Its coordinators die at any moment; `damage`: as
    often the newest checkpoint cannot be read then, and the one before has to do."""

    def __init__(self, rng: random.Random, damage: float) -> None:
        self.rng, self.damage = rng, damage
        self.numbered, self.run = 0, 0
        self.complete: list[tuple[int, int]] = []
        """Checkpoints, and in which run each was."""
        self.stored: dict[int, list[tuple[str, int]]] = {0: []}
        """What each complete checkpoint holds of values that were prepared, not published."""
        self.made = 0
        self.at: dict[int, int] = {0: 0}
        """How many values there were up to each checkpoint."""
        self.folder = Folder()
        self.begin(damaged=False)

    def begin(self, damaged: bool) -> None:
        """From the newest checkpoint, which is known only after a while."""
        if damaged:
            self.complete.pop()
        self.newest, epoch = self.complete[-1] if self.complete else (0, 0)
        self.published = PublishedValues(self.run)
        self.log = ResultLog(self.folder, self.run)
        n = CheckpointId(self.newest)
        own = Manifest("job", "job", n, 0, (), (), epoch=epoch) if n else None
        self.log.find(self.run + 1, own, damaged)
        self.keys: set[str] = set()
        self.made = self.at[self.newest]
        self.due = list(self.stored[self.newest])
        self.settled = False

    def step(self) -> None:
        if not self.settled:
            before = self.log.begin(self.newest)
            self.published.begin(self.newest, self.log.ways_back, self.log.lost)
            for operator, key, value in before:
                self.published.add(operator, key, opened(value, "value"))
            self.settled = True
        elif self.due and self.rng.random() < 0.6:
            key, value = self.due.pop(0)
            if key not in self.keys:
                self.keys.add(key)
                if self.log.hear(SINK, key, value):
                    self.published.add(SINK, key, value)
        else:
            self.checkpoint()

    def checkpoint(self) -> None:
        self.numbered += 1  # one that a coordinator took with it leaves its number unused
        held = list(self.due)
        for subtask in range(2):
            if self.rng.random() < 0.7:
                self.made += 1
                held.append((f"{subtask}-{self.numbered}", self.made))
        self.log.write(self.numbered)
        if self.rng.random() < 0.02:
            self.die()  # written down, and not stored
            return
        self.newest, self.stored[self.numbered] = self.numbered, held
        self.complete.append((self.numbered, self.run + 1))
        self.at[self.numbered] = self.made
        if self.rng.random() < 0.02:
            self.die()  # stored, and nobody heard of it
        else:
            self.due = list(held)
            self.published.complete(self.numbered)

    def die(self) -> None:
        self.run += 1
        damaged = len(self.complete) > 1 and self.rng.random() < self.damage
        self.begin(damaged)


class Reader:
    """Of the job's coordinators, as a client is."""

    def __init__(self, job: Job) -> None:
        self.job, self.run = job, 0
        self.delivered = Delivered("job")
        self.found: list[int] = []

    def look(self) -> None:
        if self.run != self.job.run:
            self.run = self.job.run
            self.delivered.restart()
        self.found += self.delivered.take(self.job.published.since(SINK, self.delivered.position))


def lived(seed: int, looks: float, damage: float = 0.0) -> bool:
    """Whether the reader, which looks so often, came to the end; what it found is checked."""
    rng = random.Random(seed)
    job = Job(rng, damage)
    reader = Reader(job)
    why = ""
    try:
        for _ in range(60):
            if rng.random() < 0.05:
                job.die()
            else:
                job.step()
            if rng.random() < looks:
                reader.look()
        while job.due or not job.settled:
            job.step()
        reader.look()
    except TransportError as error:
        why = str(error)
    assert not why or "would come again" in why
    assert sorted(reader.found) == list(range(1, len(reader.found) + 1)), "lost, or twice"
    assert why or len(reader.found) == job.made
    return not why


@pytest.mark.parametrize("looks", [0.0, 0.03, 1.0])
def test_all_of_them_once(looks: float) -> None:
    assert all(lived(seed, looks) for seed in range(100))


def test_who_comes_late_hears_nothing_of_a_way_back() -> None:
    assert all(lived(seed, looks=0.0, damage=0.5) for seed in range(100))


@pytest.mark.parametrize("looks", [0.1, 1.0])
def test_who_has_read_on_is_told_of_a_way_back(looks: float) -> None:
    assert {lived(seed, looks, damage=0.5) for seed in range(100)} == {True, False}

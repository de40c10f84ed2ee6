"""Published values from one coordinator after another: all of them once, or an error."""

from __future__ import annotations

import random

import pytest
from strom.core.errors import TransportError
from strom.core.ids import OperatorId
from strom.engine.hosts.delivered import Delivered
from strom.engine.hosts.published import PublishedValues, Read

SINK = OperatorId("sink")


def read(*keys: str, of: int = 0, began: int | None = 0, complete: int | None = 0) -> Read:
    return Read([(key, key.upper()) for key in keys], False, of, began, complete)


def test_what_the_next_coordinator_publishes_again_is_not_given_out_again() -> None:
    delivered = Delivered("job")
    assert delivered.take(read("a", complete=3)) == ["A"]
    assert (delivered.position, delivered.complete) == (1, 3)
    delivered.restart()
    assert (delivered.position, delivered.complete) == (0, None)
    assert delivered.take(read(of=1, began=None, complete=None)) == []
    assert delivered.take(read("a", "b", of=1, began=3, complete=3)) == ["B"]
    assert delivered.position == 2


@pytest.mark.parametrize(
    ("complete", "began", "why"),
    [
        (3, 4, "goes on from checkpoint 4, and .* only up to checkpoint 3: some may be missing"),
        (0, 1, "goes on from checkpoint 1, and .* only up to none: some may be missing"),
        (3, 2, "goes on from checkpoint 2, and .* would come again"),
        (0, 0, "goes on from the beginning, and .* would come again"),  # published at once
    ],
)
def test_where_nobody_knows_it_is_said(complete: int, began: int, why: str) -> None:
    delivered = Delivered("job")
    delivered.take(read("a", complete=complete))
    with pytest.raises(TransportError, match=why):
        delivered.take(read("b", of=1, began=began, complete=began))


def test_who_comes_after_the_first_run_is_told_that_it_comes_late() -> None:
    with pytest.raises(TransportError, match="some may be missing"):
        Delivered("job").take(read("b", of=1, began=5, complete=5))
    assert Delivered("job").take(read("b", of=1)) == ["B"]  # nothing was complete before


def test_a_coordinator_that_came_back_publishes_what_the_tasks_know() -> None:
    """They ran on: what was published behind checkpoint 2 is there again, and no more is needed."""
    delivered = Delivered("job")
    assert delivered.take(read("a", "b", complete=3)) == ["A", "B"]
    values = PublishedValues(1)
    values.begin(4, told=2)
    for key in ("b", "c"):
        values.add(SINK, key, key.upper())
    assert delivered.of == 0
    found = values.since(SINK, delivered.position, delivered.of)
    assert delivered.take(found) == ["C"]
    assert (delivered.position, delivered.complete, delivered.of) == (2, 4, 1)
    late = Delivered("job")
    late.take(read("a", complete=1))
    with pytest.raises(TransportError, match="some may be missing"):
        late.take(found)


class Job:
    """Two subtasks that prepare values with each checkpoint, and publish them once it is complete;
    what is not yet published is in the next one. Its coordinators die at any moment."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.newest, self.numbered, self.run = 0, 0, 0
        self.stored: dict[int, list[tuple[str, int]]] = {0: []}
        """What each complete checkpoint holds of values that were prepared, not published."""
        self.made = 0
        self.at: dict[int, int] = {0: 0}
        """How many values there were up to each checkpoint."""
        self.begin()

    def begin(self) -> None:
        """From the newest checkpoint, which is known only after a while."""
        self.published = PublishedValues(self.run)
        self.keys: set[str] = set()
        self.made = self.at[self.newest]
        self.due = list(self.stored[self.newest])
        self.settled = False

    def step(self) -> None:
        if not self.settled:
            self.published.begin(self.newest)
            self.settled = True
        elif self.due and self.rng.random() < 0.6:
            key, value = self.due.pop(0)
            if key not in self.keys:
                self.keys.add(key)
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
        self.newest, self.stored[self.numbered] = self.numbered, held
        self.at[self.numbered] = self.made
        if self.rng.random() < 0.02:
            self.die()  # stored, and nobody heard of it
        else:
            self.due = list(held)
            self.published.complete(self.numbered)

    def die(self) -> None:
        self.run += 1
        self.begin()


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


def lived(seed: int, looks: float) -> bool:
    """Whether the reader, which looks so often, came to the end; what it found is checked."""
    rng = random.Random(seed)
    job = Job(rng)
    reader = Reader(job)
    whole = True
    try:
        for _ in range(60):
            if rng.random() < 0.03:
                job.die()
            else:
                job.step()
            if rng.random() < looks:
                reader.look()
        while job.due or not job.settled:
            job.step()
        reader.look()
    except TransportError:
        whole = False
    assert sorted(reader.found) == list(range(1, len(reader.found) + 1)), "lost, or twice"
    assert not whole or len(reader.found) == job.made
    return whole


@pytest.mark.parametrize("looks", [0.3, 1.0])
def test_all_of_them_once_or_an_error(looks: float) -> None:
    ends = {lived(seed, looks) for seed in range(300)}
    assert ends == {True, False}

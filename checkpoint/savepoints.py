"""Savepoints that were asked for: which is taken next, and what the one who asked is told.

Pure, and a part of the checkpoint coordinator. A request is answered exactly once: with the path
when its savepoint is complete, or, of one that stops the job, when the job has finished; with the
reason when that will not be.

    waiting -> taken -> stored -> answered
       |         |         \\-- of a stop: held until the job has finished -> answered
       |         \\-- failed -> answered
       \\-- the job restarts, ends, or is stopped by another -> answered

Who asked for a stop and heard nothing, since the coordinator died, asks the next one. If the job
ends with the savepoint of then (`Manifest.stopped_with`), that is the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Stop = Literal["halt", "drain"]
"""halt: the job stands still from the savepoint on, and ends with it. drain: its sources end first,
as at the end of all time, and everything that follows from that is in the savepoint."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """One that was asked for. `request` is of the host's choice and names it in the answer;
    `location`: the URL or path of the folder that it becomes. `stop`: None lets the job go on."""

    request: int
    location: str
    stop: Stop | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the one who asked is told: `path`, or why there is none (`error`)."""

    request: int
    path: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DiscardSavepoint:
    """Delete all files of a savepoint that will never be complete; there may be none."""

    location: str


class SavepointRequests:
    """Those of one job that are not answered, but for the one being taken."""

    def __init__(self) -> None:
        self._waiting: list[Savepoint] = []
        """In the order in which they came."""
        self.stopping: Savepoint | None = None
        """A stop whose savepoint is stored: the job is to end, and only then it is answered."""
        self.stopped_with: str | None = None
        """Where the savepoint is with which the job was stopped, by a coordinator before this one
        or by this one; None: it is not over by that, and not about to be."""
        self._repeated: list[Savepoint] = []
        """Stops that were asked for again and are not answered."""
        self.draining = False
        """Whether the sources have been told to end, for the first of those that wait."""
        self._leftovers: list[str] = []
        """Folders that are deleted again later: a task may have written more into them."""

    def add(self, savepoint: Savepoint) -> None:
        self._waiting.append(savepoint)

    @property
    def first(self) -> Savepoint | None:
        """The one whose turn it is."""
        return self._waiting[0] if self._waiting else None

    @property
    def turn_of_a_sole_one(self) -> bool:
        """Whether nothing else is to be taken before the one whose turn it is."""
        return self.draining or (self.first is not None and self.first.stop is not None)

    @property
    def stops(self) -> bool:
        """Whether the job is to end with one that waits, or with the one that is stored."""
        waits = any(one.stop is not None for one in self._waiting)
        return self.draining or self.stopping is not None or waits

    def drain(self) -> bool:
        """Whether it is the turn of one that drains the job, which begins now."""
        self.draining = bool(self._waiting) and self._waiting[0].stop == "drain"
        return self.draining

    def next(self) -> Savepoint | None:
        """Take the one whose turn it is out of the queue; of one that drains the job only when all
        tasks have come to the end of their input."""
        return self._waiting.pop(0) if self._waiting else None

    def fail(self, why: str) -> list[Answer]:
        """None of those that wait will be taken."""
        answers = [Answer(s.request, error=f"no savepoint was taken: {why}") for s in self._waiting]
        self._waiting.clear()
        return answers

    def dropped(self, savepoint: Savepoint, why: str) -> list[Answer | DiscardSavepoint]:
        """The one that was being taken failed."""
        self._leftovers.append(savepoint.location)
        error = f"the savepoint {savepoint.location} failed: {why}"
        return [DiscardSavepoint(savepoint.location), Answer(savepoint.request, error=error)]

    def repeats(self, savepoint: Savepoint) -> bool:
        """Whether this is a stop that was done already."""
        done = self.stopped_with
        return done is not None and is_repeated(savepoint.stop, savepoint.location, done)

    def repeated(self, savepoint: Savepoint) -> bool:
        """The same; if so, it will be answered with what becomes of the job."""
        repeats = self.repeats(savepoint)
        if repeats:
            self._repeated.append(savepoint)
        return repeats

    def not_stopped(self, why: str) -> list[Answer]:
        """The job goes on, or ended otherwise, after the savepoint that was to stop it."""
        again, self._repeated = self._repeated, []
        answers = [Answer(one.request, error=f"no savepoint was taken: {why}") for one in again]
        savepoint, self.stopping = self.stopping, None
        if savepoint is not None:
            answers.append(Answer(savepoint.request, error=_left(savepoint.location, why)))
        return answers

    def stopped(self) -> list[Answer]:
        """The job has finished."""
        again, self._repeated = self._repeated, []
        answers = [Answer(one.request, path=self.stopped_with) for one in again]
        savepoint, self.stopping = self.stopping, None
        if savepoint is not None:
            self.stopped_with = savepoint.location
            answers.append(Answer(savepoint.request, path=savepoint.location))
        return answers

    def late(self, savepoint: Savepoint, why: str) -> Answer:
        """It was stored, but the attempt that took it is over."""
        if savepoint.stop is None:
            return Answer(savepoint.request, path=savepoint.location)
        return Answer(savepoint.request, error=_left(savepoint.location, why))

    def sweep(self) -> list[DiscardSavepoint]:
        """Delete once more what was left."""
        left, self._leftovers = self._leftovers, []
        return [DiscardSavepoint(location) for location in left]


def is_repeated(stop: Stop | None, location: str, done: str) -> bool:
    """Whether a stop with a savepoint at `location` wants what was `done`: another number in the
    same directory is the same wish."""
    return stop is not None and _directory(location) == _directory(done)


def _directory(location: str) -> str:
    return location.rpartition("/")[0]


def _left(location: str, why: str) -> str:
    return f"the savepoint {location} is complete, but the job was not stopped with it: {why}"

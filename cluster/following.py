"""How a client of a job goes on when there is no coordinator to ask: it waits for the next one, or
hears from the session how the job ended. Pure: what the dispatcher answers in, what to do out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .records import JobRecord, Phase

AWAY_MS: Final = 60_000
"""How long a dispatcher that is gone is waited for."""

NOT_STARTED: Final = -1
"""Before the first run."""


@dataclass(frozen=True)
class Attach:
    """The coordinator of this run is to be asked from now on."""

    run: int


@dataclass(frozen=True)
class Over:
    """The registry knows how the job ended."""

    record: JobRecord


@dataclass(frozen=True)
class Wait:
    """Ask again. `say`: what to tell the user first."""

    say: str | None = None


@dataclass(frozen=True)
class GiveUp:
    """Nobody will know."""

    why: str


Step = Attach | Over | Wait | GiveUp


class Following:
    """One wait, from the loss of a coordinator (or before there was one) to `Attach`, `Over` or
    `GiveUp`. A run that was left is never gone back to."""

    def __init__(self, job: str, left: int = NOT_STARTED) -> None:
        """`job`: what the user is told of it as. `left`: the run whose coordinator is gone."""
        self._job = job
        self.left = left
        """Only grows."""
        self._said: set[str] = set()
        self._away_since: int | None = None
        """Since when no dispatcher has answered."""

    @property
    def said(self) -> bool:
        """Whether the user has been told of this wait."""
        return bool(self._said)

    def told(self, record: JobRecord, waits_for: str) -> Step:
        """By the dispatcher."""
        self._away_since = None
        if record.phase is Phase.ENDED:
            return Over(record)
        if record.phase is Phase.RUNNING and record.run > self.left:
            return Attach(record.run)
        if self.left == NOT_STARTED:
            return self._wait(f"waits: {waits_for}" if waits_for else "")
        if record.phase is Phase.RUNNING:  # it has not heard of the loss
            return Wait()
        return self._wait(
            "waits for its next run, as its coordinator is gone, and the session starts it again "
            f"from its newest checkpoint{f': {waits_for}' if waits_for else ''}"
        )

    def missing(self, run: int) -> Step:
        """There is no coordinator of the run that was to be asked."""
        self.left = max(self.left, run)
        return Wait()

    def away(self, now_ms: int) -> Step:
        """The cluster has no dispatcher, or it does not answer."""
        if self._away_since is None:
            self._away_since = now_ms
        if now_ms - self._away_since >= AWAY_MS:
            return GiveUp(
                "the dispatcher, which would start it again, is gone, too: `strom cluster start` "
                "on the same registry takes up its jobs"
            )
        return self._wait("waits for the dispatcher of its session, which is gone")

    def _wait(self, text: str) -> Wait:
        if not text or text in self._said:
            return Wait()
        self._said.add(text)
        return Wait(f"strom: {self._job} {text}")

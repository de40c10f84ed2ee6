"""Whose turn it is: a savepoint, a periodic checkpoint, one that was asked for, or the last one.

    stopped ─ run ─▶ running ─ end ─▶ terminal ─ close ─▶ closed
       ▲                │                │                  │
       └───── stop ─────┴────────────────┴──────────────────┘

Pure, and a part of the checkpoint coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from .coordinator_types import Drain
from .pending import PendingCheckpoints
from .savepoints import Savepoint, SavepointRequests
from .schedule import Schedule

Mode = Literal["stopped", "running", "terminal", "closed"]
"""stopped: no job is running. running: periodic and manual triggers. terminal: nothing but the
terminal checkpoint is wanted. closed: the terminal checkpoint is complete."""


@dataclass(frozen=True)
class Turn:
    """What is to begin: the `terminal` checkpoint, one for a `savepoint`, or one of the job's
    own."""

    terminal: bool = False
    savepoint: Savepoint | None = None


class Turns:
    """Of one job, over all its attempts. Invariant: only while running is one wanted by the time,
    or by hand."""

    def __init__(
        self, schedule: Schedule, savepoints: SavepointRequests, pending: PendingCheckpoints
    ) -> None:
        self._schedule = schedule
        self._savepoints = savepoints
        self._pending = pending
        self._manual_wanted = False
        self.mode: Mode = "stopped"
        """Changed here only."""

    def run(self, now_ms: int) -> None:
        """All tasks run."""
        self.mode = "running"
        self._schedule.start(now_ms)

    def stop(self) -> None:
        """No task will acknowledge any more."""
        self._cease("stopped")
        self._savepoints.draining = False

    def end(self, now_ms: int) -> None:
        """All data is processed, or the job is stopped: only the terminal one is wanted, without
        pause. It is also the answer to a manual trigger that still waits."""
        self._cease("terminal")
        self._schedule.without_pause(now_ms)

    def close(self) -> None:
        """The terminal one is complete."""
        self.mode = "closed"

    def want(self) -> None:
        """Somebody wants one now."""
        self._manual_wanted = True

    def due(self, now_ms: int, after_success: bool) -> Iterator[Turn | Drain]:
        """What begins now, one after the other: each has begun when the next is asked for.
        `after_success`: something has just completed."""
        savepoints = self._savepoints
        if self.mode == "running" and savepoints.draining:
            return
        if self.mode in ("running", "terminal") and savepoints.stopping is None:
            while (saving := savepoints.first) is not None:
                if not self._pending.has_room(sole=saving.stop is not None, saving=True):
                    break
                if self.mode == "running" and savepoints.drain():
                    yield Drain()
                    return
                yield Turn(savepoint=savepoints.next())
        if self.mode == "terminal":
            now = after_success or not self._schedule.paused(now_ms)
            if now and self._pending.has_room(sole=True):
                yield Turn(terminal=True)
        elif self.mode == "running":
            wanted = self._manual_wanted or self._schedule.due(now_ms)
            if wanted and self._may_begin:
                yield Turn()

    def begun(self, now_ms: int) -> None:
        """One of the job's own has."""
        self._manual_wanted = False
        self._schedule.begun(now_ms)

    def next_ms(self) -> int | None:
        """When the time may make another one due; None: never."""
        if self.mode == "terminal" and not self._pending:
            return self._schedule.pause_ends_ms
        if self.mode == "running" and self._may_begin:
            return self._schedule.next_ms()
        return None

    def validate(self) -> None:
        """Assert the invariant."""
        if self.mode != "running":
            assert not self._schedule.periodic
            assert not self._manual_wanted

    @property
    def _may_begin(self) -> bool:
        """Whether there is room for one of the job's own, and nothing that goes before it."""
        return self._pending.has_room() and not self._savepoints.turn_of_a_sole_one

    def _cease(self, mode: Mode) -> None:
        self.mode = mode
        self._schedule.stop()
        self._manual_wanted = False

"""Finding out that a peer on another machine is gone when no packet says so.

A machine that lost its power, a cut cable, a firewall that has forgotten a connection: TCP notices
nothing while nobody sends, and tries for a quarter of an hour if somebody does. So both ends of a
connection between machines say HEARTBEAT at every interval, and who has heard nothing at all for
the timeout takes the other for dead. Anything that comes counts, so records cost nothing more.

A task is silent while it computes for long in one call, and not dead: a thread of its process says
the heartbeats then (`StandIn`). Connections within a machine have none of this: its kernel knows of
the end of every process.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Generic, Protocol, TypeVar

DOUBT_S: Final = 1.0
"""A peer that was silent for too long is looked at again after this, before it counts as dead: it
may be this machine that stood still, and what the peer said meanwhile still be on its way."""


LEAST: Final = 3
"""Heartbeats within a timeout, whatever the interval."""


class Pulse:
    """What one end has heard of the other, looked at now and then."""

    __slots__ = ("doubted", "heard", "heard_at")

    def __init__(self, now: float) -> None:
        self.heard = 0
        """Bytes received, at the last look."""
        self.heard_at = now
        """The last look at which there were more than at the one before."""
        self.doubted = False
        """Whether it had been silent for too long at the last look."""

    def look(self, received: int, now: float, timeout_s: float) -> float | None:
        """`received`: bytes so far. How long it has been silent, once that says it is dead."""
        if received != self.heard:
            self.heard, self.heard_at, self.doubted = received, now, False
            return None
        silence = now - self.heard_at
        if silence < timeout_s:
            return None
        if not self.doubted:
            self.doubted = True
            return None
        return silence


class Line(Protocol):
    """What a heartbeat is said on."""

    received: int

    def beat(self) -> None: ...


Peer = TypeVar("Peer")


class Heartbeats(Generic[Peer]):
    """Of all connections of an endpoint to other machines. Knows no clock and no thread."""

    def __init__(self, interval: timedelta, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()
        self.interval_s = min(interval.total_seconds(), self._timeout_s / LEAST)
        self._lines: dict[Peer, tuple[Line, Pulse]] = {}
        self.due = math.inf
        """When `look` is due; never while there is no connection."""
        self._beat_due = 0.0
        """When heartbeats are to be said again."""

    def add(self, peer: Peer, line: Line, now: float) -> None:
        if not self._lines:
            self._beat_due = self.due = now + self.interval_s
        self._lines[peer] = (line, Pulse(now))

    def remove(self, peer: Peer) -> None:
        """Idempotent."""
        if self._lines.pop(peer, None) is not None and not self._lines:
            self.due = math.inf

    def beat(self, now: float) -> None:
        """Say them if they are due. By the task's thread, or by its stand-in."""
        if now < self._beat_due:
            return
        self._beat_due = now + self.interval_s
        for line, _ in self._lines.values():
            line.beat()

    def look(self, now: float) -> list[tuple[Peer, float]]:
        """Those that are dead, and for how many seconds each was silent. Only by the task's thread,
        right after it has read what had come."""
        self.beat(now)
        dead: list[tuple[Peer, float]] = []
        doubts = False
        for peer, (line, pulse) in self._lines.items():
            silence = pulse.look(line.received, now, self._timeout_s)
            doubts |= pulse.doubted
            if silence is not None:
                dead.append((peer, silence))
        wait = min(DOUBT_S, self.interval_s) if doubts else self.interval_s
        self.due = min(now + wait, max(now, self._beat_due))
        return dead

    def silent_for(self, seconds: float) -> str:
        """Why a peer counts as dead."""
        return (
            f"nothing came from its machine for {seconds:.0f} s (heartbeat.timeout is "
            f"{self._timeout_s:g} s): it is gone, or the network between is cut"
        )


class StandIn:
    """A thread that says a task's heartbeats while that does not come to it itself. It holds the
    task's lock then; while somebody else has that it does nothing."""

    def __init__(self, interval_s: float, lock: threading.Lock, beat: Callable[[], None]) -> None:
        self._interval_s = interval_s
        self._lock = lock
        self._beat = beat
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="strom-heartbeats", daemon=True)
        self._thread.start()

    def _live(self) -> None:
        while not self._over.wait(self._interval_s):
            if self._lock.acquire(blocking=False):
                try:
                    self._beat()
                finally:
                    self._lock.release()

    def close(self) -> None:
        """Not while the lock is held by the one who calls."""
        self._over.set()
        self._thread.join()

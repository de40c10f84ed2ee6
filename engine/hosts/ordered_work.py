"""Work of one job's storage: piece by piece in the order given, though a piece may never come back.

A call into a storage that hangs cannot be stopped. What runs longer than its limit, or is not
wanted any more, is *left behind*: its thread is given up, and the next piece begins on another.
When it comes back after all, its answer is heard like any other. While `MOST_LEFT` have not come
back nothing more begins: the storage hangs as a whole, and threads do not pile up.

The driver's thread calls all of this; a worker runs the work, and puts the answer into `answers`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ...core.clock import Clock
from ..task.background import Background

log = logging.getLogger("strom")

MOST_LEFT: Final = 4

Done = Callable[[Any, BaseException | None], None]


@dataclass(frozen=True, eq=False)
class Piece:
    """`what`: for people. `key`: what `leave` knows it by. `limit_ms`: how long it may run; None:
    as long as it takes, which is only said, after `warn_ms`."""

    what: str
    work: Callable[[], Any]
    key: object = None
    limit_ms: int | None = None
    warn_ms: int | None = None


@dataclass(frozen=True, eq=False)
class _Running:
    piece: Piece
    worker: Background
    since_ms: int


class OrderedWork:
    """Invariant: at most `MOST_LEFT` pieces are left behind, and one more runs."""

    def __init__(self, who: str, make_background: Callable[[], Background], clock: Clock) -> None:
        """`who`: what log lines begin with."""
        self._who = who
        self._make = make_background
        self._clock = clock
        self._worker = make_background()
        self._waiting: deque[Piece] = deque()
        self._running: _Running | None = None
        self._said = False
        """Whether it was said that it takes long."""
        self._left: list[_Running] = []
        self.answers: deque[tuple[Piece, Any, BaseException | None]] = deque()
        """Filled by workers. Whoever takes one calls `over` with its piece."""

    @property
    def threads(self) -> bool:
        return self._worker.threads

    @property
    def left(self) -> tuple[Piece, ...]:
        """What was left behind, and has not come back."""
        return tuple(one.piece for one in self._left)

    def submit(self, piece: Piece) -> None:
        """Begin it behind what was submitted before."""
        self._waiting.append(piece)
        self._next()

    def over(self, piece: Piece) -> None:
        """Its answer is taken."""
        if self._running is not None and self._running.piece is piece:
            self._running = None
        for one in [one for one in self._left if one.piece is piece]:
            self._left.remove(one)
            one.worker.close()
            log.info("%s: what had hung came back: %s", self._who, piece.what)
        self._next()

    def leave(self, key: object) -> bool:
        """Do not wait for the piece of this key. Whether it has begun, so that its answer may still
        come; else it never will."""
        for piece in [piece for piece in self._waiting if piece.key == key]:
            self._waiting.remove(piece)
            return False
        if self._running is not None and self._running.piece.key == key:
            self._leave_running(hangs=False)
        return True

    def due_ms(self) -> int | None:
        """When `on_time` has something to do."""
        running = self._running
        if running is None:
            return None
        limit = running.piece.limit_ms
        if limit is None:
            limit = None if self._said else running.piece.warn_ms
        return None if limit is None else running.since_ms + limit

    def on_time(self) -> bool:
        """Leave behind what runs too long; whether anything was due."""
        due = self.due_ms()
        if due is None or self._clock.now_ms() < due:
            return False
        assert self._running is not None
        if self._running.piece.limit_ms is not None:
            self._leave_running(hangs=True)
        else:
            self._said = True
            self._warn(f"its storage hangs: {self._ran()} goes on, and the job waits for it")
        return True

    def close(self, wait_s: float) -> None:
        """Drop what has not begun."""
        self._waiting.clear()
        self._worker.close(wait_s)
        for one in self._left:
            one.worker.close()
        if self._left:
            what = "; ".join(one.piece.what for one in self._left)
            log.warning("%s: its storage never answered: %s", self._who, what)

    def validate(self) -> None:
        """Assert the invariant."""
        assert len(self._left) <= MOST_LEFT

    def _leave_running(self, hangs: bool) -> None:
        """`hangs`: it has run for longer than it may; else it is not wanted any more, and may just
        have begun, since its time went elsewhere."""
        full = len(self._left) + 1 >= MOST_LEFT
        more = f"; it is the {MOST_LEFT}th, and nothing more begins until one has" if full else ""
        ran = f"its storage hangs: {self._ran()} is left behind"
        if not hangs:
            ran = f"nobody waits any more for its storage: {self._ran()}, left behind"
        self._warn(f"{ran}; it is heard of if it comes back{more}")
        assert self._running is not None
        self._left.append(self._running)
        self._running, self._worker = None, self._make()
        self._next()

    def _ran(self) -> str:
        assert self._running is not None
        ran_s = (self._clock.now_ms() - self._running.since_ms) / 1000.0
        return f"{self._running.piece.what} for {ran_s:.1f} s"

    def _warn(self, what: str) -> None:
        log.warning("%s: %s", self._who, what)

    def _next(self) -> None:
        if self._running is not None or not self._waiting or len(self._left) >= MOST_LEFT:
            return
        piece = self._waiting.popleft()
        self._running = _Running(piece, self._worker, self._clock.now_ms())
        self._said = False
        self._worker.submit(piece.work, lambda r, e: self.answers.append((piece, r, e)))

"""One thread with one connection, for what a sink writer has the database do.

Work is done in the order in which it was submitted, each piece in a transaction of its own, and
tried again, in a new connection, where it failed by something that may pass. After a failure that
does not pass nothing is done any more: later work must not overtake what is missing.

Nobody waits here without limit. The task's thread waits in steps (`has_room`, `steps`), and hears
its mail in between; a database that does not answer for as long as the connection's
`statement_timeout` says is an error.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import ConnectorError
from .connection import PostgresConnection, patiently
from .server_thread import ServerThread, Stopped, cut_after

if TYPE_CHECKING:
    from .connection import Session

    Work = Callable[[Session, bool], Any]

AHEAD: Final = 2
"""Pieces of work that may wait, or be done, while more is written."""

STEP_S: Final = 0.02
"""How long the task's thread waits in a step."""

FAREWELL_S: Final = 1.0
"""How long the server may take for the last piece."""


@dataclass(frozen=True)
class Piece:
    """Work that was submitted. `doing` names it in errors."""

    doing: str
    work: Work
    future: Future[Any] = field(default_factory=Future)


class DatabaseWorker:
    """Submitted to from one thread. `prepare` is called with each new connection."""

    def __init__(
        self, connection: PostgresConnection, prepare: Callable[[Session], None], name: str
    ) -> None:
        self._connection = connection
        self._prepare = prepare
        self._thread = ServerThread(self._run, name)
        self._started = False
        self._submitted: deque[Piece] = deque()
        """Not known to have gone well, in order. The task's thread's."""
        self._changed = threading.Condition()
        self._queue: deque[Piece] = deque()
        """Not begun. Under the lock, as what follows."""
        self._begun: tuple[Piece, float] | None = None
        """What the server is doing, and since when (monotonic)."""
        self._farewell: Callable[[Session], Any] | None = None
        self._failure: BaseException | None = None
        self._session: Session | None = None
        """The thread's; None before the first work, and after a failure."""
        self._held = ExitStack()
        """Ends the session."""

    # --- the task's side ---------------------------------------------------------------------

    def submit(self, doing: str, work: Work) -> Piece:
        """Have `work(session, again)` done. `again`: it was tried before, and nobody knows whether
        that went well. Raises what earlier work failed by."""
        self.check()
        piece = Piece(doing, work)
        self._submitted.append(piece)
        with self._changed:
            self._queue.append(piece)
            self._changed.notify()
        if not self._started:
            self._started = True
            self._thread.start()
        return piece

    def check(self) -> None:
        """Raises what earlier work failed by, if it did, or ConnectorError if the database has not
        answered for too long."""
        while self._submitted and self._submitted[0].future.done():
            self._submitted.popleft().future.result()
        self._check_time()

    def has_room(self, seconds: float, ahead: int = AHEAD) -> bool:
        """Whether fewer pieces than `ahead` are not done, waiting so long. Raises as `check`."""
        self.check()
        if len(self._submitted) >= ahead and seconds:
            wait_for([self._submitted[0].future], seconds)
            self.check()
        return len(self._submitted) < ahead

    def steps(self, piece: Piece) -> Iterator[None]:
        """Until it is done. Raises what it failed by, and as `check`."""
        while not self._is_done(piece, STEP_S):
            yield

    def finish(self, piece: Piece) -> None:
        """Wait until it is done; from any thread. Raises as `steps`."""
        while not self._is_done(piece, STEP_S):
            pass

    def close(self, farewell: Callable[[Session], Any] | None = None) -> None:
        """Work that has not begun is dropped, and what is being done is stopped. `farewell` is
        done behind it, in a session of its own, if the database still answers."""
        with self._changed:
            self._farewell = farewell
            self._queue.clear()
            self._thread.stopping.set()
            self._changed.notify()
        if self._started:
            self._thread.end()

    def _is_done(self, piece: Piece, seconds: float) -> bool:
        wait_for([piece.future], seconds)
        if piece.future.done():
            piece.future.result()
            return True
        if self._thread.stopping.is_set():
            raise _closed(piece.doing)
        self._check_time()
        return False

    def _check_time(self) -> None:
        limit = self._connection.answer_s
        with self._changed:
            begun = self._begun
            if begun is None or limit is None or time.monotonic() - begun[1] <= limit:
                return
            piece, since = begun
            if self._failure is None:
                self._failure = self._connection.silence(piece.doing, time.monotonic() - since)
            failure = self._failure
        raise failure

    # --- the thread's side -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (piece := self._next()) is not None:
                try:
                    piece.future.set_result(self._do(piece))
                except BaseException as error:
                    piece.future.set_exception(error)
        finally:
            self._drop()
        farewell = self._farewell
        if farewell is not None:
            with suppress(Exception):
                self._part(farewell)

    def _next(self) -> Piece | None:
        """What is to be done; None: nothing any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._thread.stopping.is_set())
            return None if self._thread.stopping.is_set() else self._queue.popleft()

    def _do(self, piece: Piece) -> Any:
        if self._failure is not None:
            raise self._failure
        tries = 0

        def once() -> Any:
            nonlocal tries
            tries += 1
            try:
                session = self._session or self._connect(piece)
                self._begin(piece)
                return piece.work(session, tries > 1)
            except BaseException:
                self._drop()
                raise
            finally:
                self._begin(None)

        try:
            return patiently(self._connection, piece.doing, once, self._thread.pause)
        except BaseException as error:
            failure: BaseException = _closed(piece.doing) if isinstance(error, Stopped) else error
            with self._changed:
                self._failure = self._failure or failure
            raise failure from None

    def _begin(self, piece: Piece | None) -> None:
        """The server is about to be asked for it; None: for nothing."""
        with self._changed:
            self._begun = None if piece is None else (piece, time.monotonic())

    def _connect(self, piece: Piece) -> Session:
        with ExitStack() as held:
            session = held.enter_context(self._thread.connected(self._connection))
            self._begin(piece)
            self._prepare(session)
            self._held, self._session = held.pop_all(), session
        return session

    def _drop(self) -> None:
        held, self._held, self._session = self._held, ExitStack(), None
        held.close()

    def _part(self, farewell: Callable[[Session], Any]) -> None:
        with self._connection.connect() as session, cut_after(session, FAREWELL_S):
            farewell(session)


def _closed(doing: str) -> ConnectorError:
    return ConnectorError(f"cannot {doing}: the sink was closed before its database had done it")

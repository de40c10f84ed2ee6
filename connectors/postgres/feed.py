"""A thread that reads a change capture ahead of its task.

    thread   describe, make what is missing -> read the table -> stream, with back-off between tries
             offer(batch, position behind it)
    task     take() -> batch, position            at most AHEAD of them wait
             confirm(lsn)                         told to the server by the thread

The thread keeps the connection alive while the task takes its time, and goes on by itself when the
connection was lost: from the position behind what it offered last. What does not pass by itself it
leaves to the task, which fails by it, behind the batches that were read before.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ...core.batch import ColumnBatch
from ...core.errors import ConnectorError
from ...core.row_kind import RowKind, with_kinds
from .capture_settings import CaptureSettings, check_same
from .captured import Captured
from .changes import Changes
from .connection import Patience, is_passing
from .pgoutput import Relation, Truncate, decode
from .positions import CdcSplit, Key
from .replication import Alive, ReplicationStream
from .server_thread import ServerThread, Stopped
from .slots import (
    Capture,
    await_running,
    check_publication,
    check_server,
    check_slot,
    mark_end,
    prepare_publication,
    prepare_slot,
    system_of,
)
from .snapshot import PIECE_BYTES, TableReading, places_of
from .tables import TableColumn, TableInfo, describe

if TYPE_CHECKING:
    from .connection import Session

AHEAD: Final = 4
"""Batches that wait for the task."""

LINGER_S: Final = 0.005
"""How long to wait for more before a batch that is not full is given away."""

IDLE_S: Final = 1.0

LOOK_EVERY_S: Final = 60.0
"""How often the catalogs are asked whether the table's changes still come through the slot at all:
nothing comes for a table that was taken out of the publication."""


@dataclass(frozen=True)
class Delivery:
    """A batch, None if only the position went on, and the position behind it. `finished`: nothing
    more comes of a bounded capture."""

    batch: ColumnBatch | None
    after: CdcSplit
    finished: bool = False


class Bell:
    """Ends a wait for a file, from another thread. Rung often, it rings once."""

    def __init__(self) -> None:
        self._ends = os.pipe()
        for end in self._ends:
            os.set_blocking(end, False)
        self._lock = threading.Lock()
        self._open = True

    def fileno(self) -> int:
        """Can be read when it rang."""
        return self._ends[0]

    def ring(self) -> None:
        with self._lock, suppress(BlockingIOError):  # it rings already
            if self._open:
                os.write(self._ends[1], b".")

    def silence(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._ends[0], 4096)

    def close(self) -> None:
        with self._lock:
            self._open = False
            for end in self._ends:
                os.close(end)


class Feed:
    """See the module. `wake` is called, from the thread, when there is something to take."""

    def __init__(
        self,
        settings: CaptureSettings,
        split: CdcSplit,
        batch_size: int,
        wake: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._at = split
        """Behind what was offered last. The thread's."""
        self._batch_size = batch_size
        self._wake = wake
        self.behind = 0
        """Bytes of log between the position and where the server was at last."""
        self._patience = Patience(settings.connection.patience_s)
        self._lock = threading.Condition()
        self._ready: deque[Delivery] = deque()
        """At most AHEAD, and one more that is only a position. Under the lock, as what follows."""
        self._error: BaseException | None = None
        self._confirmed = 0
        self._bell = Bell()
        """Rung for the thread while it waits for changes; closed by it."""
        self._thread = ServerThread(self._run, f"cdc-{settings.slot}")
        self._thread.start()

    # --- the task's side ---------------------------------------------------------------------

    def take(self) -> Delivery | None:
        """What is next, None if nothing is ready. Raises what the thread ended with, once all that
        was read before has been taken."""
        with self._lock:
            if self._ready:
                delivery = self._ready.popleft()
                self._lock.notify_all()
                return delivery
            if self._error is not None:
                raise self._error
            return None

    def confirm(self, lsn: int) -> None:
        """The slot need not keep what committed before `lsn`."""
        with self._lock:
            self._confirmed = max(self._confirmed, lsn)
        self._bell.ring()

    def close(self) -> None:
        """Ends the thread."""
        self._thread.stopping.set()
        with self._lock:
            self._lock.notify_all()
        self._bell.ring()
        self._thread.end()

    # --- the thread's side -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._until_done()
        except Stopped:
            pass
        except BaseException as error:
            if not self._thread.stopping.is_set():
                with self._lock:
                    self._error = error
                self._wake()
        finally:
            self._bell.close()

    def _until_done(self) -> None:
        import psycopg

        settings = self._settings
        while not self._thread.stopping.is_set():
            try:
                self._connected()
                return
            except (psycopg.Error, OSError) as error:
                first = self._patience.fresh
                pause = self._patience.pause_s() if is_passing(error) else None
                doing = f"read table {settings.table} through slot '{settings.slot}'"
                if first and pause is not None:
                    settings.connection.warn(doing, error)
                if pause is None:
                    raise settings.connection.failure(doing, error) from None
                self._thread.pause(pause)

    def _connected(self) -> None:
        """From the position on, until the capture is done or the connection lost."""
        with self._session() as session:
            info, columns = self._prepared(session)
            if not self._at.loaded:
                self._load(session, info, columns)
        self._stream(info, columns)

    def _session(self) -> AbstractContextManager[Session]:
        return self._thread.connected(self._settings.connection, limited=False)

    def _prepared(self, session: Session) -> tuple[TableInfo, tuple[TableColumn, ...]]:
        """The table, and the columns to read of it; publication and slot are there. Raises
        ConnectorError if the table is not what the capture began with."""
        settings = self._settings
        check_server(session)
        info = describe(session, settings.table)
        system = system_of(session)
        at = self._at
        if at.begun:
            if (at.system, at.table) != (system, info.oid):
                what = "database cluster" if at.system != system else f"table {info.shown}"
                raise ConnectorError(_OTHER.format(what))
            self._check_captured(info)
        columns = settings.chosen(info)
        if settings.info is not None:
            check_same(settings.info, info, settings.chosen(settings.info), columns)
        capture = Capture(info, settings.slot, settings.publication)
        published = prepare_publication(session, capture)
        captured = Captured.of(info, columns)
        if not at.begun:
            lsn = prepare_slot(session, settings.slot, settings.snapshot)
            await_running(session, self._thread.pause)
            stop = mark_end(session) if settings.bounded else None
            self._at = replace(
                at,
                table=info.oid,
                system=system,
                published=published,
                lsn=lsn,
                loaded=not settings.snapshot,
                stop_lsn=stop,
                captured=captured,
            )
            self._offer(Delivery(None, self._at))
            return info, columns
        self._check_published(published, capture)
        check_slot(session, at)
        if at.captured is None:
            self._offer(Delivery(None, replace(at, captured=captured)))
        return info, columns

    def _load(self, session: Session, info: TableInfo, columns: Sequence[TableColumn]) -> None:
        """Read the table, or the rest of it."""
        reading = TableReading(session, info, columns, self._batch_size)
        at = self._at.new_part(reading.seen)
        while not at.loaded:
            piece = reading.piece(at.after)
            count = piece.rows.num_rows
            at = at if piece.last is None else at.read_to(piece.last)
            if piece.ended:
                at = at.all_read()
            batch = None
            if count:
                kinds = np.full(count, RowKind.INSERT, np.int8)
                stamps = np.full(count, reading.time_ms, np.int64)
                batch = ColumnBatch(with_kinds(piece.rows, kinds), stamps)
            self._offer(Delivery(batch, at))
            self._patience.forget()
        reading.end()

    def _stream(self, info: TableInfo, columns: Sequence[TableColumn]) -> None:
        settings = self._settings
        at = self._at
        changes = Changes(
            info,
            columns,
            settings.columns is None,
            settings.changelog,
            at,
            lambda keys: self._places_of(info, keys),
        )
        with (
            closing(ReplicationStream(settings.connection)) as stream,
            self._thread.attached(stream.fileno()),
        ):
            look_at = time.monotonic() + LOOK_EVERY_S
            if not changes.done:
                stream.start(settings.slot, settings.publication, at.lsn)
            while not changes.done:
                self._thread.check()
                stream.confirm(self._confirmed)
                stream.stay_alive()
                if time.monotonic() >= look_at:
                    self._look(info)
                    look_at = time.monotonic() + LOOK_EVERY_S
                if stream.wait(LINGER_S if changes.moved else IDLE_S, self._bell.fileno()):
                    self._receive(stream, changes)
                else:
                    self._bell.silence()
                    if changes.moved:
                        self._offer(Delivery(*changes.take()), stream)
            self._offer(Delivery(*changes.take(), finished=True), stream)

    def _receive(self, stream: ReplicationStream, changes: Changes) -> None:
        for message in stream.received():
            self._patience.forget()
            if isinstance(message, Alive):
                changes.alive(message.end)
                self.behind = max(0, message.end - self._at.lsn)
                continue
            decoded = decode(message.payload)
            if decoded is not None:
                try:
                    changes.feed(decoded, len(message.payload))
                except ConnectorError:
                    # Neither of these is counted as read, so what is behind is told again.
                    if isinstance(decoded, (Relation, Truncate)) and changes.moved:
                        self._offer(Delivery(*changes.take()), stream)
                    raise
            if len(changes) >= self._batch_size or changes.size >= PIECE_BYTES:
                self._offer(Delivery(*changes.take()), stream)
            if changes.done:
                return

    def _look(self, info: TableInfo) -> None:
        """Raises ConnectorError if changes of the table do not come any more."""
        settings = self._settings
        with self._session() as session:
            found = describe(session, settings.table)
            if found.oid != info.oid:
                raise ConnectorError(_OTHER.format(f"table {info.shown}"))
            self._check_captured(found)
            capture = Capture(found, settings.slot, settings.publication)
            self._check_published(check_publication(session, capture), capture)

    def _check_captured(self, found: TableInfo) -> None:
        """The table must have the columns that the capture began with."""
        at, settings = self._at, self._settings
        if at.captured is not None:
            keyed = settings.changelog == "upsert" or not at.loaded or bool(at.parts)
            at.captured.check(found, settings.columns, keyed)

    def _check_published(self, published: str | None, capture: Capture) -> None:
        if published != self._at.published:
            raise ConnectorError(
                f"publication '{capture.publication}' was dropped or made anew, or the table taken "
                f"out of it for a while, so that changes of table {capture.info.shown} are lost: "
                "drop the slot, and start the job without its checkpoint"
            )

    def _places_of(self, info: TableInfo, keys: Sequence[Key]) -> list[int]:
        with self._session() as session:
            return places_of(session, info, self._at.parts, keys)

    def _offer(self, delivery: Delivery, stream: ReplicationStream | None = None) -> None:
        """Hand it to the task, when it has taken what was before."""
        while True:
            with self._lock:
                self._thread.check()
                last = self._ready[-1] if self._ready else None
                if last is not None and last.batch is None and not last.finished:
                    self._ready.pop()
                if len(self._ready) < AHEAD or delivery.batch is None:
                    self._ready.append(delivery)
                    self._at = delivery.after
                    break
                self._lock.wait(IDLE_S)
            if stream is not None:
                stream.confirm(self._confirmed)
                stream.stay_alive()
        self._wake()


_OTHER = (
    "the {} is not the one that the capture began with, but another or was made anew: drop the "
    "slot, and start the job without its checkpoint"
)

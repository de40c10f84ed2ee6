"""PostgreSQL's streaming replication protocol, on libpq's own calls.

psycopg 3 has no replication connection, but the calls that one is made of. psycopg2 has one; it
moves the position that it confirms by itself whenever the server says that there is nothing more,
which here only a complete checkpoint may do. The SQL functions that peek into a slot
(`pg_logical_slot_peek_binary_changes`) decode everything behind the confirmed position again at
each call, a large transaction as a whole, and hold it in memory.

    us      START_REPLICATION SLOT s LOGICAL 0/16B3748 (proto_version '1', publication_names 'p')
    server  w  start, end, time, payload        one message of pgoutput
            k  end, time, reply wanted          everything that ends before `end` was sent
    us      r  received, confirmed, applied     the slot keeps what is behind `confirmed`

Positions in the log (LSNs) are integers here: bytes since the log's beginning.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from .connection import SESSION, PostgresConnection

EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01, from which PostgreSQL counts, in microseconds since 1970."""

STATUS_EVERY_S: Final = 5.0
"""The server ends a connection that says nothing for `wal_sender_timeout`, by default a minute."""

_DATA: Final = struct.Struct("!cQQq")
_ALIVE: Final = struct.Struct("!cQq?")
_STATUS: Final = struct.Struct("!cQQQq?")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the output plugin."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Alive:
    """Everything that committed before `end` (an LSN) has been sent."""

    end: int


class ReplicationStream:
    """The changes of one slot. Used from one thread.

    Invariant: `_confirmed` is what a complete checkpoint holds, or 0, which confirms nothing; it
    never goes back, for older servers would take the slot back with it."""

    def __init__(self, connection: PostgresConnection) -> None:
        from psycopg import pq

        settings = {**SESSION, "statement_timeout": "0"}
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        conninfo = connection.conninfo(
            replication="database", client_encoding="utf8", options=options
        )
        self._pgconn: Any = pq.PGconn.connect(conninfo.encode())
        self._received = 0
        self._confirmed = 0
        self._said_at = time.monotonic()
        self._buffered = False
        """Whether libpq may have read messages already that nobody has taken, which the socket does
        not show."""
        self._check(self._pgconn.status == pq.ConnStatus.OK)

    def start(self, slot: str, publication: str, lsn: int) -> None:
        """Begin with what commits at `lsn` or later. Raises psycopg's errors; 55006 if another
        connection reads the slot."""
        from psycopg import pq

        names = quoted(publication).replace("'", "''")
        command = (
            f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {show_lsn(lsn)} "
            f"(proto_version '1', publication_names '{names}')"
        )
        result = self._pgconn.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise _error(result)
        self._pgconn.nonblocking = 1
        self._buffered = True
        self._received = lsn

    def fileno(self) -> int:
        return int(self._pgconn.socket)

    def wait(self, timeout_s: float, also: int | None = None) -> bool:
        """Until something has come, the file descriptor `also` can be read, or time is over;
        whether something has come."""
        if self._buffered:
            return True
        poll = select.poll()
        mine = self.fileno()
        poll.register(mine, select.POLLIN)
        if also is not None:
            poll.register(also, select.POLLIN)
        return any(fd == mine for fd, _ in poll.poll(max(0.0, timeout_s) * 1000))

    def received(self) -> Iterator[Message | Alive]:
        """All that has come, without waiting. Raises psycopg's errors when the connection is lost,
        or the server ends the stream."""
        self._pgconn.consume_input()
        self._buffered = False
        while True:
            size, data = self._pgconn.get_copy_data(1)
            if size == 0:
                return
            if size < 0:
                raise self._ended()
            yield from self._understood(bytes(data))

    def confirm(self, lsn: int) -> None:
        """A complete checkpoint holds everything that committed before `lsn`."""
        if lsn > self._confirmed:
            self._confirmed = lsn
            self._say()

    def stay_alive(self) -> None:
        """Called at least every few seconds, also while nothing is read."""
        if time.monotonic() - self._said_at >= STATUS_EVERY_S:
            self._say()

    def close(self) -> None:
        self._pgconn.finish()

    def _understood(self, data: bytes) -> Iterator[Message | Alive]:
        kind = data[:1]
        if kind == b"w":
            _, start, end, _ = _DATA.unpack_from(data)
            self._received = max(self._received, start, end)
            yield Message(data[_DATA.size :])
        elif kind == b"k":
            _, end, _, wanted = _ALIVE.unpack_from(data)
            self._received = max(self._received, end)
            if wanted:
                self._say()
            yield Alive(end)

    def _say(self) -> None:
        now_us = time.time_ns() // 1000 - EPOCH_US
        # "applied" is nothing to us; the position up to which the slot is freed is the second.
        status = _STATUS.pack(b"r", self._received, self._confirmed, 0, now_us, False)
        self._pgconn.put_copy_data(status)
        self._pgconn.flush()
        self._said_at = time.monotonic()

    def _ended(self) -> Exception:
        import psycopg

        result = self._pgconn.get_result()
        if result is None or not result.error_message:
            return psycopg.OperationalError("the server ended the stream of changes")
        return _error(result)

    def _check(self, fine: bool) -> None:
        if not fine:
            import psycopg

            text = self._pgconn.error_message.decode(errors="replace")
            self._pgconn.finish()
            raise psycopg.OperationalError(text)


def _error(result: Any) -> Exception:
    """psycopg's error of a result."""
    from psycopg import errors

    made: Exception = errors.error_from_result(result)
    return made


def quoted(name: str) -> str:
    """As an identifier of a replication command."""
    return '"' + name.replace('"', '""') + '"'


def show_lsn(lsn: int) -> str:
    """As PostgreSQL writes it.

    >>> show_lsn(0x1_016B_3748)
    '1/16B3748'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """
    >>> parse_lsn("1/16B3748") == 0x1_016B_3748
    True
    """
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)

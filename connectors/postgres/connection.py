"""Where a database is, connections to it, and what is said when there is none.

Passwords. A `PostgresConnection` holds what the user gave, password included, because tasks on
other machines connect with it; it is pickled into the job and nowhere else. It shows itself without
the password, and the text of each error goes through `say`, which takes the password out. Better is
to give none: libpq finds it in `PGPASSWORD`, in `~/.pgpass` or a service file of each machine.

Errors are of two kinds. What may pass (the server is gone, starts, has no connection left, chose
our transaction to end a deadlock) is tried again with back-off, for `patience_s`; all else is said
at once, in one sentence.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...core.errors import ConfigurationError, ConnectorError
from ...core.redaction import HIDDEN

if TYPE_CHECKING:
    import psycopg

    Session = psycopg.Connection[Any]

T = TypeVar("T")

OF_LIBPQ: Final[Mapping[str, int]] = {
    "connect_timeout": 10,
    "tcp_user_timeout": 60_000,
    "keepalives_idle": 60,
    "keepalives_interval": 15,
    "keepalives_count": 4,
}
"""Unless they are given (s; the second in ms): a server, or what translates addresses on the way,
may go without a word, and what waits for it would wait for hours."""

GRACE_S: Final = 10.0
"""How much longer than the server is told to take is waited for its answer."""

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0

SESSION: Final[Mapping[str, str]] = {
    "timezone": "UTC",
    "datestyle": "ISO,YMD",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
"""What texts of values look like must not depend on settings of servers, databases and users."""

_PERMANENT: Final = (
    "password authentication failed",
    "no password supplied",
    "pg_hba.conf",
    "does not exist",
    "permission denied",
    "replication role",
    "not permitted",
    "certificate",
)
"""In the text of a connection that failed: trying again does not help."""

_PASSING_STATES: Final = (
    "08",  # the connection is lost
    "40",  # deadlock, serialization
    "531",  # the disk is full
    "532",  # no memory left
    "533",  # no connection left
    "55006",  # a slot is in use
    "55P03",  # a lock
    "57P01",  # the server stops
    "57P02",
    "57P03",
    "58030",  # input or output
)
"""Beginnings of SQLSTATEs that may pass."""


_log = logging.getLogger(__name__)


class PostgresConnection:
    """Which database, as whom, and how.

    conninfo: what `psycopg.connect` takes: `"host=db dbname=shop user=strom"`, or a URL
        `"postgresql://strom@db/shop"`. What is left out libpq has from the environment of the
        process that connects (`PGHOST`, `PGPASSWORD`, ...), `~/.pgpass` and service files.
    patience: how long a task tries to connect again before it fails.
    statement_timeout: how long a sink's or lookup's statement may take, waiting for locks included,
        and how long one waits for the answer, before the task fails; None: for ever. A change
        capture waits for ever: to make its slot, the server awaits the end of all transactions.
    parameters: single ones, by libpq's names, which win over those of `conninfo`.
    """

    def __init__(
        self,
        conninfo: str = "",
        *,
        patience: timedelta = timedelta(seconds=60),
        statement_timeout: timedelta | None = timedelta(minutes=10),
        **parameters: Any,
    ) -> None:
        self.patience_s = patience.total_seconds()
        if self.patience_s < 0:
            raise ConfigurationError(f"patience must not be negative, is {patience}")
        if statement_timeout is not None and statement_timeout < timedelta(milliseconds=1):
            raise ConfigurationError(
                "statement_timeout must be at least a millisecond, or None for no limit, is "
                f"{statement_timeout}"
            )
        self._statement_timeout = statement_timeout
        self._parameters = _parsed(conninfo, parameters)

    @classmethod
    def of(cls, given: PostgresConnection | str) -> PostgresConnection:
        """What an argument `connection` of a source or sink means."""
        if isinstance(given, PostgresConnection):
            return given
        if isinstance(given, str):
            return cls(given)
        raise ConfigurationError(
            "connection must be a PostgresConnection, or what psycopg.connect takes, is a "
            f"{type(given).__name__}"
        )

    def __repr__(self) -> str:
        return f"PostgresConnection({self.place})"

    @property
    def place(self) -> str:
        """For messages."""
        shown = [name for name in ("host", "port", "dbname", "user") if name in self._parameters]
        return " ".join(f"{name}={self._parameters[name]}" for name in shown) or "of libpq's own"

    @property
    def answer_s(self) -> float | None:
        """How long to wait for what the server may take `statement_timeout` for; None: for ever."""
        limit = self._statement_timeout
        return None if limit is None else limit.total_seconds() + GRACE_S

    def say(self, error: BaseException | str) -> str:
        """The error's text in one line, without the password."""
        text = " ".join(str(error).split()) or type(error).__name__
        for name in ("password", "sslpassword"):
            secret = self._parameters.get(name)
            if secret:
                text = text.replace(str(secret), HIDDEN)
        return text.rstrip(".")

    def conninfo(self, **more: Any) -> str:
        """With the password: for libpq alone."""
        from psycopg.conninfo import make_conninfo

        defaults = {**OF_LIBPQ, "application_name": "strom"}
        return make_conninfo("", **{**defaults, **self._parameters, **more})

    def connect(self, limited: bool = True) -> Session:
        """One try. Not in a transaction, and every statement is one of its own; texts of values
        are as `SESSION` says. `limited`: statements may take `statement_timeout`. Raises psycopg's
        errors."""
        import psycopg

        connection = psycopg.connect(self.conninfo(client_encoding="utf8"), autocommit=True)
        try:
            connection.prepare_threshold = None
            limit = self._statement_timeout if limited else None
            milliseconds = 0 if limit is None else round(limit.total_seconds() * 1000)
            settings = {**SESSION, "statement_timeout": f"{milliseconds}"}
            connection.execute("; ".join(f"SET {k} = '{v}'" for k, v in settings.items()))
        except BaseException:
            connection.close()
            raise
        return connection

    def warn(self, doing: str, error: BaseException) -> None:
        """Log that `doing` met what may pass, and is tried again."""
        _log.warning(
            "cannot %s (PostgreSQL %s): %s; trying again for up to %.0f s",
            doing,
            self.place,
            self.say(error),
            self.patience_s,
        )

    def failure(self, doing: str, error: BaseException) -> ConnectorError:
        """What to raise where `doing` ("write to table x") met what does not pass. `__cause__` is
        kept only where it tells that nothing can be reached: a chain would be printed in full."""
        advice = self._more_time() if _timed_out(error) else _advice(error)
        failed = ConnectorError(
            f"cannot {doing} (PostgreSQL {self.place}): {self.say(error)}{advice}"
        )
        if is_passing(error):
            failed.__cause__ = ConnectionError(self.say(error))
        return failed

    def silence(self, doing: str, seconds: float) -> ConnectorError:
        """What to raise where the server has not answered for longer than `answer_s`."""
        return ConnectorError(
            f"cannot {doing} (PostgreSQL {self.place}): the server has not done it in "
            f"{seconds:.0f} s{self._more_time()}"
        )

    def _more_time(self) -> str:
        assert self._statement_timeout is not None, "there is a limit"
        return (
            f": it took longer than statement_timeout={self._statement_timeout} of the "
            "PostgresConnection; pg_stat_activity shows whether it waits for somebody's lock. Let "
            "that one end, or give it more time"
        )


def _timed_out(error: BaseException) -> bool:
    """Whether the server gave up because of `statement_timeout`."""
    return getattr(error, "sqlstate", None) == "57014" and "statement timeout" in str(error)


def is_passing(error: BaseException) -> bool:
    """Whether it may help to try again."""
    import psycopg

    if isinstance(error, OSError):
        return True
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_PASSING_STATES)
    # libpq's own errors have no state: of calls, of connections, and of results it makes up.
    of_libpq = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    if not of_libpq and type(error) is not psycopg.DatabaseError:
        return False
    text = str(error)
    return not any(sign in text for sign in _PERMANENT)


class Patience:
    """How long what may pass is tried again: pauses that grow, until `patience_s` have gone by
    since the first failure in a row."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: float | None = None
        self._pause_s = FIRST_PAUSE_S

    @property
    def fresh(self) -> bool:
        """Whether nothing has failed since something went well."""
        return self._since is None

    def pause_s(self) -> float | None:
        """Called at each failure: how long to wait; None: it is time to give up."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since >= self._patience_s:
            return None
        pause, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        return pause * random.uniform(0.75, 1.25)

    def forget(self) -> None:
        """Called when something went well."""
        self._since, self._pause_s = None, FIRST_PAUSE_S


def patiently(
    connection: PostgresConnection,
    doing: str,
    work: Callable[[], T],
    wait: Callable[[float], Any] = time.sleep,
) -> T:
    """`work()`, tried again while it fails by what may pass; ConnectorError otherwise. `work` must
    be right to do again after it failed anywhere."""
    import psycopg

    patience = Patience(connection.patience_s)
    while True:
        try:
            return work()
        except (psycopg.Error, OSError) as error:
            first = patience.fresh
            pause = patience.pause_s() if is_passing(error) else None
            if pause is None:
                raise connection.failure(doing, error) from None
            if first:
                connection.warn(doing, error)
        wait(pause)


def _parsed(conninfo: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """ConfigurationError without the text: it may hold a password."""
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        raise ConfigurationError(
            "the PostgreSQL connectors need psycopg 3: pip install 'strom[postgres]', or "
            "'psycopg[binary]'"
        ) from error
    try:
        return dict(conninfo_to_dict(conninfo, **parameters))
    except (ProgrammingError, ValueError):
        raise ConfigurationError(
            "the connection is none that libpq understands: give key=value pairs as in "
            "'host=db dbname=shop user=strom', or a URL as in 'postgresql://strom@db:5432/shop', "
            "in which special characters of the password are percent-encoded"
        ) from None


_ADVICE: Final[Mapping[str, str]] = {
    "42P01": ": create the table, or name its schema as in 'schema.table'",
    "42501": ": grant the user of the connection what it lacks",
    "42703": ": the table's columns and the stream's must have the same names",
    "42P10": ": an upsert needs a primary key or unique constraint on exactly its key columns",
    "23505": ": rows with the same key were written before, or came twice in the stream; an "
    "upsert replaces them",
    "22021": ": PostgreSQL's texts cannot hold the character NUL; take it out before the sink",
    "55006": ": another job reads the slot, give each job one of its own",
    "53300": ": raise max_connections",
    "53400": ": raise max_replication_slots, or drop slots that nobody reads",
    "3D000": ": create the database",
}


def _advice(error: BaseException) -> str:
    state = getattr(error, "sqlstate", None)
    if state in _ADVICE:
        return _ADVICE[str(state)]
    if "password" in str(error):
        return ": check user and password of the connection, or PGPASSWORD and ~/.pgpass"
    return "; it was tried until the connection's patience was over" if is_passing(error) else ""

"""A real PostgreSQL on loopback, for tests and demos.

    with PostgresServer() as server:
        server.run("CREATE TABLE orders (id int PRIMARY KEY)")
        ... server.conninfo ...

One cluster in a temporary folder on a free port, with logical decoding on; the binaries are those
on the path, or Debian's. PostgreSQL refuses to run as root, so that started by root it runs as the
user `postgres` or `nobody`. Nothing but loopback listens, and a password is asked for.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from ..core.errors import StromError

DEBIAN: Final = "/usr/lib/postgresql"
"""Below it a folder per version, with `bin` in it."""

USER: Final = "strom"

PASSWORD: Final = "not-a-secret"

DATABASE: Final = "postgres"

START_S: Final = 60.0

STOP_S: Final = 30.0

_SHOWN: Final = 2_000
"""Characters of the server's log that a message quotes."""

SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": "16",
    "max_replication_slots": "16",
    "max_connections": "60",
    "shared_buffers": "16MB",
    "fsync": "off",
    "wal_sender_timeout": "10s",
}
"""Without fsync a killed server loses nothing, only a dead machine would."""


class PostgresServerError(StromError):
    """A server did not start, or there are no binaries to start."""


class PostgresServer:
    """Runs from `start` (or `with`) on. It keeps its folder and port when it is stopped or killed,
    and comes back with what it had. `settings` are added to `SETTINGS`."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._bin = binaries()
        self._settings = {**SETTINGS, **(settings or {})}
        self._user = _unprivileged()
        self._folder = Path(tempfile.mkdtemp(prefix="strom-postgres-", dir=_place(self._user)))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    @property
    def parameters(self) -> dict[str, str]:
        """Of a connection, by libpq's names."""
        return {
            "host": "127.0.0.1",
            "port": str(self.port),
            "user": USER,
            "password": PASSWORD,
            "dbname": DATABASE,
        }

    @property
    def conninfo(self) -> str:
        """For `psycopg.connect`."""
        return " ".join(f"{name}={value}" for name, value in self.parameters.items())

    @property
    def environment(self) -> dict[str, str]:
        """What lets libpq find the server by itself."""
        names = {"dbname": "PGDATABASE"}
        return {names.get(k, f"PG{k.upper()}"): value for k, value in self.parameters.items()}

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, wait: bool = True) -> None:
        """Returns when the server takes connections, unless told not to `wait`."""
        assert not self.alive, "the server runs"
        data = self._folder / "data"
        if not (data / "PG_VERSION").exists():
            self._make(data)
        options = [
            word for key in self._settings for word in ("-c", f"{key}={self._settings[key]}")
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._bin / "postgres"), "-D", str(data), "-p", str(self.port), *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as_user(),
            )
        if wait:
            self.wait()

    def wait(self, timeout_s: float = START_S) -> None:
        """Until the server takes connections. Raises PostgresServerError."""
        import psycopg

        deadline = time.monotonic() + timeout_s
        while True:
            if not self.alive:
                raise PostgresServerError(f"PostgreSQL ended: {self._said()}")
            try:
                psycopg.connect(self.conninfo, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    raise PostgresServerError(
                        f"PostgreSQL does not answer after {timeout_s:.0f} s: {error} "
                        f"{self._said()}"
                    ) from error
            time.sleep(0.05)

    def stop(self) -> None:
        """Open transactions are rolled back, connections closed, all is written."""
        if self.alive:
            self._end(signal.SIGINT)

    def kill(self) -> None:
        """All its processes at once, like a power cut."""
        if not self.alive:
            return
        assert self._process is not None
        processes = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(processes, timeout=STOP_S)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove everything it wrote."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute one statement in a connection and transaction of its own; its rows, if any."""
        import psycopg

        with psycopg.connect(self.conninfo) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def _make(self, data: Path) -> None:
        """`initdb`."""
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        if self._user is not None:
            for path in (self._folder, secret):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        words = ["-U", USER, "--pwfile", str(secret), "--auth=scram-sha-256", "-E", "UTF8"]
        done = subprocess.run(
            [str(self._bin / "initdb"), "-D", str(data), *words, "--locale=C", "--no-sync"],
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
            **self._as_user(),
        )
        if done.returncode:
            said = done.stderr.strip() or f"it ended with {done.returncode}"
            raise PostgresServerError(f"initdb failed: {said[-_SHOWN:]}\n{done.stdout[-_SHOWN:]}")

    def _as_user(self) -> dict[str, Any]:
        """Further arguments of `Popen`."""
        where: dict[str, Any] = {"cwd": self._folder, "env": {**os.environ, "LC_ALL": "C"}}
        if self._user is not None:
            where |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return where

    def _end(self, by: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(by)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-_SHOWN:]

    def __enter__(self) -> PostgresServer:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def binaries() -> Path:
    """The folder with `postgres` and `initdb`: that on the path, or Debian's newest. Raises
    PostgresServerError if there is none."""
    found = shutil.which("postgres")
    if found is not None and (Path(found).parent / "initdb").exists():
        return Path(found).parent
    versions = [folder for folder in Path(DEBIAN).glob("*/bin") if (folder / "initdb").exists()]
    if not versions:
        raise PostgresServerError(
            f"there is no PostgreSQL, neither on the path nor in {DEBIAN}: run scripts/setup, "
            "which installs Debian's package postgresql, or put the server's programs on the path"
        )
    return max(versions, key=lambda folder: float(folder.parent.name))


def _unprivileged() -> pwd.struct_passwd | None:
    """Whom to run as; None: as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresServerError(
        "PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody' to run it as"
    )


def _place(user: pwd.struct_passwd | None) -> str | None:
    """Where the server's folder is made: below the first folder for temporary files that `user`
    may enter, which those made by `mktemp -d` are not. None: the usual one, as ourselves. Raises
    PostgresServerError."""
    if user is None:
        return None
    tried = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]
    for place in tried:
        if os.path.isdir(place) and all(
            folder.stat().st_mode & 0o001 for folder in (Path(place), *Path(place).parents)
        ):
            return place
    raise PostgresServerError(
        f"PostgreSQL would run as '{user.pw_name}', who may enter none of {', '.join(tried)}: "
        "set TMPDIR to a folder that all users may enter"
    )


def _free_port() -> int:
    """Free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

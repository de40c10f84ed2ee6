"""A real Redis on loopback, in which the head of a Ray cluster keeps what it knows, for tests.

    with RedisServer() as server:
        ... server.address, server.password ...

The server that is on the path, or Debian's, in a temporary folder on a free port. Nothing but
loopback listens, and a password is asked for.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, Self

from ..core.errors import StromError

PROGRAM: Final = "redis-server"

START_S: Final = 60.0

STOP_S: Final = 30.0

_SHOWN: Final = 2_000
"""Characters of the server's log that a message quotes."""


class RedisServerError(StromError):
    """A server did not start, or there is no program to start."""


class RedisServer:
    """Runs while it is a context."""

    def __init__(self) -> None:
        """RedisServerError if there is no program."""
        self._program = program()
        self.password = secrets.token_hex(16)
        self.port = _free_port()
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """As Ray takes it in RAY_REDIS_ADDRESS."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="strom-redis-"))
        try:
            self._start()
            self._wait()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def _start(self) -> None:
        # By its input: who lists processes sees no password.
        settings = [
            "bind 127.0.0.1",
            f"port {self.port}",
            f"requirepass {self.password}",
            f'dir "{self._folder}"',
            'save ""',
            "appendonly yes",
            "appendfsync no",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        self._process.stdin.write("\n".join([*settings, ""]).encode())
        self._process.stdin.close()

    def _wait(self) -> None:
        """Until the server answers to its password."""
        assert self._process is not None
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None:
                raise RedisServerError(f"Redis ended: {self._said()}")
            if time.monotonic() > deadline:
                raise RedisServerError(
                    f"Redis does not answer after {START_S:.0f} s: {self._said()}"
                )
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5.0) as connection:
                connection.sendall(f"AUTH {self.password}\r\n".encode())
                return connection.recv(64).startswith(b"+OK")
        except OSError:
            return False

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-_SHOWN:]


def program() -> str:
    """Where the server is. RedisServerError if there is none."""
    found = shutil.which(PROGRAM)
    if found is None:
        raise RedisServerError(
            f"there is no {PROGRAM} on the path: run scripts/setup, which installs Debian's "
            "package redis-server, or put the server's program there"
        )
    return found


def _free_port() -> int:
    """Free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

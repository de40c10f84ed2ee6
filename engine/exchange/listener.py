"""Where an endpoint can be reached: a TCP port, and a unix socket for peers on the same node.

The unix socket lies in a private directory (mode 0700) that goes with the listener; what a killed
process left behind is swept by the next listener of the same user. Peers count as on one node when
they run under the same kernel boot with the same view of the file system.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from typing import Final

from ...core.errors import TransportError

BACKLOG: Final = 1024
SOCKET_BUFFER: Final = 1 << 20
"""Bytes asked of the kernel per direction; what is in them is covered by credit as well."""


PREFIX: Final = "strom-exchange-"
SOCKET_NAME: Final = "socket"
STALE_AFTER_S: Final = 60.0
"""A younger directory may be one whose owner is just about to listen."""


@dataclass(frozen=True)
class SocketAddress:
    """`unix_path` is good for peers whose `node_identity()` equals `node`."""

    host: str
    port: int
    unix_path: str | None
    node: str


@cache
def node_identity() -> str:
    """Equal in two processes exactly when one can open the other's unix socket by its path."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot}/{os.stat('/proc/self/ns/mnt').st_ino}"
    except OSError:
        return f"{socket.gethostname()}/{os.getuid()}"


class Listener:
    """Both listening sockets, non-blocking. TransportError if `bind_host` cannot be bound."""

    def __init__(self, bind_host: str) -> None:
        self._directory: str | None = None
        self.sockets: list[socket.socket] = []
        try:
            self.sockets.append(_listen_tcp(bind_host))
        except OSError as error:
            raise TransportError(f"cannot listen on '{bind_host}': {error}") from error
        path = self._listen_unix()
        port = self.sockets[0].getsockname()[1]
        self.address = SocketAddress(advertised(bind_host), port, path, node_identity())

    def _listen_unix(self) -> str | None:
        """The path, or None where the platform or the length of its temporary path forbids it."""
        if not hasattr(socket, "AF_UNIX"):
            return None
        sweep()
        self._directory = tempfile.mkdtemp(prefix=PREFIX)
        path = os.path.join(self._directory, SOCKET_NAME)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(path)
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            self._remove_directory()
            return None
        listening.setblocking(False)
        self.sockets.append(listening)
        return path

    def _remove_directory(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def close(self) -> None:
        for listening in self.sockets:
            listening.close()
        self.sockets.clear()
        self._remove_directory()


def sweep() -> None:
    """Remove this user's directories whose socket nobody listens on any more."""
    for entry in os.scandir(tempfile.gettempdir()):
        if not entry.name.startswith(PREFIX):
            continue
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            old = time.time() - status.st_mtime > STALE_AFTER_S
            if old and status.st_uid == os.getuid() and _is_dead(entry.path):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_dead(directory: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.path.join(directory, SOCKET_NAME))
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        return False


def _listen_tcp(host: str) -> socket.socket:
    family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
    listening = socket.create_server((host, 0), family=family, backlog=BACKLOG)
    listening.setblocking(False)
    return listening


def advertised(bind_host: str) -> str:
    """The host that peers should use: for a wildcard address, that of the route to the outside."""
    if bind_host not in ("", "0.0.0.0", "::"):
        return bind_host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address: nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def tune(connection: socket.socket) -> None:
    """Non-blocking, without delay, with large kernel buffers."""
    connection.setblocking(False)
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER)

"""Where an endpoint can be reached: a TCP port, and a unix socket for peers on the same node.

The unix socket has an abstract name, which is no file: the kernel forgets it with the process that
listens, however that ends. Linux has such names; elsewhere peers on one node use TCP. Peers count
as on one node when they run under the same kernel boot with the same view of the network, which is
where these names live. File permissions do not guard such a name: who is let in, `foreign` and the
handshake decide.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import sys
from dataclasses import dataclass
from functools import cache
from typing import Final

from ...core.errors import TransportError

BACKLOG: Final = 1024
SOCKET_BUFFER: Final = 1 << 20
"""Bytes asked of the kernel per direction; what is in them is covered by credit as well."""

PREFIX: Final = "\0strom-exchange-"
"""The zero byte makes the name an abstract one."""

_PEER = struct.Struct("3i")
"""The kernel's word on a unix socket's peer: process, user, group."""


@dataclass(frozen=True)
class SocketAddress:
    """`unix_path`, an abstract name, is good for peers whose `node_identity()` equals `node`."""

    host: str
    port: int
    unix_path: str | None
    node: str


@cache
def node_identity() -> str:
    """Equal in two processes exactly when one can reach the other's unix socket by its name."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return f"{socket.gethostname()}/{os.getuid()}"


class Listener:
    """Both listening sockets, non-blocking. TransportError if `bind_host` cannot be bound."""

    def __init__(self, bind_host: str) -> None:
        self.sockets: list[socket.socket] = []
        try:
            self.sockets.append(_listen_tcp(bind_host))
        except OSError as error:
            raise TransportError(f"cannot listen on '{bind_host}': {error}") from error
        path = self._listen_unix()
        port = self.sockets[0].getsockname()[1]
        self.address = SocketAddress(advertised(bind_host), port, path, node_identity())

    def _listen_unix(self) -> str | None:
        """The name, or None where the platform has none or somebody forbids it."""
        if sys.platform != "linux":
            return None
        name = PREFIX + secrets.token_hex(16)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(name)
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            return None
        listening.setblocking(False)
        self.sockets.append(listening)
        return name

    def close(self) -> None:
        for listening in self.sockets:
            listening.close()
        self.sockets.clear()


def foreign(connection: socket.socket) -> bool:
    """Whether an accepted connection is a unix socket of another user's process."""
    if sys.platform != "linux" or connection.family != socket.AF_UNIX:
        return False
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(peer)[1] != os.geteuid())


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

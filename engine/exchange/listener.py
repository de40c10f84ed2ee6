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

LOOPBACK: Final = "127.0.0.1"
WILDCARDS: Final = ("", "0.0.0.0", "::")

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


@dataclass(frozen=True)
class Site:
    """Where an endpoint listens, and by which host peers on other machines reach it."""

    bind_host: str = LOOPBACK
    announced: str = LOOPBACK


def site_of(bind_host: str | None, machine: str, several: bool) -> Site:
    """`bind_host`: what the configuration says. `machine`: this one's address, as others know it.
    `several`: whether the job's tasks are on more than one.

    >>> site_of(None, "10.0.0.7", several=True)
    Site(bind_host='10.0.0.7', announced='10.0.0.7')
    >>> site_of(None, "10.0.0.7", several=False)
    Site(bind_host='127.0.0.1', announced='127.0.0.1')
    >>> site_of("0.0.0.0", "10.0.0.7", several=True)
    Site(bind_host='0.0.0.0', announced='10.0.0.7')
    """
    if bind_host is None:
        bind_host = machine if several else LOOPBACK
    return Site(bind_host, machine if bind_host in WILDCARDS else bind_host)


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
    """Both listening sockets, non-blocking. TransportError if the site's host cannot be bound."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.tcp = _listen_tcp(site.bind_host)
        self.unix, self._path = _listen_unix()

    @property
    def address(self) -> SocketAddress:
        port = self.tcp.getsockname()[1]
        return SocketAddress(self.site.announced, port, self._path, node_identity())

    def move(self, site: Site) -> None:
        """Listen there, and no more where it did. TransportError as before: nothing changes."""
        before, self.tcp = self.tcp, _listen_tcp(site.bind_host)
        self.site = site
        before.close()

    def close(self) -> None:
        self.tcp.close()
        if self.unix is not None:
            self.unix.close()


def _listen_unix() -> tuple[socket.socket | None, str | None]:
    """With its name; or nothing, where the platform has none or somebody forbids it."""
    if sys.platform != "linux":
        return None, None
    name = PREFIX + secrets.token_hex(16)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(name)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        return None, None
    listening.setblocking(False)
    return listening, name


def foreign(connection: socket.socket) -> bool:
    """Whether an accepted connection is a unix socket of another user's process."""
    if sys.platform != "linux" or connection.family != socket.AF_UNIX:
        return False
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(peer)[1] != os.geteuid())


def remote(connection: socket.socket) -> bool:
    """Whether the peer may be on another machine: within one, it is a unix socket."""
    return connection.family != getattr(socket, "AF_UNIX", None)


def _listen_tcp(host: str) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, 0), family=family, backlog=BACKLOG)
    except OSError as error:
        raise TransportError(
            f"cannot listen on '{host}': {error}; strom.exchange.bind-host says where tasks listen"
        ) from error
    listening.setblocking(False)
    return listening


def tune(connection: socket.socket) -> None:
    """Non-blocking, without delay. Within a machine, with large kernel buffers. Between machines
    the kernel makes them as large as the way is long, which it does not once a size was set."""
    connection.setblocking(False)
    if remote(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    else:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER)

"""The API on a port: uvicorn on a thread of its own, which slow clients cannot hold.

A client has `HEADERS_S` to send the head of a request, the guard's times for its body, and
`READ_S` to take some of an answer that waits for it; then it is cut off.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import struct
import threading
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...core.errors import ConfigurationError, ResourceError

log = logging.getLogger("strom")

HEADERS_S: Final = 10.0
READ_S: Final = 30.0
IDLE_S: Final = 30
"""How long a connection may be kept between two requests."""

MOST_CONNECTIONS: Final = 256
"""More are answered 503."""

HEAD: Final = 128 << 10
"""The most bytes of a request's head: of any parameters that paths allow."""

STOP_S: Final = 5.0


class Impatient(H11Protocol):
    """uvicorn's, with an end to what clients may take their time for."""

    headers_s = HEADERS_S
    read_s = READ_S

    def connection_made(self, transport: Any) -> None:
        self._late: asyncio.TimerHandle | None = None
        """Due when a request should have begun."""
        self._stuck: asyncio.TimerHandle | None = None
        """Due when the client should have taken some of an answer."""
        super().connection_made(transport)
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            if self._late is None:
                self._expect_request()
        else:
            self._forget(late=True)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(self.read_s, self._cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._forget(stuck=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget(late=True, stuck=True)
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        self._late = self.loop.call_later(self.headers_s, self._cut)

    def _forget(self, late: bool = False, stuck: bool = False) -> None:
        if late and self._late is not None:
            self._late.cancel()
            self._late = None
        if stuck and self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _cut(self) -> None:
        """At once: what was to be sent is nobody's any more, here and in the kernel."""
        opened = self.transport.get_extra_info("socket")
        if opened is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class RestServer:
    """Serves until it is closed."""

    def __init__(
        self,
        app: ASGIApp,
        host: str = "127.0.0.1",
        port: int = 0,
        protocol: type[Impatient] = Impatient,
    ) -> None:
        """`port`: 0 for any that is free. ResourceError if it cannot listen there."""
        self._socket = _listening(host, port)
        name = self._socket.getsockname()
        shown = f"[{name[0]}]" if ":" in name[0] else name[0]
        self.address = f"{shown}:{name[1]}"
        self.url = f"http://{self.address}"
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=HEAD,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="strom-rest", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException:
            log.exception("the REST server on %s broke", self.address)

    def close(self) -> None:
        """Idempotent."""
        self._server.should_exit = True
        self._thread.join(STOP_S)
        self._socket.close()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def free_port(host: str, port: int) -> int:
    """The port, if somebody may listen there now, of 0 one that is chosen; 0: it is taken."""
    try:
        with _listening(host, port) as found:
            return int(found.getsockname()[1])
    except ResourceError:
        return 0


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ConfigurationError(f"a port is in 0..65535, is {port}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(128)
        except BaseException:
            made.close()
            raise
    except OSError as error:
        raise ResourceError(f"the REST API cannot listen on {host}:{port}: {error}") from None
    return made

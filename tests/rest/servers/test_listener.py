"""A real server, and clients that take their time: they are cut off, and hold up nobody."""

from __future__ import annotations

import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pytest
from rest_kit import PlayedJobs
from strom.core.errors import ConfigurationError, ResourceError
from strom.rest.servers.api import guarded, make_app
from strom.rest.servers.guard import Access
from strom.rest.servers.listener import Impatient, RestServer, is_loopback

SOON_S = 0.3
LATE_S = 20.0


class Hasty(Impatient):
    headers_s = SOON_S
    read_s = SOON_S


@pytest.fixture
def catalog() -> PlayedJobs:
    return PlayedJobs()


@pytest.fixture
def server(catalog: PlayedJobs) -> Iterator[RestServer]:
    access = Access(piece_s=SOON_S, body_s=2 * SOON_S)
    server = RestServer(guarded(make_app(catalog, access)), protocol=Hasty)
    yield server
    server.close()


def connected(server: RestServer) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    made = socket.create_connection((host, int(port)), timeout=LATE_S)
    made.settimeout(LATE_S)
    return made


def said(connection: socket.socket) -> bytes:
    """All until the server ends the connection."""
    found = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            found += piece
    return found


def is_served(server: RestServer) -> None:
    """Others are, even while this process is held up so that it is taken for slow itself."""
    for _ in range(20):
        try:
            with urllib.request.urlopen(f"{server.url}/v1/jobs", timeout=LATE_S) as answer:
                assert answer.status == 200
                return
        except ConnectionError:
            continue
    raise AssertionError("nobody is served")


@pytest.mark.parametrize(
    "begun", [b"", b"GET /v1/jobs HTTP/1.1\r\n", b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nX: "]
)
def test_one_that_does_not_finish_its_head(server: RestServer, begun: bytes) -> None:
    with connected(server) as slow:
        slow.sendall(begun)
        is_served(server)
        began = time.monotonic()
        assert said(slow) == b""
        assert time.monotonic() - began < LATE_S


def test_one_that_does_not_finish_its_second_head(server: RestServer) -> None:
    with connected(server) as slow:
        slow.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = slow.recv(1 << 16)
        while b"fedcba9876543210" not in answer:
            answer += slow.recv(1 << 16)
        slow.sendall(b"GET /v1/jobs HT")
        assert said(slow) == b""


@pytest.mark.parametrize("declared", [True, False])
def test_one_that_does_not_finish_its_body(
    server: RestServer, catalog: PlayedJobs, declared: bool
) -> None:
    length = "Content-Length: 50" if declared else "Transfer-Encoding: chunked"
    head = (
        "POST /v1/jobs/0123456789abcdef/stop HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\n{length}\r\n\r\n"
    )
    with connected(server) as slow:
        slow.sendall(head.encode() + (b"{" if declared else b"1\r\n{\r\n"))
        is_served(server)
        assert said(slow).startswith(b"HTTP/1.1 408 ")
    assert catalog.asked == []


def test_one_that_reads_no_answer(server: RestServer, catalog: PlayedJobs) -> None:
    (view, _) = catalog.views.values()
    view["config"] = {f"option{i}": "x" * 1000 for i in range(20_000)}
    with connected(server) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ask = b"GET /v1/jobs/0123456789abcdef/config HTTP/1.1\r\nHost: localhost\r\n\r\n"
        slow.sendall(ask)
        assert slow.recv(100).startswith(b"HTTP/1.1 200 ")
        is_served(server)
        # Only when it was cut off does reading come to an end, before all of it was there.
        deadline = time.monotonic() + LATE_S
        while _state(slow) == ESTABLISHED:
            assert time.monotonic() < deadline
        assert len(said(slow)) < 20_000_000


ESTABLISHED = 1


def _state(connection: socket.socket) -> int:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


def test_a_head_that_is_too_large(server: RestServer) -> None:
    with connected(server) as greedy:
        greedy.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nX: ")
        with suppress(BrokenPipeError, ConnectionResetError):
            greedy.sendall(b"x" * (1 << 20))
        assert b" 200 " not in said(greedy)
    is_served(server)


def test_two_lengths_or_both_kinds_are_no_request(server: RestServer) -> None:
    """What is one request to a proxy and another to the server."""
    for more in (
        "Content-Length: 2\r\nContent-Length: 3",
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, identity",
    ):
        with connected(server) as odd:
            head = "POST /v1/jobs/0123456789abcdef/stop HTTP/1.1\r\nHost: localhost"
            odd.sendall(f"{head}\r\n{more}\r\n\r\n{{}}".encode())
            assert not said(odd).startswith(b"HTTP/1.1 2"), more


def test_ports(server: RestServer) -> None:
    port = int(server.address.rpartition(":")[2])
    with pytest.raises(ResourceError, match="cannot listen"):
        RestServer(guarded(make_app(PlayedJobs())), port=port)
    with pytest.raises(ConfigurationError):
        RestServer(guarded(make_app(PlayedJobs())), port=70_000)
    assert [is_loopback(h) for h in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "host")] == [
        True,
        True,
        True,
        False,
        False,
    ]

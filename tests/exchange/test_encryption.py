"""What travels between machines encrypted: by whom it can be read, and who is let in."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import pytest
from exchange_kit import (
    SECRET,
    TcpOnly,
    batch,
    channel,
    job_certificate,
    settle,
    take_all,
    task,
    wire,
)
from strom.core.clock import VirtualClock
from strom.core.config import ExchangeConfig
from strom.core.errors import AuthenticationError, ConfigurationError
from strom.engine.exchange import encryption
from strom.engine.exchange.encryption import Encryption, JobCertificate, SecureSocket, issue
from strom.engine.exchange.sockets import SocketEndpoint

A, B = task("a"), task("b")
LINK = channel(0, A, B, 0)


def endpoint(task_id: Any, certificate: JobCertificate | None, clock: Any = None) -> SocketEndpoint:
    return TcpOnly(task_id, ExchangeConfig(), SECRET, clock, certificate=certificate)


def test_nothing_readable_is_on_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bytes] = []
    fetched = SecureSocket.fetch

    def fetch(self: SecureSocket) -> int:
        said.append(self._socket.recv(1 << 20, socket.MSG_PEEK))
        return fetched(self)

    monkeypatch.setattr(SecureSocket, "fetch", fetch)
    a, b = endpoint(A, job_certificate()), endpoint(B, job_certificate())
    wire(1, {A: a, B: b}, [LINK])
    a.outputs[LINK.id].write(batch(0, 1000))
    a.flush()
    settle(a, b)
    assert take_all(b) == [(0, list(range(1000)))]
    line = b"".join(said)
    assert len(line) > 8000
    plain = batch(0, 1000).data.column(0).buffers()[1].to_pybytes()
    assert plain[80:160] not in line
    assert b"strom-1" not in line  # of the proofs that come first
    a.close()
    b.close()


def test_who_has_another_certificate_is_refused_though_it_knows_the_secret() -> None:
    a, b = endpoint(A, issue()), endpoint(B, job_certificate())
    wire(1, {A: a, B: b}, [LINK])
    with pytest.raises(AuthenticationError, match=r"receiver b\[0\] has another certificate"):
        settle(a, b)
    assert b.gate.poll() is None
    a.close()
    b.close()


def test_who_does_not_encrypt_is_refused_though_it_knows_the_secret() -> None:
    clock = VirtualClock()
    a, b = endpoint(A, None, clock), endpoint(B, job_certificate(), clock)
    wire(1, {A: a, B: b}, [LINK])
    a.outputs[LINK.id].write(batch(0, 10))
    settle(a, b)
    assert b.rejected_handshakes >= 1
    assert take_all(b) == []
    a.close()
    b.close()


def test_a_certificate_without_its_key_is_worth_nothing() -> None:
    """A stranger that has seen the certificate cannot show it."""
    with pytest.raises(ssl.SSLError):
        Encryption(JobCertificate(job_certificate().certificate, issue().key))


def test_the_key_is_not_shown() -> None:
    assert "PRIVATE" not in repr(job_certificate())


def test_older_versions_of_tls_are_refused() -> None:
    b = endpoint(B, job_certificate())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    address = (b.address.host, b.address.port)
    with socket.create_connection(address) as raw:
        raw.settimeout(30)
        secure = context.wrap_socket(raw, do_handshake_on_connect=False)
        secure.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):
            secure.do_handshake()
        settle(b)
        secure.setblocking(True)
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
            secure.do_handshake()
        secure.close()
    assert b.rejected_handshakes == 1
    b.close()


def test_without_the_package_that_makes_certificates_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    with pytest.raises(ConfigurationError, match=r"install strom\[tls\]"):
        encryption.issue()

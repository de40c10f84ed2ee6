"""Connections between machines under TLS, by a certificate that each job has of its own.

The coordinator makes a key and its certificate (`issue`) and hands both to the job's tasks, with
the job's secret: there is nothing to configure, and nothing outlives the job. Each end shows the
certificate and accepts no other: who has the key belongs to the job. The proofs of `handshake`
follow inside, and tell which task of which attempt is at the other end. TLS 1.3 alone: what
somebody recorded stays unreadable, even if the key becomes known. The certificate never expires: it
is told by its key, and machines' clocks may differ.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from socket import socket
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

ENCRYPTED_AT_ONCE: Final = 256 << 10
"""Bytes that are encrypted before the socket is asked to take them."""

FETCHED_AT_ONCE: Final = 256 << 10

SMALL: Final = 4 << 10
"""Pieces below this share a record of TLS with their neighbours."""


@dataclass(frozen=True)
class JobCertificate:
    """PEM. Handed to nobody but the tasks of the job."""

    certificate: bytes
    key: bytes = field(repr=False)


def issue() -> JobCertificate:
    """A new one. ConfigurationError without the package `cryptography`."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise ConfigurationError(
            "security.ssl.internal.enabled needs the package 'cryptography', which makes the job's "
            "certificate, on the machines where coordinators run: install strom[tls] there"
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a job of strom")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2000, 1, 1))
        .not_valid_after(datetime(9999, 12, 31))
        .sign(key, hashes.SHA256())
    )
    return JobCertificate(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


class Encryption:
    """What one endpoint encrypts its connections to other machines with."""

    def __init__(self, certificate: JobCertificate) -> None:
        self._accepting = _context(ssl.PROTOCOL_TLS_SERVER, certificate)
        self._accepting.num_tickets = 0  # nobody resumes
        self._connecting = _context(ssl.PROTOCOL_TLS_CLIENT, certificate)

    def accepted(self, connection: socket) -> SecureSocket:
        return SecureSocket(connection, self._accepting, server_side=True)

    def connected(self, connection: socket) -> SecureSocket:
        return SecureSocket(connection, self._connecting, server_side=False)


def _context(protocol: int, certificate: JobCertificate) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certificate.certificate.decode())
    with _as_file(certificate.certificate + certificate.key) as path:
        context.load_cert_chain(path)
    return context


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path to read it from, for this process alone; in no folder where the system can do that."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("strom-certificate")
        path = f"/proc/self/fd/{descriptor}"
    else:
        descriptor, path = tempfile.mkstemp()
    try:
        os.write(descriptor, content)
        yield path
    finally:
        os.close(descriptor)
        if not path.startswith("/proc/"):
            os.unlink(path)


class SecureSocket:
    """A connected, non-blocking TCP socket under TLS, with the few methods of one that handshakes
    and streams need. Raises BlockingIOError as that does, and ssl.SSLError, which is an OSError,
    for what is no TLS of this job."""

    def __init__(self, connection: socket, context: ssl.SSLContext, server_side: bool) -> None:
        self.family = connection.family
        self._socket = connection
        self._arrived = ssl.MemoryBIO()
        self._leaving = ssl.MemoryBIO()
        self._session = context.wrap_bio(self._arrived, self._leaving, server_side=server_side)
        self._unsent = memoryview(b"")
        """Encrypted, and not taken by the socket yet."""
        self._stands_for = 0
        """The bytes given to `sendmsg` that `_unsent` is the rest of; not told of yet."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def getsockopt(self, level: int, option: int) -> int:
        return self._socket.getsockopt(level, option)

    def close(self) -> None:
        self._socket.close()

    def shake(self) -> bool:
        """Go on with TLS's own handshake; whether it is done. Nothing else before that."""
        while True:
            try:
                self._session.do_handshake()
            except ssl.SSLWantReadError:
                self._push()
            except ssl.SSLError:
                self._push()  # the peer should hear why
                raise
            else:
                self._push()
                return True
            try:
                fetched = self.fetch()
            except BlockingIOError:
                return False
            if not fetched:
                raise ConnectionResetError("the peer hung up during TLS's handshake")

    def send(self, data: bytes) -> int:
        """For the few bytes of a handshake: all of them, or OSError."""
        self._encrypt([memoryview(data)])
        self._push()
        return len(data)

    def _push(self) -> None:
        waiting = self._leaving.read()
        if waiting and self._socket.send(waiting) != len(waiting):
            raise OSError("the handshake could not be sent in one piece")

    def recv(self, most: int) -> bytes:
        """Empty at the end, as of a socket."""
        while True:
            try:
                return self._session.read(most)
            except ssl.SSLWantReadError:
                if not self.fetch():
                    return b""

    def sendmsg(self, parts: Sequence[memoryview]) -> int:
        """How many bytes of `parts` are with the socket. After a BlockingIOError the next call is
        to begin with the same bytes: some of what they became is gone already."""
        if not self._unsent:
            self._stands_for = self._encrypt(parts)
            self._unsent = memoryview(self._leaving.read())
        sent = self._socket.send(self._unsent)
        self._unsent = self._unsent[sent:]
        if self._unsent:
            raise BlockingIOError
        return self._stands_for

    def _encrypt(self, parts: Sequence[memoryview]) -> int:
        taken = 0
        small = bytearray()
        for part in parts:
            room = ENCRYPTED_AT_ONCE - taken
            if room <= 0:
                break
            piece = part[:room]
            taken += piece.nbytes
            if piece.nbytes < SMALL:
                small += piece
                continue
            self._write(memoryview(small))
            small = bytearray()
            self._write(piece)
        self._write(memoryview(small))
        return taken

    def _write(self, piece: memoryview) -> None:
        while piece:
            piece = piece[self._session.write(piece) :]

    def fetch(self) -> int:
        """Take what the socket has, up to a bound, for `recvmsg_into`; 0 at the end."""
        data = self._socket.recv(FETCHED_AT_ONCE)
        self._arrived.write(data)
        return len(data)

    def recvmsg_into(self, targets: Sequence[memoryview]) -> int:
        """What was fetched, decrypted, into the targets in order; 0: there is no more of it."""
        total = 0
        for target in targets:
            have = 0
            while have < len(target):
                try:
                    have += _read(self._session, target[have:])
                except ssl.SSLWantReadError:
                    return total + have
            total += have
        return total


def _read(session: ssl.SSLObject, target: memoryview) -> int:
    """How many bytes of it were filled. SSLWantReadError: there are none now."""
    count: Any = session.read(len(target), target)
    return int(count)

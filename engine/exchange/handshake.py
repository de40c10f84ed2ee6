"""How two tasks of a job prove to each other that they belong to it, before anything is data.

    sender    -> receiver   hello: magic, attempt, both task ids, 32 random bytes
    receiver  -> sender     32 random bytes
    sender    -> receiver   HMAC-SHA256(secret, "sender" and all of the above)
    receiver  -> sender     verdict, HMAC-SHA256(secret, "receiver", verdict and all of the above)

The secret is the job's and never travels. Both sides' random bytes are under both proofs, so a
recorded handshake is worthless; roles are under them, so nobody's proof can be reflected; tasks and
attempt are, so a proof is good for one pair of tasks in one attempt. The sender proves itself
first: a stranger learns nothing from a receiver. Layouts are fixed; nothing is unpickled.

This authenticates peers. It does not encrypt, and does not protect the bytes that follow from
somebody who can alter traffic between machines: there, `encryption` does, around all of this.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ...core.errors import AuthenticationError
from ...core.ids import TaskId, VertexId

MAGIC: Final = b"strom-1\n"
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
MAX_HELLO: Final = 4096

_PREFIX = struct.Struct("<8sI")
_FIXED = struct.Struct("<q32sIHIH")


class Verdict(IntEnum):
    """What a receiver says to a sender that has proved itself."""

    ACCEPTED = 0
    STALE = 1
    """The receiver is at a later attempt."""
    MISDIRECTED = 2
    """The receiver is another task, or expects no such sender."""
    DUPLICATE = 3
    """The receiver already has a connection from this sender."""


@dataclass(frozen=True)
class Hello:
    """Who wants to send to whom."""

    attempt: int
    sender: TaskId
    receiver: TaskId


def _encode(hello: Hello, nonce: bytes) -> bytes:
    sender, receiver = hello.sender.vertex.encode(), hello.receiver.vertex.encode()
    fixed = _FIXED.pack(
        hello.attempt,
        nonce,
        hello.sender.subtask,
        len(sender),
        hello.receiver.subtask,
        len(receiver),
    )
    body = fixed + sender + receiver
    return _PREFIX.pack(MAGIC, len(body)) + body


def _decode(body: bytes) -> Hello:
    try:
        attempt, _, sender, sender_size, receiver, receiver_size = _FIXED.unpack_from(body)
        names = body[_FIXED.size :]
        if len(names) != sender_size + receiver_size:
            raise AuthenticationError("hello of the wrong length")
        return Hello(
            attempt,
            TaskId(VertexId(names[:sender_size].decode()), sender),
            TaskId(VertexId(names[sender_size:].decode()), receiver),
        )
    except (struct.error, UnicodeDecodeError) as error:
        raise AuthenticationError(f"hello cannot be read: {error}") from error


def _proof(secret: bytes, role: bytes, *transcript: bytes) -> bytes:
    return hmac.new(secret, role + b"".join(transcript), hashlib.sha256).digest()


class SenderHandshake:
    """The connecting side. Send `start()`, then feed `receive` exactly `needed` bytes at a time."""

    def __init__(self, secret: bytes, hello: Hello, nonce: bytes) -> None:
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes, got {len(nonce)}")
        self._secret = secret
        self._hello = _encode(hello, nonce)
        self._transcript = b""
        """Empty until the challenge arrived, then hello, challenge and own proof."""
        self.verdict: Verdict | None = None
        """None until the receiver has proved itself."""

    def start(self) -> bytes:
        return self._hello

    @property
    def challenged(self) -> bool:
        """Whether the receiver has answered the hello; what remains may wait for its wiring."""
        return bool(self._transcript)

    @property
    def needed(self) -> int:
        """Bytes to give to the next `receive`; 0 when done."""
        if self.verdict is not None:
            return 0
        return 1 + PROOF_BYTES if self.challenged else NONCE_BYTES

    def receive(self, data: bytes) -> bytes:
        """What to send in answer. AuthenticationError: the receiver does not know the secret."""
        if not self.challenged:
            seen = self._hello + data
            proof = _proof(self._secret, b"sender", seen)
            self._transcript = seen + proof
            return proof
        expected = _proof(self._secret, b"receiver", data[:1], self._transcript)
        if not hmac.compare_digest(expected, data[1:]):
            raise AuthenticationError("could not prove that it belongs to this job")
        self.verdict = Verdict(data[0])
        return b""


class ReceiverHandshake:
    """The accepting side. Feed `receive` exactly `needed` bytes at a time; when `hello` is set the
    sender is proved, and `answer` makes the last message."""

    def __init__(self, secret: bytes, nonce: bytes) -> None:
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes, got {len(nonce)}")
        self._secret = secret
        self._nonce = nonce
        self._prefix = b""
        self._claim: Hello | None = None
        """What the peer says, not yet proved."""
        self._transcript = b""
        self.hello: Hello | None = None
        """What the peer has proved."""
        self.needed = _PREFIX.size
        """Bytes to give to the next `receive`; 0 when nothing more may come before the answer."""

    def receive(self, data: bytes) -> bytes:
        """What to send in answer. AuthenticationError: drop the connection without a word."""
        if not self._prefix:
            return self._on_prefix(data)
        if self._claim is None:
            return self._on_body(data)
        return self._on_proof(data)

    def _on_prefix(self, data: bytes) -> bytes:
        magic, size = _PREFIX.unpack(data)
        if magic != MAGIC or not _FIXED.size <= size <= MAX_HELLO:
            raise AuthenticationError("the peer does not speak this protocol")
        self._prefix = data
        self.needed = size
        return b""

    def _on_body(self, data: bytes) -> bytes:
        self._claim = _decode(data)
        self._transcript = self._prefix + data + self._nonce
        self.needed = PROOF_BYTES
        return self._nonce

    def _on_proof(self, data: bytes) -> bytes:
        if not hmac.compare_digest(_proof(self._secret, b"sender", self._transcript), data):
            raise AuthenticationError("the peer does not know the job's secret")
        self._transcript += data
        self.hello = self._claim
        self.needed = 0
        return b""

    def answer(self, verdict: Verdict) -> bytes:
        if self.hello is None:
            raise AuthenticationError("the peer has not proved itself yet")
        said = bytes([verdict])
        return said + _proof(self._secret, b"receiver", said, self._transcript)

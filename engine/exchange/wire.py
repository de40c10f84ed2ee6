"""Frames: what travels on a connection once both ends have proved who they are.

    header   magic u16, kind u8, flags u8, channel u32, backlog u32, rows u32, length u64
    payload  `length` bytes, a multiple of 8, so that every payload starts aligned

Everything is little-endian. A frame that breaks these rules is a TransportError: the stream cannot
be trusted after it. Control elements are struct-coded here; batches are the codec's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from ...core.elements import (
    CheckpointBarrier,
    Control,
    EndOfData,
    LatencyMarker,
    StreamStatus,
    Watermark,
)
from ...core.errors import TransportError
from ...core.ids import CheckpointId, OperatorId

HEADER: Final = struct.Struct("<HBBIIIQ")
MAGIC: Final = 0x7357
MAX_PAYLOAD: Final = 1 << 30
"""A longer payload is taken for nonsense; no sender makes one."""

HAS_TIMESTAMPS: Final = 1
STARVED: Final = 2
"""Of a buffer: more wait behind it, and it took the last credit."""
SHARED: Final = 4
"""Of a buffer: the payload says where in shared memory it is (`shared_memory`)."""


class Kind(IntEnum):
    SCHEMA = 1
    """The schema of the COLUMNS frames that follow on this channel."""
    COLUMNS = 2
    """[timestamps] and one encapsulated Arrow record batch."""
    STREAM = 3
    """[timestamps] and a whole Arrow stream: a batch and the dictionaries that only it uses."""
    OBJECTS = 4
    """[timestamps] and a pickled list."""
    CONTROL = 5
    CREDIT = 6
    """Pairs (channel u32, credits u32), from receiver to sender."""
    BACKLOG = 7
    """The sender has `backlog` buffers waiting and no credit."""
    CLOSE = 8
    """The peer is done with all channels of this connection and closes it."""
    CODES = 9
    """As COLUMNS, with codes where the schema has dictionaries, which came before."""
    DICTIONARY = 10
    """The dictionary of one column of the CODES frames that follow on this channel."""
    HEARTBEAT = 11
    """The peer lives; either way, and nothing else."""
    MEMORY = 12
    """From sender to receiver, once, with the descriptor of memory that buffers may lie in."""
    FREE = 13
    """Slots of that which the receiver uses no more."""


BUFFERS: Final = frozenset({Kind.COLUMNS, Kind.CODES, Kind.STREAM, Kind.OBJECTS})
"""Kinds that need a credit."""

KINDS: Final = {int(kind): kind for kind in Kind}


@dataclass(slots=True)
class Frame:
    """One received frame. `schema`: of its channel when it arrived, set for COLUMNS and CODES only;
    `dictionaries`: by column position, for CODES."""

    kind: Kind
    flags: int
    channel: int
    backlog: int
    rows: int
    length: int
    payload: Any = b""
    schema: Any = None
    dictionaries: Any = None


def parse_header(data: Any, offset: int = 0) -> Frame:
    """The frame whose header begins at `offset`, without payload. Raises TransportError."""
    magic, kind, flags, channel, backlog, rows, length = HEADER.unpack_from(data, offset)
    if magic != MAGIC:
        raise TransportError(f"frame begins with {magic:#06x}, not {MAGIC:#06x}")
    if kind not in KINDS:
        raise TransportError(f"unknown frame kind {kind}")
    if length > MAX_PAYLOAD or length % 8:
        raise TransportError(
            f"{KINDS[kind].name} frame of {length} bytes: must be a multiple of 8, "
            f"at most {MAX_PAYLOAD}"
        )
    frame = Frame(KINDS[kind], flags, channel, backlog, rows, length)
    if not flags & SHARED:
        check_timestamps(frame)
    return frame


def check_timestamps(frame: Frame) -> None:
    """TransportError if a buffer has no room for those that it says it has."""
    if frame.kind in BUFFERS and frame.flags & HAS_TIMESTAMPS and frame.rows * 8 > frame.length:
        raise TransportError(f"{frame.rows} timestamps do not fit a frame of {frame.length} bytes")


def header(
    kind: Kind, length: int, channel: int = 0, backlog: int = 0, rows: int = 0, flags: int = 0
) -> bytes:
    return HEADER.pack(MAGIC, kind, flags, channel, backlog, rows, length)


def small_frame(kind: Kind, payload: bytes = b"", channel: int = 0, backlog: int = 0) -> bytes:
    """Header and payload in one piece, padded."""
    padded = pad(payload)
    return header(kind, len(padded), channel, backlog) + padded


def pad(payload: bytes) -> bytes:
    """With zero bytes up to a multiple of 8."""
    return payload + bytes(-len(payload) % 8)


_TAG = struct.Struct("<B")
_WATERMARK = struct.Struct("<Bq")
_STATUS = struct.Struct("<B?")
_BARRIER = struct.Struct("<Bqq?q???I")
"""And the bytes of a savepoint's location, as many as its last field says; 0: a checkpoint."""

_MARKER = struct.Struct("<BIqI")
"""And the bytes of the source's id, as many as its last field says."""


def control_frame(channel: int, element: Control) -> bytes:
    return small_frame(Kind.CONTROL, _encode_control(element), channel)


def _encode_control(element: Control) -> bytes:
    match element:
        case Watermark(timestamp):
            return _WATERMARK.pack(1, timestamp)
        case StreamStatus(active):
            return _STATUS.pack(2, active)
        case CheckpointBarrier(number, triggered, terminal, base, savepoint, halt):
            place = (savepoint or "").encode()
            flags = (halt, element.overtakes, element.passed)
            return _BARRIER.pack(3, number, triggered, terminal, base, *flags, len(place)) + place
        case EndOfData():
            return _TAG.pack(4)
        case LatencyMarker(source, subtask, marked_ms):
            name = source.encode()
            return _MARKER.pack(5, subtask, marked_ms, len(name)) + name


def decode_control(payload: Any) -> Control:
    """Raises TransportError for anything `control_frame` did not make."""
    data = bytes(payload)
    try:
        match data[0]:
            case 1:
                return Watermark(_WATERMARK.unpack_from(data)[1])
            case 2:
                return StreamStatus(_STATUS.unpack_from(data)[1])
            case 3:
                return _barrier(data)
            case 4:
                return EndOfData()
            case 5:
                _, subtask, marked_ms, size = _MARKER.unpack_from(data)
                name = data[_MARKER.size : _MARKER.size + size].decode()
                return LatencyMarker(OperatorId(name), subtask, marked_ms)
            case other:
                raise TransportError(f"unknown control element {other}")
    except (IndexError, struct.error) as error:
        raise TransportError(f"control element cannot be read: {error}") from error


def _barrier(data: bytes) -> CheckpointBarrier:
    _, number, triggered, terminal, base, *flags, size = _BARRIER.unpack_from(data)
    place = data[_BARRIER.size : _BARRIER.size + size].decode() or None
    n, newest = CheckpointId(number), CheckpointId(base)
    return CheckpointBarrier(n, triggered, terminal, newest, place, *flags)


_PAIR = struct.Struct("<II")


def credit_frame(grants: list[tuple[int, int]]) -> bytes:
    """(channel id, credits) pairs."""
    return small_frame(Kind.CREDIT, b"".join(_PAIR.pack(c, n) for c, n in grants))


def decode_credits(payload: Any) -> list[tuple[int, int]]:
    return list(_PAIR.iter_unpack(bytes(payload)))


class FrameReader:
    """Bytes in, frames out. Each payload ends up in memory of its own, which Arrow then owns.

    Ask `targets()` where to receive, tell `received(n)` how much came. Small frames are cut out of
    a scratch area; the rest of a large one is received in place.
    """

    SCRATCH: Final = 64 << 10
    BEHIND: Final = 4 << 10
    """How much may be read beyond a large payload in one go."""

    def __init__(self) -> None:
        self._scratch = memoryview(bytearray(self.SCRATCH))
        self._have = 0
        """Unparsed bytes at the start of the scratch area; 0 while a payload is in progress."""
        self._frame: Frame | None = None
        """The frame whose payload is being received in place."""
        self._rest = memoryview(b"")
        """The part of its payload still missing; never empty while `_frame` is set."""

    @property
    def between_frames(self) -> bool:
        return self._frame is None and not self._have

    def targets(self) -> list[memoryview]:
        if self._frame is not None:
            return [self._rest, self._scratch[: self.BEHIND]]
        return [self._scratch[self._have :]]

    def received(self, count: int) -> list[Frame]:
        """`count` bytes were written to the targets, in order. The frames completed by them."""
        frames: list[Frame] = []
        if self._frame is not None:
            missing = len(self._rest)
            if count < missing:
                self._rest = self._rest[count:]
                return frames
            frames.append(self._frame)
            self._frame, self._rest = None, memoryview(b"")
            count -= missing
        self._have += count
        self._parse(frames)
        return frames

    def _parse(self, frames: list[Frame]) -> None:
        start, end = 0, self._have
        while end - start >= HEADER.size:
            frame = parse_header(self._scratch, start)
            start += HEADER.size
            if end - start < frame.length:
                self._begin(frame, self._scratch[start:end])
                start = end
                break
            frame.payload = bytes(self._scratch[start : start + frame.length])
            start += frame.length
            frames.append(frame)
        self._have = end - start
        if start and self._have:
            self._scratch[: self._have] = self._scratch[start:end]

    def _begin(self, frame: Frame, first: memoryview) -> None:
        import pyarrow as pa

        frame.payload = pa.allocate_buffer(frame.length)
        target = memoryview(frame.payload).cast("B")
        target[: len(first)] = first
        self._frame, self._rest = frame, target[len(first) :]

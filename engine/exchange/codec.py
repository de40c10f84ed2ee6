"""Batches to frames and back.

Columns travel as Arrow's encapsulated record batch message: schema and dictionaries go once per
channel and again when they change (see `dictionaries`), and the receiver's arrays point into the
received bytes. Arrow's own message was measured against gathering the column buffers (`sendmsg`
without a copy): its one copy costs 5 µs for 100 KB and 43 µs for 1.5 MB; collecting three columns
by hand costs 15 µs in any case.

Values without a schema travel as one pickled list (see `pickling`).
Timestamps go in front as raw int64. Unpickling runs code, so it is for authenticated peers only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...core.batch import Batch, ColumnBatch, ObjectBatch, Timestamps
from ...core.elements import Element
from ...core.errors import SerializationError, TransportError
from .compaction import compacted, shape_of
from .dictionaries import SentDictionaries, code_schema, codes, decoded, pack, unpack
from .pickling import pickle_values, unpickle_values
from .wire import (
    HAS_TIMESTAMPS,
    MAX_PAYLOAD,
    SHARED,
    STARVED,
    Frame,
    Kind,
    decode_control,
    header,
    pad,
    small_frame,
)

Parts = list[Any]
"""Bytes-like pieces of one or more frames, to be sent one after another."""


class ChannelEncoder:
    """The writing end of one channel: remembers which schema and dictionaries the receiver has."""

    __slots__ = ("_channel", "_dictionaries", "_schema")

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._schema: pa.Schema | None = None
        """What the last SCHEMA frame said; None before the first."""
        self._dictionaries = SentDictionaries()

    def encode(self, batch: Batch) -> tuple[Kind, Parts]:
        """The payload of the batch's frame. SerializationError names a value that cannot travel."""
        if isinstance(batch, ObjectBatch):
            kind, body = Kind.OBJECTS, pad(pickle_values(batch.values))
        elif shape_of(batch.data.schema) != "dictionaries":
            kind, body = Kind.COLUMNS, compacted(batch.data).serialize()
        elif self._dictionaries.settled(batch.data):
            kind, body = Kind.CODES, compacted(codes(batch.data)).serialize()
        else:
            kind, body = Kind.STREAM, as_stream(compacted(batch.data))
        stamps = batch.timestamps
        if stamps is None:
            return kind, [body]
        return kind, [np.ascontiguousarray(stamps, dtype="<i8"), body]

    def frames(
        self,
        batch: Batch,
        kind: Kind,
        payload: Parts,
        backlog: int,
        starved: bool = False,
        shared: bool = False,
    ) -> Parts:
        """Everything to send for a payload of `encode`, in order; of one that is `shared`, for the
        place that it has."""
        size = sum(memoryview(part).nbytes for part in payload)
        if size > MAX_PAYLOAD:
            raise SerializationError(
                f"channel {self._channel}: a batch of {len(batch)} rows takes {size} bytes, "
                f"at most {MAX_PAYLOAD} can be sent; make its records smaller"
            )
        flags = 0 if batch.timestamps is None else HAS_TIMESTAMPS
        flags |= (STARVED if starved else 0) | (SHARED if shared else 0)
        start = header(kind, size, self._channel, backlog, len(batch), flags)
        parts: Parts = [start, *payload]
        if kind in (Kind.COLUMNS, Kind.CODES) and isinstance(batch, ColumnBatch):
            return [*self._announcements(batch.data, kind), *parts]
        return parts

    def _announcements(self, data: pa.RecordBatch, kind: Kind) -> Parts:
        """Frames with what the receiver must know before this batch."""
        parts: Parts = []
        schema = data.schema
        if self._schema is not schema and not self._knows(schema):
            self._schema = schema
            self._dictionaries.forget()
            announced = schema.serialize().to_pybytes()
            parts.append(small_frame(Kind.SCHEMA, announced, self._channel))
        if kind is Kind.CODES:
            for at, values in self._dictionaries.news(data):
                parts.append(small_frame(Kind.DICTIONARY, pack(at, values), self._channel))
        return parts

    def _knows(self, schema: pa.Schema) -> bool:
        return self._schema is not None and self._schema.equals(schema, check_metadata=True)


class ChannelDecoder:
    """The reading end of one channel. Frames pass `admit` as they arrive, `decode` when polled."""

    __slots__ = ("_dictionaries", "_schema")

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._dictionaries: dict[int, pa.Array] = {}
        """By column position; replaced, never changed, as frames that wait hold it."""

    def admit(self, frame: Frame) -> bool:
        """Note what the frame says about the channel; whether it holds an element to deliver."""
        if frame.kind is Kind.SCHEMA:
            try:
                self._schema = pa.ipc.read_schema(pa.py_buffer(frame.payload))
            except (pa.ArrowException, OSError, EOFError, ValueError) as error:
                raise TransportError(f"schema cannot be read: {error}") from error
            self._dictionaries = {}
            return False
        if frame.kind is Kind.DICTIONARY:
            try:
                at, values = unpack(frame.payload)
            except (pa.ArrowException, OSError, EOFError, StopIteration, ValueError) as error:
                raise TransportError(f"dictionary cannot be read: {error}") from error
            self._dictionaries = {**self._dictionaries, at: values}
            return False
        if frame.kind in (Kind.COLUMNS, Kind.CODES):
            if self._schema is None:
                raise TransportError("columns arrived before their schema")
            frame.schema, frame.dictionaries = self._schema, self._dictionaries
        return True


def decode(frame: Frame) -> Element:
    """The element of an admitted frame. Columns and timestamps point into its payload."""
    if frame.kind is Kind.CONTROL:
        return decode_control(frame.payload)
    buffer = pa.py_buffer(frame.payload)
    stamps: Timestamps | None = None
    if frame.flags & HAS_TIMESTAMPS:
        stamps = np.frombuffer(buffer, dtype="<i8", count=frame.rows)
        buffer = buffer.slice(8 * frame.rows)
    batch = _decode_batch(frame, buffer, stamps)
    if len(batch) != frame.rows:
        raise TransportError(f"frame announces {frame.rows} rows and holds {len(batch)}")
    return batch


def _decode_batch(frame: Frame, buffer: pa.Buffer, stamps: Timestamps | None) -> Batch:
    if frame.kind is Kind.OBJECTS:
        return ObjectBatch(unpickle_values(buffer), stamps)
    try:
        if frame.kind is Kind.COLUMNS:
            data = pa.ipc.read_record_batch(buffer, frame.schema)
        elif frame.kind is Kind.CODES:
            coded = pa.ipc.read_record_batch(buffer, code_schema(frame.schema))
            data = decoded(coded, frame.schema, frame.dictionaries)
        else:
            with pa.ipc.open_stream(buffer) as reader:
                data = reader.read_next_batch()
        data.validate()
    except (pa.ArrowException, OSError, EOFError, StopIteration, ValueError) as error:
        raise TransportError(f"record batch cannot be read: {error}") from error
    return ColumnBatch(data, stamps)


def as_stream(data: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_batch(data)
    return sink.getvalue()

"""What goes in comes out, only what is needed travels, and nonsense is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.batch import Batch, ColumnBatch, ObjectBatch
from strom.core.elements import (
    CheckpointBarrier,
    EndOfData,
    LatencyMarker,
    StreamStatus,
    Watermark,
)
from strom.core.errors import SerializationError, TransportError
from strom.core.ids import CheckpointId, OperatorId
from strom.core.union_type import UnionType
from strom.engine.exchange.codec import ChannelDecoder, ChannelEncoder, decode
from strom.engine.exchange.partitioners import reordered
from strom.engine.exchange.wire import (
    HEADER,
    MAGIC,
    MAX_PAYLOAD,
    Frame,
    FrameReader,
    Kind,
    control_frame,
    decode_control,
    header,
    small_frame,
)


def to_bytes(parts: list[Any]) -> bytes:
    return b"".join(bytes(memoryview(part).cast("B")) for part in parts)


def read(data: bytes, step: int = 1 << 30) -> list[Frame]:
    """Feed `data` to a reader, at most `step` bytes at a time."""
    reader = FrameReader()
    frames: list[Frame] = []
    while data:
        count = 0
        for target in reader.targets():
            piece = data[count : min(step, count + len(target))]
            target[: len(piece)] = piece
            count += len(piece)
        data = data[count:]
        frames.extend(reader.received(count))
    assert reader.between_frames
    return frames


def through(batch: Batch, encoder: ChannelEncoder | None = None) -> tuple[Batch, int]:
    """The batch after the journey, and how many bytes travelled."""
    encoder = encoder or ChannelEncoder(7)
    data = to_bytes(encoder.frames(batch, *encoder.encode(batch), 3))
    decoder = ChannelDecoder()
    elements = [decode(f) for f in read(data) if decoder.admit(f)]
    assert len(elements) == 1
    assert isinstance(elements[0], (ColumnBatch, ObjectBatch))
    return elements[0], len(data)


LONG = [f"a string that is too long to be inlined {i}" for i in range(2000)]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(range(2000)),
        pa.array([None, 1.5] * 1000),
        pa.array([True, None] * 1000),
        pa.array(LONG),
        pa.array(LONG, pa.string_view()),
        pa.array([s.encode() for s in LONG], pa.binary_view()),
        pa.array(LONG).dictionary_encode(),
        pa.array([[s] for s in LONG], pa.list_(pa.string_view())),
        pa.array([[s, None] for s in LONG], pa.list_view(pa.string())),
        pa.array([{"a": s, "b": 1} for s in LONG]),
        pa.array([{"a": s} for s in LONG], pa.struct([("a", pa.string_view())])),
        *(
            UnionType.of(
                {"a": pa.struct([("s", text)]), "b": pa.struct([("n", pa.int64()), ("s", text)])}
            ).array([("a", (s,)) if i % 3 else ("b", (i, s)) for i, s in enumerate(LONG)])
            for text in (pa.string(), pa.string_view())
        ),
        pa.nulls(2000),
        pa.array([10**20] * 2000, pa.decimal128(30)),
        pa.array(range(2000), pa.timestamp("us", "UTC")),
    ],
    ids=lambda c: str(c.type),
)
@pytest.mark.parametrize("stamped", [True, False])
def test_columns_round_trip_and_slices_do_not_ship_their_parent(
    column: pa.Array, stamped: bool
) -> None:
    whole = ColumnBatch(
        pa.record_batch({"x": column}), np.arange(2000, dtype=np.int64) if stamped else None
    )
    for part in (whole, whole.slice(100, 10), reordered(whole, np.array([5, 3, 1999]))):
        got, size = through(part)
        assert isinstance(got, ColumnBatch)
        assert got.data.schema.equals(part.data.schema)
        assert got.rows() == part.rows()
        assert (got.timestamps is None) == (not stamped)
        if stamped:
            np.testing.assert_array_equal(got.timestamps, part.timestamps)
        if len(part) <= 10:
            assert size < 4000


def test_the_schema_travels_once_and_again_when_it_changes() -> None:
    encoder = ChannelEncoder(1)
    first = ColumnBatch(pa.record_batch({"a": [1, 2]}))
    other = ColumnBatch(pa.record_batch({"b": ["x"]}))
    kinds = []
    decoder = ChannelDecoder()
    rows = []
    for batch in (first, first.slice(1, 1), other, first):
        for frame in read(to_bytes(encoder.frames(batch, *encoder.encode(batch), 0))):
            kinds.append(frame.kind)
            if decoder.admit(frame):
                element = decode(frame)
                assert isinstance(element, ColumnBatch)
                rows.append(element.data.to_pylist())
    s, c = Kind.SCHEMA, Kind.COLUMNS
    assert kinds == [s, c, c, s, c, s, c]
    assert rows == [[{"a": 1}, {"a": 2}], [{"a": 2}], [{"b": "x"}], [{"a": 1}, {"a": 2}]]


def test_columns_are_read_in_place() -> None:
    batch = ColumnBatch(pa.record_batch({"a": np.arange(100_000)}))
    encoder, decoder = ChannelEncoder(1), ChannelDecoder()
    frames = read(to_bytes(encoder.frames(batch, *encoder.encode(batch), 0)))
    frame = next(f for f in frames if decoder.admit(f))
    element = decode(frame)
    assert isinstance(element, ColumnBatch)
    start = frame.payload.address
    assert start <= element.data.column(0).buffers()[1].address < start + frame.length


@given(
    values=st.lists(
        st.one_of(st.integers(), st.text(), st.tuples(st.floats(allow_nan=False), st.binary()))
    ),
    stamped=st.booleans(),
)
@settings(max_examples=examples(60), deadline=None)
def test_objects_round_trip(values: list[Any], stamped: bool) -> None:
    stamps = np.arange(len(values), dtype=np.int64) if stamped else None
    got, _ = through(ObjectBatch(values, stamps))
    assert isinstance(got, ObjectBatch)
    assert got.values == values
    assert (got.timestamps is not None) == stamped


def test_what_pickle_cannot_do_cloudpickle_does() -> None:
    got, _ = through(ObjectBatch([lambda x: x + 1]))
    assert isinstance(got, ObjectBatch)
    assert got.values[0](2) == 3


def test_an_unpicklable_record_is_named_by_its_type() -> None:
    generator = (i for i in range(3))
    with pytest.raises(SerializationError, match=r"builtins\.generator"):
        through(ObjectBatch([1, generator, 2]))


@pytest.mark.parametrize(
    "element",
    [
        Watermark(-(2**63)),
        Watermark(2**63 - 1),
        StreamStatus(False),
        CheckpointBarrier(CheckpointId(7), 123, terminal=True),
        EndOfData(),
        LatencyMarker(OperatorId("120e93d2a77112cf"), 3, 1_900_000_000_000),
    ],
)
def test_control_elements_round_trip(element: Any) -> None:
    (frame,) = read(control_frame(9, element))
    assert (frame.kind, frame.channel) == (Kind.CONTROL, 9)
    assert decode(frame) == element


@given(
    sizes=st.lists(st.integers(0, 30_000).map(lambda n: n * 8), max_size=6),
    step=st.integers(24, 200_000),
)
@settings(max_examples=examples(40), deadline=None)
def test_frames_survive_any_fragmentation(sizes: list[int], step: int) -> None:
    frames = [(i, np.random.default_rng(i).bytes(size)) for i, size in enumerate(sizes)]
    data = b"".join(header(Kind.OBJECTS, len(p), i) + p for i, p in frames)
    got = [(f.channel, bytes(f.payload)) for f in read(data, step)]
    assert got == frames


def _header(magic: int = MAGIC, kind: int = 5, rows: int = 0, length: int = 8) -> bytes:
    return HEADER.pack(magic, kind, 1, 0, 0, rows, length)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_header(magic=0x1234), "begins with"),
        (_header(kind=99), "unknown frame kind 99"),
        (_header(length=MAX_PAYLOAD + 8), "at most"),
        (_header(length=9), "multiple of 8"),
        (_header(kind=2, rows=5, length=16), "5 timestamps do not fit"),
    ],
)
def test_bad_headers_are_refused_before_any_allocation(data: bytes, message: str) -> None:
    with pytest.raises(TransportError, match=message):
        read(data)


@pytest.mark.parametrize("payload", [b"", b"\x63", b"\x01abc"])
def test_bad_control_elements_are_refused(payload: bytes) -> None:
    with pytest.raises(TransportError):
        decode_control(payload)


@given(garbage=st.binary(max_size=200))
@settings(max_examples=examples(60), deadline=None)
def test_garbage_payloads_are_transport_errors(garbage: bytes) -> None:
    padded = garbage + bytes(-len(garbage) % 8)
    schema = pa.schema([("a", pa.int64())])
    for kind in (Kind.COLUMNS, Kind.CODES, Kind.STREAM):
        with pytest.raises(TransportError):
            decode(Frame(kind, 0, 0, 0, 5, len(padded), padded, schema, {}))
    with pytest.raises(TransportError):
        ChannelDecoder().admit(read(small_frame(Kind.DICTIONARY, padded))[0])
    with pytest.raises(TransportError):
        ChannelDecoder().admit(read(small_frame(Kind.SCHEMA, padded))[0])


def test_columns_before_a_schema_and_wrong_row_counts_are_refused() -> None:
    batch = ColumnBatch(pa.record_batch({"a": [1, 2]}))
    encoder = ChannelEncoder(0)
    _, columns = read(to_bytes(encoder.frames(batch, *encoder.encode(batch), 0)))
    with pytest.raises(TransportError, match="before their schema"):
        ChannelDecoder().admit(columns)
    columns.schema, columns.rows = batch.data.schema, 3
    with pytest.raises(TransportError, match="announces 3 rows and holds 2"):
        decode(columns)

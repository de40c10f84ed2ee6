"""Dictionaries travel once per channel."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.batch import ColumnBatch
from strom.core.errors import TransportError
from strom.engine.exchange.codec import ChannelDecoder, ChannelEncoder, decode
from strom.engine.exchange.wire import Frame, Kind, parse_header

WORDS = pa.array([f"a word that has its number {i}" for i in range(3000)])


def frames(data: bytes) -> list[Frame]:
    found, at = [], 0
    while at < len(data):
        frame = parse_header(data, at)
        frame.payload = data[at + 24 : at + 24 + frame.length]
        found.append(frame)
        at += 24 + frame.length
    return found


class Channel:
    """Both ends of one channel."""

    def __init__(self) -> None:
        self.encoder, self.decoder = ChannelEncoder(7), ChannelDecoder()

    def send(self, data: pa.RecordBatch) -> tuple[list[Kind], int]:
        """Ship a batch, check what arrives; the kinds of frames it took and their bytes."""
        batch = ColumnBatch(data)
        parts = self.encoder.frames(batch, *self.encoder.encode(batch), 0)
        sent = b"".join(bytes(memoryview(part)) for part in parts)
        found = frames(sent)
        (got,) = [decode(frame) for frame in found if self.decoder.admit(frame)]
        assert isinstance(got, ColumnBatch)
        assert got.data.schema.equals(data.schema)
        assert got.data.to_pylist() == data.to_pylist()
        return [frame.kind for frame in found], len(sent)


def drawn(values: pa.Array, rows: int, seed: int = 0) -> pa.RecordBatch:
    codes = np.random.default_rng(seed).integers(0, len(values), rows).astype(np.int32)
    column = pa.DictionaryArray.from_arrays(pa.array(codes), values)
    return pa.record_batch({"n": pa.array(np.arange(rows)), "word": column})


def test_a_small_dictionary_goes_ahead_once() -> None:
    channel, few = Channel(), WORDS[:100]
    kinds, first = channel.send(drawn(few, 5000))
    assert kinds == [Kind.SCHEMA, Kind.DICTIONARY, Kind.CODES]
    kinds, later = channel.send(drawn(few, 5000, 1))
    assert kinds == [Kind.CODES]
    assert first - later > 3000


def test_a_large_one_goes_ahead_when_it_comes_again() -> None:
    channel = Channel()
    assert channel.send(drawn(WORDS, 50))[0] == [Kind.STREAM]
    assert channel.send(drawn(WORDS, 50, 1))[0] == [Kind.SCHEMA, Kind.DICTIONARY, Kind.CODES]
    kinds, size = channel.send(drawn(WORDS, 50, 2))
    assert kinds == [Kind.CODES]
    assert size < 1500


def test_one_that_changes_with_each_batch_travels_cut_to_its_batch() -> None:
    channel = Channel()
    for seed in range(3):
        other = pa.array([f"{word} {seed}" for word in WORDS.to_pylist()])
        kinds, size = channel.send(drawn(other, 50, seed))
        assert kinds == [Kind.STREAM]
        assert size < 8000


def test_other_columns_or_another_dictionary_are_announced() -> None:
    channel, few = Channel(), WORDS[:10]
    channel.send(drawn(few, 5))
    assert channel.send(drawn(WORDS[10:20], 5))[0] == [Kind.DICTIONARY, Kind.CODES]
    renamed = drawn(WORDS[10:20], 5).rename_columns(["n", "other"])
    assert channel.send(renamed)[0] == [Kind.SCHEMA, Kind.DICTIONARY, Kind.CODES]


def test_equal_dictionaries_in_other_memory_are_the_same() -> None:
    channel = Channel()
    channel.send(drawn(pa.array(["a", "b"]), 5))
    assert channel.send(drawn(pa.array(["a", "b"]), 5, 1))[0] == [Kind.CODES]


def test_nested_dictionaries_travel_with_their_batch() -> None:
    inner = pa.array(["a", "b", "a"]).dictionary_encode()
    column = pa.StructArray.from_arrays([inner], names=["x"])
    assert Channel().send(pa.record_batch({"s": column}))[0] == [Kind.STREAM]


def test_codes_without_or_beyond_their_dictionary_are_refused() -> None:
    encoder = ChannelEncoder(0)
    batch = ColumnBatch(drawn(WORDS[:10], 5))
    sent = b"".join(bytes(memoryview(p)) for p in encoder.frames(batch, *encoder.encode(batch), 0))
    schema, dictionary, codes = frames(sent)
    decoder = ChannelDecoder()
    decoder.admit(schema)
    decoder.admit(codes)
    with pytest.raises(TransportError, match="before its dictionary"):
        decode(codes)
    decoder.admit(dictionary)
    decoder.admit(codes)
    codes.dictionaries = {1: pa.array(["only one"])}
    with pytest.raises(TransportError):
        decode(codes)


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["a", "bb", None]), min_size=1, max_size=4), st.integers(1, 5)
        ),
        max_size=8,
    )
)
@settings(max_examples=examples(60), deadline=None)
def test_any_sequence_arrives(batches: list[tuple[list[str | None], int]]) -> None:
    channel = Channel()
    for number, (values, rows) in enumerate(batches):
        channel.send(drawn(pa.array(values, pa.string()), rows, number))

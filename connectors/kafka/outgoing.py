"""Records on their way out: where the bytes of each key, value and header are, without copying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...core.arrays import Int64s, numpy_of
from ...core.errors import TypeMismatchError

NO_PARTITION: Final = -1
"""The client chooses, by the hash of the key."""

NOW: Final = 0
"""Instead of a timestamp."""

_EMPTY: Final = np.zeros(8, dtype=np.uint8)
"""Where empty values are: their address must not be null."""

_TEXTS: Final = (pa.string(), pa.large_string(), pa.string_view())
_BYTES: Final = (pa.binary(), pa.large_binary(), pa.binary_view())


@dataclass(frozen=True)
class Outgoing:
    """Some records, in order.

    topics, topic_of: names, and of each record the index of its own. addresses, lengths: of all
    values, then of all keys, then of each of `headers`, whose names these are. held: what the
    addresses point into.
    """

    topics: tuple[str, ...]
    topic_of: Int64s
    partitions: Int64s
    timestamps: Int64s
    addresses: Int64s
    lengths: Int64s
    headers: tuple[str, ...]
    held: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.topic_of)

    def topic(self, record: int) -> str:
        return self.topics[int(self.topic_of[record])]

    def size(self, record: int) -> int:
        """Bytes of a record's key and value."""
        return int(self.lengths[record] + self.lengths[len(self) + record])


def outgoing(
    topic: str | pa.Array,
    value: pa.Array,
    key: pa.Array | None,
    headers: Mapping[str, pa.Array],
    partitions: Int64s | None,
    timestamps: Int64s | None,
) -> Outgoing:
    """Records of arrays of one length. `topic`: of all, or of each, without nulls. Values, keys and
    headers are binary or text, see `as_bytes`."""
    count = len(value)
    if isinstance(topic, str):
        topics, topic_of = (topic,), np.zeros(count, dtype=np.int64)
    else:
        coded = topic.dictionary_encode()
        topics = tuple(coded.dictionary.to_pylist())
        topic_of = numpy_of(coded.indices).astype(np.int64)
    parts = [value, pa.nulls(count) if key is None else key, *headers.values()]
    places = [_places(part) for part in parts]
    return Outgoing(
        topics,
        topic_of,
        np.full(count, NO_PARTITION, dtype=np.int64) if partitions is None else partitions,
        np.full(count, NOW, dtype=np.int64) if timestamps is None else timestamps,
        np.concatenate([addresses for addresses, _, _ in places]),
        np.concatenate([lengths for _, lengths, _ in places]),
        tuple(headers),
        tuple(held for _, _, held in places),
    )


def is_bytes(kind: pa.DataType) -> bool:
    """Whether the values of a column of this type are bytes or text as they are."""
    if pa.types.is_dictionary(kind):
        return is_bytes(kind.value_type)
    return kind in _TEXTS or kind in _BYTES or pa.types.is_fixed_size_binary(kind)


def as_bytes(column: pa.Array, what: str) -> pa.Array:
    """The column as binary, large binary, or text as these. TypeMismatchError, naming `what` wants
    it, for a type that is neither."""
    kind = column.type
    if pa.types.is_null(kind):
        return column
    if not is_bytes(kind):
        raise TypeMismatchError(
            f"{what} takes binary or text, and the column has type {kind}: encode it by "
            "StringEncoder(column), JsonEncoder() or AvroEncoder(schema)"
        )
    if pa.types.is_dictionary(kind):
        return as_bytes(column.dictionary_decode(), what)
    if kind in (pa.string_view(), pa.binary_view()) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.large_string() if kind == pa.string_view() else pa.large_binary())
    return column


def _places(column: pa.Array) -> tuple[Int64s, Int64s, Any]:
    """Of each item its address (0: null) and length; and what must live as long as these."""
    count = len(column)
    if pa.types.is_null(column.type) or column.null_count == count:
        return np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64), None
    large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    _, ends, data = column.buffers()
    every = np.frombuffer(ends, dtype=np.int64 if large else np.int32)
    offsets = every[column.offset : column.offset + count + 1].astype(np.int64)
    lengths = np.diff(offsets)
    addresses = offsets[:-1] + (0 if data is None else data.address)
    addresses[lengths == 0] = _EMPTY.ctypes.data
    if column.null_count:
        missing = numpy_of(column.is_null())
        addresses[missing] = 0
        lengths[missing] = 0
    return addresses, lengths, column

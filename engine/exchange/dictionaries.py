"""Dictionary columns on a channel: the dictionary goes once, then only codes.

A dictionary is sent ahead when it is small beside its batch, or when it comes a second time: what
a source encodes once and uses for every batch. One that changes with each batch (encoded batch by
batch) travels with its batch, cut to the values that the batch uses. Only columns that are
dictionaries themselves; one deeper within a column travels with its batch too.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

SMALL = 16 << 10
"""Bytes of a dictionary that is sent ahead at once."""

LARGEST = 1 << 20
"""Bytes of the largest that is sent ahead at all: it is not counted as in flight."""

COMPARED = 1024
"""Values up to which dictionaries in different memory are compared."""


class SentDictionaries:
    """What the receiver of one channel has, by column position."""

    __slots__ = ("_seen", "_sent")

    def __init__(self) -> None:
        self._sent: dict[int, pa.Array] = {}
        self._seen: dict[int, pa.Array] = {}
        """Those of the last batch, sent ahead or not."""

    def settled(self, data: pa.RecordBatch) -> bool:
        """Whether this batch can travel as codes, `news` having been sent before it."""
        columns = dictionary_columns(data.schema)
        if columns is None:
            return False
        found = {at: data.column(at).dictionary for at in columns}
        budget = max(SMALL, data.num_rows)
        settled = all(
            same(values, self._sent.get(at))
            or values.nbytes <= budget
            or (values.nbytes <= LARGEST and same(values, self._seen.get(at)))
            for at, values in found.items()
        )
        self._seen = found
        return settled

    def forget(self) -> None:
        """The receiver was told of other columns."""
        self._sent = {}

    def news(self, data: pa.RecordBatch) -> list[tuple[int, pa.Array]]:
        """The dictionaries that the receiver lacks for this batch; from now on it has them."""
        columns = dictionary_columns(data.schema) or []
        found = [(at, data.column(at).dictionary) for at in columns]
        news = [(at, values) for at, values in found if not same(values, self._sent.get(at))]
        self._sent.update(news)
        return news


def same(values: pa.Array, other: pa.Array | None) -> bool:
    """Whether two dictionaries are equal, as far as that can be told at little cost."""
    if other is None or len(values) != len(other) or values.type != other.type:
        return False
    if _place(values) == _place(other):
        return True
    return len(values) <= COMPARED and bool(values.equals(other))


def _place(values: pa.Array) -> tuple[Any, ...]:
    """Where its memory lies; both sides of a comparison are alive, so places are not reused."""
    addresses = (buffer.address if buffer is not None else 0 for buffer in values.buffers())
    return (values.offset, *addresses)


def dictionary_columns(schema: pa.Schema) -> list[int] | None:
    """Positions of the dictionary columns; None if a dictionary lies deeper within a column."""
    found = []
    for at, kind in enumerate(schema.types):
        if pa.types.is_dictionary(kind):
            if _has_dictionary(kind.value_type):
                return None
            found.append(at)
        elif _has_dictionary(kind):
            return None
    return found


def _has_dictionary(kind: pa.DataType) -> bool:
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return pa.types.is_dictionary(kind) or any(map(_has_dictionary, inner))


def codes(data: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with codes in place of its dictionary columns."""
    arrays = [c.indices if pa.types.is_dictionary(c.type) else c for c in data.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=code_schema(data.schema))


def code_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of `codes`."""
    return pa.schema(
        [f.with_type(f.type.index_type) if pa.types.is_dictionary(f.type) else f for f in schema]
    )


def decoded(
    coded: pa.RecordBatch, schema: pa.Schema, dictionaries: dict[int, pa.Array]
) -> pa.RecordBatch:
    """The batch of `schema` again. ValueError names a column whose dictionary is missing."""
    arrays = list(coded.columns)
    for at in dictionary_columns(schema) or []:
        if at not in dictionaries:
            raise ValueError(f"column '{schema.names[at]}' came before its dictionary")
        ordered = schema.field(at).type.ordered
        arrays[at] = pa.DictionaryArray.from_arrays(
            arrays[at], dictionaries[at], ordered=ordered, safe=True
        )
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def pack(at: int, values: pa.Array) -> bytes:
    """The payload of a DICTIONARY frame: column position (u64) and an Arrow stream."""
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([values], names=[""])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    packed: bytes = at.to_bytes(8, "little") + sink.getvalue().to_pybytes()
    return packed


def unpack(payload: Any) -> tuple[int, pa.Array]:
    """What was packed. Raises Arrow's errors, EOFError, OSError or ValueError."""
    buffer = pa.py_buffer(payload)
    with pa.ipc.open_stream(buffer.slice(8)) as reader:
        batch = reader.read_next_batch()
    batch.validate()
    return int.from_bytes(buffer.slice(0, 8), "little"), batch.column(0)

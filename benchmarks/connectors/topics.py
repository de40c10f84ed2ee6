"""What is in the topics that sources are measured on: functions of the record number, produced by
strom's own sink, since a plain Python producer would take most of a run's time."""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

import numpy as np
import polars as pl
import pyarrow as pa
from strom import JobConfig, StreamExecutionEnvironment
from strom.connectors.datagen import DataGenSource
from strom.connectors.kafka import KafkaSink

from ..streams import mix, numbers

Content = Literal["bytes", "keyed", "json"]
"""bytes: 12 digits of the record's number, filled up. keyed: the same, with a key. json: an object
of JSON, as SCHEMA says."""

JSON: Final = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("text", pa.string())])

KEYS: Final = 100_000
"""Distinct keys of keyed records, each of 12 bytes, uniformly drawn."""

DIGITS: Final = 12
_BLOCK_BYTES: Final = 2_000_000

RECORD: Final = pa.schema([("value", pa.large_binary()), ("part", pa.int32())])
KEYED: Final = pa.schema([*RECORD, pa.field("key", pa.large_string())])


def fill(
    servers: str, topic: str, content: Content, size: int, count: int, partitions: int
) -> None:
    """Records 0..count-1, dealt to the partitions in turn."""
    schema = KEYED if content == "keyed" else RECORD
    block = max(1, min(16_384, _BLOCK_BYTES // size))
    make = partial(_records, content, size, partitions)
    config = JobConfig(parallelism=1, batch_size=block)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    source = DataGenSource(make, count, splits=1, schema=schema, block=block)
    key = "key" if content == "keyed" else None
    sink = KafkaSink(servers, topic, value="value", key=key, partition="part")
    env.from_source(source).sink_to(sink)
    env.execute(f"fill {topic}")


def values(start: int, count: int, size: int) -> pa.Array:
    """`size` bytes each, at least DIGITS: the number in digits, and filling."""
    texts = np.full((count, size), ord("x"), dtype=np.uint8)
    left = numbers(start, count)
    for place in reversed(range(DIGITS)):
        texts[:, place] = (left % np.uint64(10)).astype(np.uint8) + ord("0")
        left = left // np.uint64(10)
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int64) * size)
    return pa.Array.from_buffers(pa.large_binary(), count, [None, offsets, pa.py_buffer(texts)])


def keys(start: int, count: int) -> pa.Array:
    chosen = (mix(numbers(start, count)) % np.uint64(KEYS)).astype(np.int64)
    texts = pl.Series(chosen).cast(pl.String).str.zfill(7)
    return (pl.select(pl.lit("user-") + texts).to_series()).to_arrow().cast(pa.large_string())


def objects(start: int, count: int, size: int) -> pa.Array:
    """JSON of `size` bytes each, unless the fields without text take more."""
    ids = pl.Series(np.arange(start, start + count))
    bare = pl.select(
        pl.concat_str(
            pl.lit('{"id": '),
            ids.cast(pl.String),
            pl.lit(', "price": '),
            (ids / 8).cast(pl.String),
            pl.lit(', "text": "'),
        ).alias("bare")
    )
    room = (size - 2 - pl.col("bare").str.len_bytes().cast(pl.Int64)).clip(lower_bound=0)
    filling = pl.lit("x" * size).str.slice(0, room)
    whole = bare.select(pl.concat_str("bare", filling, pl.lit('"}')))
    return whole.to_series().to_arrow().cast(pa.large_string()).cast(pa.large_binary())


def _records(
    content: Content, size: int, partitions: int, start: int, count: int
) -> pa.RecordBatch:
    made = objects(start, count, size) if content == "json" else values(start, count, size)
    part = pa.array((np.arange(start, start + count) % partitions).astype(np.int32))
    if content == "keyed":
        return pa.record_batch([made, part, keys(start, count)], schema=KEYED)
    return pa.record_batch([made, part], schema=RECORD)

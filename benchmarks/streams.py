"""Deterministic input for the benchmarks: functions of the record number, made column-wise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

WORDS = 10_000
KEYS = 1_000_000

KEY_VALUE = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """splitmix64's finaliser: a well spread 64-bit number for each number."""
    z = numbers + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def numbers(start: int, count: int) -> npt.NDArray[np.uint64]:
    return np.arange(start, start + count, dtype=np.uint64)


def key_values(start: int, count: int) -> pa.RecordBatch:
    """Uniform keys in 0..999,999 and values in 0..99."""
    random = mix(numbers(start, count))
    keys = (random % np.uint64(KEYS)).astype(np.int64)
    values = ((random >> np.uint64(40)) % np.uint64(100)).astype(np.int64)
    return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], schema=KEY_VALUE)


WORD = pa.schema([("word", pa.string())])
_WORDS = [f"word-{i:05d}" for i in range(WORDS)]
_WORD_ARRAY = pa.array(_WORDS)


def words(start: int, count: int) -> list[str]:
    """Uniformly drawn from 10,000 words, as Python strings."""
    chosen = (mix(numbers(start, count)) % np.uint64(WORDS)).tolist()
    return list(map(_WORDS.__getitem__, chosen))


def word_columns(start: int, count: int) -> pa.RecordBatch:
    """The same words as a column."""
    chosen = (mix(numbers(start, count)) % np.uint64(WORDS)).astype(np.int64)
    return pa.RecordBatch.from_arrays([_WORD_ARRAY.take(pa.array(chosen))], schema=WORD)

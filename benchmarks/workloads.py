"""All pipelines by name: two of keyed state, Nexmark, and Nexmark with Python functions."""

from __future__ import annotations

import polars as pl
from strom import DataStream, StreamExecutionEnvironment
from strom.connectors.datagen import DataGenSource

from . import references
from .nexmark.query import Query
from .nexmark.registry import NEXMARK, NEXMARK_ROWS
from .streams import KEY_VALUE, WORD, key_values, word_columns, words

BLOCK = 16_384


def wordcount(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Row path: running count of 10,000 words, every update emitted, Python function per record."""
    return (
        env.from_source(DataGenSource(words, events, block=BLOCK), source_name="words")
        .map(lambda word: (word, 1))
        .key_by(lambda pair: pair[0])
        .sum(1)
    )


def wordcount_columns(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """The same with column expressions instead of functions."""
    source = DataGenSource(word_columns, events, schema=WORD, block=BLOCK)
    ones = env.from_source(source, source_name="words").with_columns(n=pl.lit(1, pl.Int64))
    return ones.key_by("word").sum("n")


def kstate(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Keyed running sum over a million keys, every update emitted, columns."""
    source = DataGenSource(key_values, events, schema=KEY_VALUE, block=BLOCK)
    return env.from_source(source, source_name="pairs").key_by("k").sum("v")


WORKLOADS: dict[str, Query] = {
    "wordcount": Query(wordcount, references.wordcount, (), ("word", "n")),
    "wordcount_columns": Query(wordcount_columns, references.wordcount, (), ("word", "n")),
    "kstate": Query(kstate, references.kstate, (), ("k", "v"), promised=references.totals),
    **NEXMARK,
    **NEXMARK_ROWS,
}

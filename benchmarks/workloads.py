"""All pipelines by name: two of keyed state, Nexmark, and Nexmark with Python functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
from strom import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
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


class RunningSum(KeyedProcessFunction):
    """One value state, one result per record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total"))

    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int]]:
        total = (self.total.value() or 0) + value.v
        self.total.update(total)
        yield value.k, total


def kprocess(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """kstate with a KeyedProcessFunction: columns become rows, a Python call for each."""
    source = DataGenSource(key_values, events, schema=KEY_VALUE, block=BLOCK)
    return env.from_source(source, source_name="pairs").key_by("k").process(RunningSum())


WORKLOADS: dict[str, Query] = {
    "wordcount": Query(wordcount, references.wordcount, (), ("word", "n")),
    "wordcount_columns": Query(wordcount_columns, references.wordcount, (), ("word", "n")),
    "kstate": Query(kstate, references.kstate, (), ("k", "v"), promised=references.totals),
    "kprocess": Query(kprocess, references.kstate, (), ("k", "v"), promised=references.totals),
    **NEXMARK,
    **NEXMARK_ROWS,
}

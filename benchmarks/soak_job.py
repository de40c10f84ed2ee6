"""The job of `soak`, and what it has to come to, known without running it.

    clicks ─┬─ by key ─ windows of a second: how many, sum of values ──────────────── files
            └─ by key ─┐
    prices ─── by key ─┴─ each click with its key's price of its second ─ windows ─── files

Click n has the time n / rate, a key and a value drawn from n; price m is that of key m % keys from
second m / keys on. So what comes out is a function of rate, seconds and keys alone: a row for each
second and key that has a click, from either side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from strom import (
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    count,
    sum_,
)
from strom.connectors.datagen import DataGenSource
from strom.connectors.files import FileSink

from .streams import mix, numbers

Int64s = npt.NDArray[np.int64]

SECOND_MS: Final = 1000
SECOND: Final = timedelta(seconds=1)
SPLITS: Final = 4
"""Of each source: as many subtasks as it may ever have."""

VALUES: Final = np.uint64(100)
PRICES: Final = np.uint64(9)
OUTPUTS: Final = ("windows", "joined")
"""Folders of what comes out."""

CLICK: Final = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", pa.int64())])
PRICE: Final = pa.schema([("k", pa.int64()), ("price", pa.int64()), ("since", pa.int64())])


@dataclass(frozen=True)
class Input:
    """What the sources give. `rate`: clicks a second; prices are one a second of each key."""

    rate: int
    seconds: int
    keys: int

    @property
    def clicks(self) -> int:
        return self.rate * self.seconds

    @property
    def prices(self) -> int:
        return self.keys * self.seconds

    def click_columns(self, start: int, size: int) -> tuple[Int64s, Int64s, Int64s]:
        """Keys, values and times (ms)."""
        at = numbers(start, size)
        drawn = mix(at)
        keys = (drawn % np.uint64(self.keys)).astype(np.int64)
        values = ((drawn >> np.uint64(40)) % VALUES).astype(np.int64)
        return keys, values, at.astype(np.int64) * SECOND_MS // self.rate

    def price_columns(self, start: int, size: int) -> tuple[Int64s, Int64s, Int64s]:
        """Keys, prices and times (ms)."""
        at = numbers(start, size)
        prices = (mix(~at) % PRICES).astype(np.int64) + 1
        seconds, keys = np.divmod(at.astype(np.int64), self.keys)
        return keys, prices, seconds * SECOND_MS


def click_records(given: Input, start: int, size: int) -> pa.RecordBatch:
    return _batch(CLICK, *given.click_columns(start, size))


def price_records(given: Input, start: int, size: int) -> pa.RecordBatch:
    return _batch(PRICE, *given.price_columns(start, size))


def _batch(schema: pa.Schema, *columns: Int64s) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(one) for one in columns], schema=schema)


def build(env: StreamExecutionEnvironment, given: Input, folder: str | Path) -> None:
    """The job, with its output in the folders `OUTPUTS` below `folder`, a path or URL."""
    in_order = WatermarkStrategy.for_monotonous_timestamps()
    make_clicks, make_prices = partial(click_records, given), partial(price_records, given)
    click = DataGenSource(make_clicks, given.clicks, SPLITS, given.rate, CLICK)
    price = DataGenSource(make_prices, given.prices, SPLITS, given.keys, PRICE)
    clicks = env.from_source(click, in_order.with_timestamp_assigner("at"), "clicks").uid("clicks")
    prices = env.from_source(price, in_order.with_timestamp_assigner("since"), "prices")
    by_key = clicks.key_by("k")
    second = TumblingEventTimeWindows.of(SECOND)
    windows = by_key.window(second).aggregate(n=count(), total=sum_("v")).uid("windows")
    last = timedelta(milliseconds=SECOND_MS - 1)
    pairs = prices.uid("prices").key_by("k").interval_join(by_key, timedelta(0), last).uid("pairs")
    worth = pairs.select("k", worth=pl.col("price") * pl.col("v")).key_by("k").window(second)
    joined = worth.aggregate(n=count(), total=sum_("worth")).uid("joined")
    for name, stream in zip(OUTPUTS, (windows, joined), strict=True):
        stream.sink_to(FileSink(f"{folder}/{name}")).name(f"{name} to files").uid(
            f"{name} to files"
        )


@dataclass(frozen=True)
class Expected:
    """Of each output, second and key: how many clicks there are, and their sum. Where there are
    none there is no row."""

    n: Int64s
    total: Int64s
    """Of the shape (outputs, seconds, keys)."""

    @classmethod
    def of(cls, given: Input) -> Expected:
        """Made second by second."""
        shape = len(OUTPUTS), given.seconds, given.keys
        n, total = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for second, keys, values, prices in _seconds(given):
            n[:, second] = np.bincount(keys, minlength=given.keys)
            for output, weights in enumerate((values, values * prices[keys])):
                sums = np.bincount(keys, weights, given.keys)
                total[output, second] = sums.astype(np.int64)
        return cls(n, total)

    @property
    def rows(self) -> int:
        return int(np.count_nonzero(self.n))

    @property
    def checksum(self) -> int:
        """Of all rows, whatever their order."""
        at = np.nonzero(self.n)
        return checksum(*at, self.n[at], self.total[at])


def _seconds(given: Input) -> Iterator[tuple[int, Int64s, Int64s, Int64s]]:
    """Each with the keys and values of its clicks, and all keys' prices."""
    for second in range(given.seconds):
        keys, values, _ = given.click_columns(second * given.rate, given.rate)
        yield second, keys, values, given.price_columns(second * given.keys, given.keys)[1]


def checksum(*columns: Any) -> int:
    """Of rows in any order, from 0 to 2**64 - 1. Of the columns of one part after the other it is
    the sum of theirs."""
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        found = mix(found ^ np.asarray(column).astype(np.int64).view(np.uint64))
    return int(found.sum(dtype=np.uint64))

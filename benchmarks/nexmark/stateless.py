"""Queries that look at one bid at a time: q0 q1 q2 q10 q14 q21 q22.

Differences to the SQL texts: prices in euro are float64 where those are DECIMAL(23, 3).
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import polars as pl
import pyarrow.parquet as pq
from strom import DataStream, Sink, StreamExecutionEnvironment
from strom.connectors.files import ParquetSink

from .events import bids
from .query import Rows

EURO = 0.908
BID = ("auction", "bidder", "price", "dateTime", "extra")
CHANNEL_ID = r"(&|^)channel_id=([^&]*)"
CHANNELS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


def q0(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Pass through: what reading the bids costs."""
    return bids(env, events).select(*BID)


def q1(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Currency: each bid with its price in euro."""
    euro = (pl.col("price") * EURO).alias("price")
    return bids(env, events).select("auction", "bidder", euro, "dateTime", "extra")


def q2(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Selection: the bids on every 123rd auction."""
    return bids(env, events).filter(pl.col("auction") % 123 == 0).select("auction", "price")


def q10(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Log to files: each bid with its day and minute, which are the folders of `log_files`."""
    return bids(env, events).select(
        *BID,
        day=pl.col("dateTime").dt.strftime("%Y-%m-%d"),
        minute=pl.col("dateTime").dt.strftime("%H:%M"),
    )


def log_files(folder: str) -> Sink:
    """Parquet in `folder`/day=.../minute=..., published by checkpoints."""
    return ParquetSink(folder, partition_by=("day", "minute"))


def read_log(folder: str) -> Rows:
    """The bids in such files, with their folders' day and minute."""
    for path in sorted(Path(folder).glob("day=*/minute=*/*.parquet")):
        labels = [unquote(part.name.split("=", 1)[1]) for part in (path.parents[1], path.parent)]
        for row in pq.ParquetFile(path).read().to_pylist():
            yield (*row.values(), *labels)


def q14(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Calculation: bids of 1 to 50 million euro, by time of day, with the number of c in extra."""
    hour = pl.col("dateTime").dt.hour()
    day = hour.is_between(8, 18)
    night = (hour <= 6) | (hour >= 20)
    label = pl.when(day).then(pl.lit("dayTime")).when(night).then(pl.lit("nightTime"))
    euro = pl.col("price") * EURO
    return (
        bids(env, events)
        .filter(euro > 1_000_000, euro < 50_000_000)
        .select(
            "auction",
            "bidder",
            euro.alias("price"),
            label.otherwise(pl.lit("otherTime")).alias("bidTimeType"),
            "dateTime",
            "extra",
            c_counts=pl.col("extra").str.count_matches("c", literal=True).cast(pl.Int64),
        )
    )


def q21(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Channel id: of four channels by name, of others from the URL; bids without are left out."""
    named = pl.col("channel").str.to_lowercase().replace_strict(CHANNELS, default=None)
    found = pl.col("url").str.extract(CHANNEL_ID, 2)
    return (
        bids(env, events)
        .select("auction", "bidder", "price", "channel", channel_id=pl.coalesce(named, found))
        .filter(pl.col("channel_id").is_not_null())
    )


def q22(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Folders: three parts of the URL's path."""
    parts = pl.col("url").str.split_exact("/", 5)
    folders = {f"dir{i}": parts.struct.field(f"field_{i + 2}") for i in (1, 2, 3)}
    return bids(env, events).select("auction", "bidder", "price", "channel", **folders)

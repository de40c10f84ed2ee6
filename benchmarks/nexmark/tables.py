"""Tables kept up to date, as changelogs: q15 q16 q17 q18 q19.

Differences to the SQL texts: the day is a date where those format it as text, q17's average is
float64 where AVG of integers is an integer. q19 puts the earlier of equal prices first. Other ties
are left to the order of arrival, as the texts do.
"""

from __future__ import annotations

from typing import Any

import polars as pl
from strom import (
    Aggregate,
    DataStream,
    StreamExecutionEnvironment,
    count,
    count_distinct,
    max_,
    mean,
    min_,
    sum_,
)
from strom.core.row_kind import ROW_KIND

from .events import bids

PRICE = pl.col("price")
RANKS = (PRICE < 10_000, (PRICE >= 10_000) & (PRICE < 1_000_000), PRICE >= 1_000_000)
DAY = pl.col("dateTime").dt.date().alias("day")


def by_rank(name: str, aggregate: Aggregate) -> dict[str, Any]:
    """The aggregate over all bids, and over those of each rank of price."""
    ranks = {f"rank{i}_{name}": aggregate.where(rank) for i, rank in enumerate(RANKS, 1)}
    return {f"total_{name}": aggregate, **ranks}


def statistics() -> dict[str, Any]:
    """Bids, distinct bidders and distinct auctions."""
    return {
        **by_rank("bids", count()),
        **by_rank("bidders", count_distinct("bidder")),
        **by_rank("auctions", count_distinct("auction")),
    }


def q15(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Bidding statistics per day: bids, distinct bidders and auctions by rank of price."""
    return (
        bids(env, events)
        .select("auction", "bidder", "price", DAY)
        .key_by("day")
        .aggregate(**statistics())
    )


def q16(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """The same per channel and day, with the last minute."""
    return (
        bids(env, events)
        .select("auction", "bidder", "price", "channel", "dateTime", DAY)
        .key_by("channel", "day")
        .aggregate(latest=max_("dateTime"), **statistics())
        .select(
            "channel",
            "day",
            pl.col("latest").dt.strftime("%H:%M").alias("minute"),
            *statistics(),
            ROW_KIND,
        )
    )


def q17(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Auction statistics per day: bids by rank of price; least, greatest, mean and sum of them."""
    return (
        bids(env, events)
        .select("auction", "price", DAY)
        .key_by("auction", "day")
        .aggregate(
            **by_rank("bids", count()),
            min_price=min_("price"),
            max_price=max_("price"),
            avg_price=mean("price"),
            sum_price=sum_("price"),
        )
    )


def q18(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Last bid of each bidder on each auction."""
    return bids(env, events).key_by("bidder", "auction").deduplicate("last", order_by="dateTime")


def q19(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """The ten highest bids of each auction, with their ranks."""
    best = [("price", "desc"), "dateTime"]
    return bids(env, events).key_by("auction").top_n(10, best, rank="rank_number")

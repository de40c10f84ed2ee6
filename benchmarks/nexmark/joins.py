"""Queries over two or three streams: q3 q4 q6 q9 q13 q20 q23.

Differences to the SQL texts: q4's average is float64 where AVG of integers is an integer. q6 takes
the last ten sales of a seller in order of the auctions' ends, once they have ended; the text orders
by the winning bids' times, takes eleven rows, and retracts. q13's side input is a bounded stream,
read and broadcast before the first bid is joined, where the text looks up a file. q23 joins the two
small streams first, so that it keeps each bid once.
"""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pyarrow as pa
from strom import (
    DataStream,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    max_,
    mean,
)

from .events import auctions, bids, longest_auction, persons

SIDE_ROWS = 10_000
BID_COLUMNS = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
PERSON = ("name", "emailAddress", "creditCard", "city", "state")
ITEM = ("itemName", "description", "initialBid", "reserve")
BID_AS = {"bid_dateTime": "dateTime", "bid_extra": "extra"}
WHILE_OPEN = pl.col("bid_dateTime").is_between(pl.col("dateTime"), pl.col("expires"))
SECOND = timedelta(seconds=1)


def q3(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Local items: auctions of category 10 whose sellers live in Oregon, Idaho or California."""
    near = persons(env, events).filter(pl.col("state").is_in(["OR", "ID", "CA"]))
    people = near.select("name", "city", "state", seller="id")
    chosen = auctions(env, events).filter(pl.col("category") == 10).select("id", "seller")
    return (
        chosen.key_by("seller").join(people.key_by("seller")).select("name", "city", "state", "id")
    )


def q4(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Average price: per category, of the highest bids of its auctions; a changelog."""
    opened = auctions(env, events).select("id", "category", "dateTime", "expires")
    offered = bids(env, events).select("price", id="auction", bid_dateTime="dateTime")
    return (
        opened.key_by("id")
        .join(offered.key_by("id"), where=WHILE_OPEN)
        .select("id", "category", "price")
        .key_by("id", "category")
        .aggregate(final=max_("price"))
        .key_by("category")
        .aggregate(price=mean("final"))
    )


def q6(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Average selling price: with each sale, of its seller's last ten."""
    opened = auctions(env, events).select("id", "seller", "dateTime", "expires")
    offered = bids(env, events).select("price", id="auction", bid_dateTime="dateTime")
    in_order = WatermarkStrategy.for_bounded_out_of_orderness(SECOND)
    return (
        opened.key_by("id")
        .interval_join(offered.key_by("id"), timedelta(0), longest_auction())
        .filter(pl.col("bid_dateTime") <= pl.col("expires"))
        .select("seller", "id", "price", "expires")
        .with_event_time("expires")
        .key_by("id")
        .window(TumblingEventTimeWindows.of(SECOND))
        .max_by("price")
        .select("seller", "id", "price", "expires")
        .assign_timestamps_and_watermarks(in_order.with_timestamp_assigner("expires"))
        .key_by("seller")
        .over(rows=10)
        .aggregate(mean=mean("price"))
        .select("seller", "id", "price", "expires", "mean")
    )


def q9(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Winning bids: each auction with its highest bid, the earliest of equals; a changelog."""
    offered = bids(env, events).select("auction", "bidder", "price", **BID_AS)
    return (
        auctions(env, events)
        .key_by("id")
        .join(offered.key_by("auction"), where=WHILE_OPEN)
        .key_by("id")
        .top_n(1, [("price", "desc"), "bid_dateTime"])
    )


def side_input(env: StreamExecutionEnvironment) -> DataStream:
    """A value for each remainder of an auction's id."""
    keys = range(SIDE_ROWS)
    table = pa.table({"key": pa.array(keys), "value": [f"value-{key}" for key in keys]})
    return env.from_collection(table)


def q13(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Bounded side input: each bid with the value of its auction's remainder."""
    columns = ("auction", "bidder", "price", "dateTime")
    return (
        bids(env, events)
        .select(*columns, key=pl.col("auction") % SIDE_ROWS)
        .broadcast_join(side_input(env), on="key")
        .select(*columns, "value")
    )


def q20(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Expanded bids: each bid on an auction of category 10 with that auction."""
    chosen = auctions(env, events).filter(pl.col("category") == 10)
    return (
        bids(env, events)
        .key_by("auction")
        .join(chosen.key_by("id"))
        .select(
            *BID_COLUMNS, *ITEM, "dateTime_right", "expires", "seller", "category", "extra_right"
        )
    )


def q23(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Bidders who sell: each bid with its bidder and with each auction that the bidder opened."""
    bid = bids(env, events).select("bidder", "price", "channel", "url", bid_extra="extra")
    person = persons(env, events).select("id", *PERSON, person_extra="extra")
    opened = auctions(env, events).select(
        *ITEM, "dateTime", "expires", "seller", "category", auction_extra="extra"
    )
    sellers = person.key_by("id").join(opened.key_by("seller"))
    return bid.key_by("bidder").join(sellers.key_by("id"))

"""Queries over windows of time: q5 q7 q7c q8 q11 q12.

Differences to the SQL texts: q5 also gives the window's end. q7 compares a bid with the maximum
of its own window; BETWEEN in the text lets a bid in that comes exactly at the end of a window with
the same maximum. q8 is a semi join: each person once per window, as GROUP BY in the text has it.
"""

from __future__ import annotations

from datetime import timedelta

from strom import (
    DataStream,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    count,
)

from .events import auctions, bids, persons

TEN_SECONDS = timedelta(seconds=10)


def q5(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Hot items: every 2 s, the auctions with the most bids in the last 10 s."""
    return (
        bids(env, events)
        .select("auction")
        .key_by("auction")
        .window(SlidingEventTimeWindows.of(TEN_SECONDS, timedelta(seconds=2)))
        .aggregate(num=count())
        .select("auction", "num", end="window_end")
        .key_by("end")
        .window(TumblingEventTimeWindows.of(timedelta(seconds=2)))
        .max_by("num", ties=True)
        .select("auction", "num", "end")
    )


def q7(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Highest bid: every 10 s, the bids at the highest price."""
    columns = ("auction", "price", "bidder", "dateTime", "extra")
    return (
        bids(env, events)
        .select(*columns)
        .window_all(TumblingEventTimeWindows.of(TEN_SECONDS))
        .max_by("price", ties=True)
        .select(*columns)
    )


def q7c(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Bids per auction and 10 s."""
    return (
        bids(env, events)
        .select("auction")
        .key_by("auction")
        .window(TumblingEventTimeWindows.of(TEN_SECONDS))
        .aggregate(num=count())
        .select("auction", "num", "window_end")
    )


def q8(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """New sellers: persons who open an auction in the 10 s in which they came."""
    sellers = auctions(env, events).select("seller").key_by("seller")
    return (
        persons(env, events)
        .select("id", "name")
        .key_by("id")
        .window_join(sellers, TumblingEventTimeWindows.of(TEN_SECONDS), how="semi")
        .select("id", "name", "window_start")
    )


def q11(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """User sessions: bids of a bidder with at most 10 s from one to the next."""
    return (
        bids(env, events)
        .select("bidder")
        .key_by("bidder")
        .window(EventTimeSessionWindows.with_gap(TEN_SECONDS))
        .aggregate(bid_count=count())
        .select("bidder", "bid_count", "window_start", "window_end")
    )


def q12(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Bids per bidder and 10 s of processing time."""
    return (
        bids(env, events)
        .select("bidder")
        .key_by("bidder")
        .window(TumblingProcessingTimeWindows.of(TEN_SECONDS))
        .aggregate(bid_count=count())
        .select("bidder", "bid_count", "window_start", "window_end")
    )

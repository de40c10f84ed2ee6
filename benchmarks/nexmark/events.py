"""The Nexmark streams as the queries read them: persons, auctions and bids of one stream.

Every source counts the events of the whole stream and makes those of its kind, every column.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from strom import DataStream, StreamExecutionEnvironment, WatermarkStrategy
from strom.connectors.datagen import NexmarkSource

Kind = Literal["person", "auction", "bid"]

NEXMARK_TIME = WatermarkStrategy.for_bounded_out_of_orderness(
    timedelta(seconds=4)
).with_timestamp_assigner("dateTime")


@dataclass(frozen=True)
class Shape:
    """rate: events per second of event time. The others are `NexmarkSource`'s."""

    rate: int = 10_000
    out_of_order_group: int = 1
    block: int = 500


SHAPE = Shape()
"""Of every stream here; tests replace it by few events over much time, out of order."""

AUCTION_EVENTS = 1_666
"""Half of the longest auction, in events."""


def source(kind: Kind, events: int) -> NexmarkSource:
    """The events of one kind among the first `events`."""
    return NexmarkSource(
        events,
        rate=SHAPE.rate,
        out_of_order_group=SHAPE.out_of_order_group,
        block=SHAPE.block,
        kind=kind,
    )


def persons(env: StreamExecutionEnvironment, events: int) -> DataStream:
    return env.from_source(source("person", events), NEXMARK_TIME, "persons")


def auctions(env: StreamExecutionEnvironment, events: int) -> DataStream:
    return env.from_source(source("auction", events), NEXMARK_TIME, "auctions")


def bids(env: StreamExecutionEnvironment, events: int) -> DataStream:
    return env.from_source(source("bid", events), NEXMARK_TIME, "bids")


def longest_auction() -> timedelta:
    """No auction expires later than this after it opened."""
    return timedelta(milliseconds=2 * AUCTION_EVENTS * 1000 // SHAPE.rate + 2)

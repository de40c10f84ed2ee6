"""The Nexmark streams as the queries read them: persons, auctions and bids of one stream.

Split (the default), each kind has a source of its own, which counts the events of the whole stream
and makes those of its kind. Whole, one source makes all three as one stream of several kinds, of
which each query takes its own, as the views of the suite's SQL do. Every column is made either way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal
from weakref import WeakKeyDictionary

from strom import DataStream, StreamExecutionEnvironment, WatermarkStrategy
from strom.connectors.datagen import NexmarkSource

Kind = Literal["person", "auction", "bid"]

NEXMARK_TIME = WatermarkStrategy.for_bounded_out_of_orderness(
    timedelta(seconds=4)
).with_timestamp_assigner("dateTime")


@dataclass(frozen=True)
class Shape:
    """rate: events per second of event time. whole: one source for all kinds, whose strings are
    views. The others are `NexmarkSource`'s."""

    rate: int = 10_000
    out_of_order_group: int = 1
    block: int = 500
    whole: bool = False


SHAPE = Shape()
"""Of every stream here; tests replace it by few events over much time, out of order."""

AUCTION_EVENTS = 1_666
"""Half of the longest auction, in events."""


_WHOLE: WeakKeyDictionary[StreamExecutionEnvironment, DataStream] = WeakKeyDictionary()
"""The whole stream of a job, for all its readers."""


@contextmanager
def whole_stream(whole: bool = True) -> Iterator[None]:
    """Queries built in this context read the whole stream."""
    global SHAPE
    before = SHAPE
    SHAPE = replace(before, whole=whole)
    try:
        yield
    finally:
        SHAPE = before


def source(kind: Kind | Literal["all"], events: int) -> NexmarkSource:
    """The events of one kind, or of all, among the first `events`."""
    return NexmarkSource(
        events,
        rate=SHAPE.rate,
        out_of_order_group=SHAPE.out_of_order_group,
        block=SHAPE.block,
        kind=kind,
        strings="string_view" if SHAPE.whole else "string",
    )


def persons(env: StreamExecutionEnvironment, events: int) -> DataStream:
    return stream(env, events, "person")


def auctions(env: StreamExecutionEnvironment, events: int) -> DataStream:
    return stream(env, events, "auction")


def bids(env: StreamExecutionEnvironment, events: int) -> DataStream:
    return stream(env, events, "bid")


def stream(env: StreamExecutionEnvironment, events: int, kind: Kind) -> DataStream:
    """The events of one kind, at their times."""
    if not SHAPE.whole:
        return env.from_source(source(kind, events), NEXMARK_TIME, f"{kind}s")
    if env not in _WHOLE:
        _WHOLE[env] = env.from_source(source("all", events), NEXMARK_TIME, "events")
    return _WHOLE[env].of_kind(kind)


def longest_auction() -> timedelta:
    """No auction expires later than this after it opened."""
    return timedelta(milliseconds=2 * AUCTION_EVENTS * 1000 // SHAPE.rate + 2)

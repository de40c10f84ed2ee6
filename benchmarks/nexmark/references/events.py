"""The events as dicts, in order of their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from .. import events as streams

CHUNK = 50_000
"""Events made at once."""

Event = dict[str, Any]


def bids(events: int) -> Iterator[Event]:
    return _made("bid", events)


def auctions(events: int) -> Iterator[Event]:
    return _made("auction", events)


def persons(events: int) -> Iterator[Event]:
    return _made("person", events)


def milliseconds(time: datetime) -> int:
    """Since the epoch."""
    since: timedelta = time - datetime(1970, 1, 1)
    return since // timedelta(milliseconds=1)


def chunks(events: int) -> Iterator[tuple[int, int]]:
    """(first number, how many)"""
    for start in range(0, events, CHUNK):
        yield start, min(CHUNK, events - start)


def _made(kind: streams.Kind, events: int) -> Iterator[Event]:
    source = streams.source(kind, events)
    generate = source.generator()
    for start, count in chunks(events):
        yield from (row.as_dict() for row in generate([(start, count)]).rows())

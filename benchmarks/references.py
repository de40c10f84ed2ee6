"""What each workload must give, computed the slow and obvious way: plain Python, same events.

The events are the source's own (`nexmark` tests say that they are right); everything behind it is
done again here, record by record, without windows, watermarks, batches or kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from strom.connectors.datagen import NexmarkSource

from .streams import key_values, words

CHUNK = 50_000
"""Events made at once."""

Rows = Iterable[tuple[Any, ...]]


def bids(events: int) -> Iterator[dict[str, Any]]:
    """The bids among `events` Nexmark events, in order."""
    generate = NexmarkSource(events).generator()
    for start, count in _chunks(events):
        yield from (row.as_dict() for row in generate([(start, count)]).rows())


def milliseconds(bid: dict[str, Any]) -> int:
    """Its time, ms since the epoch."""
    since: timedelta = bid["dateTime"] - datetime(1970, 1, 1)
    return since // timedelta(milliseconds=1)


def q0(events: int) -> Rows:
    return (tuple(bid.values()) for bid in bids(events))


def q1(events: int) -> Rows:
    return (tuple({**bid, "price": bid["price"] * 0.908}.values()) for bid in bids(events))


def q2(events: int) -> Rows:
    for bid in bids(events):
        if bid["auction"] % 123 == 0:
            yield bid["auction"], bid["price"]


def q5(events: int) -> Rows:
    """Auctions with the most bids of each 10 s, every 2 s; all of them on a tie."""
    counts: dict[int, dict[int, int]] = {}
    for bid in bids(events):
        time = milliseconds(bid)
        first_end = time - time % 2_000 + 2_000
        for end in range(first_end, first_end + 10_000, 2_000):
            window = counts.setdefault(end, {})
            window[bid["auction"]] = window.get(bid["auction"], 0) + 1
    for end, window in counts.items():
        most = max(window.values())
        yield from ((auction, n, end) for auction, n in window.items() if n == most)


def q7(events: int) -> Rows:
    """The bids at the highest price of each 10 s; all of them on a tie."""
    highest: dict[int, list[dict[str, Any]]] = {}
    for bid in bids(events):
        held = highest.setdefault(milliseconds(bid) // 10_000, [])
        if held and bid["price"] > held[0]["price"]:
            held.clear()
        if not held or bid["price"] == held[0]["price"]:
            held.append(bid)
    columns = ("auction", "price", "bidder", "dateTime", "extra")
    return (tuple(bid[c] for c in columns) for held in highest.values() for bid in held)


def wordcount(events: int) -> Rows:
    """Each word with 1, 2, ... up to its number."""
    counts: dict[str, int] = {}
    for start, count in _chunks(events):
        for word in words(start, count):
            counts[word] = counts.get(word, 0) + 1
            yield word, counts[word]


def kstate(events: int) -> Rows:
    """Each key with its running sum, the records in order of their numbers."""
    sums: dict[int, int] = {}
    for start, count in _chunks(events):
        for pair in key_values(start, count).to_pylist():
            sums[pair["k"]] = sums.get(pair["k"], 0) + pair["v"]
            yield pair["k"], sums[pair["k"]]


def totals(rows: Rows) -> Rows:
    """Per key how many sums there were, and the greatest: the values are not negative.

    With several source subtasks the records of one key come in no particular order, so that the
    sums on the way to the total may be others in each run.
    """
    found: dict[Any, tuple[int, int]] = {}
    for key, running in rows:
        n, greatest = found.get(key, (0, 0))
        found[key] = (n + 1, max(greatest, running))
    return ((key, *held) for key, held in found.items())


@dataclass(frozen=True)
class Reference:
    """`rows`: the whole output, from a number of events. `promised`: what of an output is the same
    in every run at any parallelism."""

    rows: Callable[[int], Rows]
    promised: Callable[[Rows], Rows] = lambda rows: rows


REFERENCES: dict[str, Reference] = {
    "wordcount": Reference(wordcount),
    "kstate": Reference(kstate, totals),
    "q0": Reference(q0),
    "q1": Reference(q1),
    "q2": Reference(q2),
    "q5": Reference(q5),
    "q7": Reference(q7),
}
"""By the workload's name."""


def _chunks(events: int) -> Iterator[tuple[int, int]]:
    """(first number, how many)"""
    for start in range(0, events, CHUNK):
        yield start, min(CHUNK, events - start)

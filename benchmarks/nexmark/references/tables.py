"""q15 .. q19: tables kept up to date, as they are at the end of the stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ..query import Rows
from .events import Event, bids


def rank(price: int) -> int:
    return 1 if price < 10_000 else 2 if price < 1_000_000 else 3


def statistics(group: Iterable[Event]) -> tuple[int, ...]:
    """Bids, distinct bidders, distinct auctions; each of all, then of ranks 1, 2 and 3."""
    found: list[int] = []
    mine = [(bid, rank(bid["price"])) for bid in group]
    for column in (None, "bidder", "auction"):
        for wanted in ((1, 2, 3), (1,), (2,), (3,)):
            values = [
                bid[column] if column else i for i, (bid, r) in enumerate(mine) if r in wanted
            ]
            found.append(len(set(values)))
    return tuple(found)


def q15(events: int) -> Rows:
    days: dict[object, list[Event]] = defaultdict(list)
    for bid in bids(events):
        days[bid["dateTime"].date()].append(bid)
    return ((day, *statistics(group)) for day, group in days.items())


def q16(events: int) -> Rows:
    groups: dict[tuple[str, object], list[Event]] = defaultdict(list)
    for bid in bids(events):
        groups[bid["channel"], bid["dateTime"].date()].append(bid)
    for (channel, day), group in groups.items():
        minute = max(bid["dateTime"].strftime("%H:%M") for bid in group)
        yield (channel, day, minute, *statistics(group))


def q17(events: int) -> Rows:
    groups: dict[tuple[int, object], list[int]] = defaultdict(list)
    for bid in bids(events):
        groups[bid["auction"], bid["dateTime"].date()].append(bid["price"])
    for (auction, day), prices in groups.items():
        ranks = [sum(rank(price) == wanted for price in prices) for wanted in (1, 2, 3)]
        mean = sum(prices) / len(prices)
        yield auction, day, len(prices), *ranks, min(prices), max(prices), mean, sum(prices)


def q18(events: int) -> Rows:
    """The last in event time; of equals the last in the stream."""
    last: dict[tuple[int, int], Event] = {}
    for bid in bids(events):
        key = bid["bidder"], bid["auction"]
        if key not in last or bid["dateTime"] >= last[key]["dateTime"]:
            last[key] = bid
    return (tuple(bid.values()) for bid in last.values())


def q19(events: int) -> Rows:
    """The ten highest, the earliest of equals first, each with its rank from 1."""
    groups: dict[int, list[Event]] = defaultdict(list)
    for bid in bids(events):
        groups[bid["auction"]].append(bid)
    for group in groups.values():
        group.sort(key=lambda bid: (-bid["price"], bid["dateTime"]))
        yield from ((*bid.values(), number) for number, bid in enumerate(group[:10], 1))

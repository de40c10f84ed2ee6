"""q5 q7 q7c q8 q11 q12: windows as plain dictionaries."""

from __future__ import annotations

from collections import Counter, defaultdict

from ..query import Rows
from .events import Event, auctions, bids, milliseconds, persons

SIZE = 10_000
"""Of all windows here, ms."""


def q5(events: int) -> Rows:
    """Auctions with the most bids of each 10 s, every 2 s; all of them on a tie."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for bid in bids(events):
        time = milliseconds(bid["dateTime"])
        first_end = time - time % 2_000 + 2_000
        for end in range(first_end, first_end + SIZE, 2_000):
            counts[end][bid["auction"]] += 1
    for end, window in counts.items():
        most = max(window.values())
        yield from ((auction, n, end) for auction, n in window.items() if n == most)


def q7(events: int) -> Rows:
    """The bids at the highest price of each 10 s; all of them on a tie."""
    highest: dict[int, list[Event]] = {}
    for bid in bids(events):
        held = highest.setdefault(milliseconds(bid["dateTime"]) // SIZE, [])
        if held and bid["price"] > held[0]["price"]:
            held.clear()
        if not held or bid["price"] == held[0]["price"]:
            held.append(bid)
    columns = ("auction", "price", "bidder", "dateTime", "extra")
    return (tuple(bid[c] for c in columns) for held in highest.values() for bid in held)


def q7c(events: int) -> Rows:
    counts: Counter[tuple[int, int]] = Counter()
    for bid in bids(events):
        counts[bid["auction"], milliseconds(bid["dateTime"]) // SIZE] += 1
    return ((auction, n, (window + 1) * SIZE) for (auction, window), n in counts.items())


def q8(events: int) -> Rows:
    sellers = {(a["seller"], milliseconds(a["dateTime"]) // SIZE) for a in auctions(events)}
    for person in persons(events):
        window = milliseconds(person["dateTime"]) // SIZE
        if (person["id"], window) in sellers:
            yield person["id"], person["name"], window * SIZE


def q11(events: int) -> Rows:
    """A session ends where the next bid comes more than 10 s later."""
    times: dict[int, list[int]] = defaultdict(list)
    for bid in bids(events):
        times[bid["bidder"]].append(milliseconds(bid["dateTime"]))
    for bidder, moments in times.items():
        moments.sort()
        start, n = moments[0], 0
        for i, time in enumerate(moments):
            n += 1
            if i + 1 == len(moments) or moments[i + 1] - time > SIZE:
                yield bidder, n, start, time + SIZE
                if i + 1 < len(moments):
                    start, n = moments[i + 1], 0


def q12(events: int) -> Rows:
    """All bids of a bidder as one window: when they came is not in the events."""
    counts = Counter(bid["bidder"] for bid in bids(events))
    return ((bidder, n, 0, SIZE) for bidder, n in counts.items())


def bids_per_bidder(rows: Rows) -> Rows:
    """What q12 promises: the counts of all windows of a bidder, added up."""
    totals: Counter[int] = Counter()
    for bidder, n, *_ in rows:
        totals[bidder] += n
    return iter(totals.items())

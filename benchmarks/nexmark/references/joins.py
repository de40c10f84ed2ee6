"""q3 q4 q6 q9 q13 q20 q23: joins as loops over dictionaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby

from ..query import Rows
from .events import Event, auctions, bids, persons

SIDE_ROWS = 10_000


def q3(events: int) -> Rows:
    people = {person["id"]: person for person in persons(events)}
    for auction in auctions(events):
        person = people.get(auction["seller"])
        if auction["category"] == 10 and person and person["state"] in ("OR", "ID", "CA"):
            yield person["name"], person["city"], person["state"], auction["id"]


def offers(events: int) -> Iterator[tuple[Event, Event]]:
    """Each auction with each of its bids that came while it was open."""
    by_id = {auction["id"]: auction for auction in auctions(events)}
    for bid in bids(events):
        auction = by_id.get(bid["auction"])
        if auction and auction["dateTime"] <= bid["dateTime"] <= auction["expires"]:
            yield auction, bid


def winners(events: int) -> list[tuple[Event, Event]]:
    """Each auction with its highest bid, the earliest of equals."""
    best: dict[int, tuple[Event, Event]] = {}
    for auction, bid in offers(events):
        held = best.get(auction["id"])
        if held is None or (-bid["price"], bid["dateTime"]) < (
            -held[1]["price"],
            held[1]["dateTime"],
        ):
            best[auction["id"]] = auction, bid
    return list(best.values())


def q4(events: int) -> Rows:
    finals: dict[int, list[int]] = defaultdict(list)
    for auction, bid in winners(events):
        finals[auction["category"]].append(bid["price"])
    return ((category, sum(prices) / len(prices)) for category, prices in finals.items())


def q6(events: int) -> Rows:
    """With each auction's end, its seller's mean over the last ten winning prices up to there."""
    sold: dict[int, list[tuple[Event, Event]]] = defaultdict(list)
    for auction, bid in winners(events):
        sold[auction["seller"]].append((auction, bid))
    for seller, sales in sold.items():
        sales.sort(key=lambda sale: sale[0]["expires"])
        prices = [bid["price"] for _, bid in sales]
        for i, (auction, bid) in enumerate(sales):
            last = prices[max(0, i - 9) : i + 1]
            mean = sum(last) / len(last)
            yield seller, auction["id"], bid["price"], auction["expires"], mean


def means_without_ties(rows: Rows) -> Rows:
    """What q6 promises: every sale, and its mean unless that depends on the order of auctions of
    one seller that end in the same millisecond (None then)."""
    for _, mine in groupby(sorted(rows), key=lambda row: row[0]):
        before: list[
            int
        ] = []  # how many sales there are up to each distinct end, that one excluded
        sales = 0
        for _, tied in groupby(sorted(mine, key=lambda row: row[3]), key=lambda row: row[3]):
            group = list(tied)
            before.append(sales)
            sales += len(group)
            clear = len(group) == 1 and (sales <= 10 or sales - 10 in before)
            yield from ((*row[:4], row[4] if clear else None) for row in group)


def q9(events: int) -> Rows:
    for auction, bid in winners(events):
        columns = ("auction", "bidder", "price", "dateTime", "extra")
        yield (*auction.values(), *(bid[c] for c in columns))


def q13(events: int) -> Rows:
    for bid in bids(events):
        value = f"value-{bid['auction'] % SIDE_ROWS}"
        yield bid["auction"], bid["bidder"], bid["price"], bid["dateTime"], value


def q20(events: int) -> Rows:
    by_id = {a["id"]: a for a in auctions(events) if a["category"] == 10}
    for bid in bids(events):
        auction = by_id.get(bid["auction"])
        if auction is not None:
            yield (*bid.values(), *(v for name, v in auction.items() if name != "id"))


def q23(events: int) -> Rows:
    people = {person["id"]: person for person in persons(events)}
    opened: dict[int, list[Event]] = defaultdict(list)
    for auction in auctions(events):
        opened[auction["seller"]].append(auction)
    for bid in bids(events):
        person = people.get(bid["bidder"])
        if person is None:
            continue
        for auction in opened[bid["bidder"]]:
            left = (bid[c] for c in ("bidder", "price", "channel", "url", "extra"))
            middle = (v for name, v in person.items() if name != "dateTime")
            right = (v for name, v in auction.items() if name != "id")
            yield (*left, *middle, *right)

"""q0 q1 q2 q10 q14 q21 q22: one bid at a time."""

from __future__ import annotations

import re

from ..query import Rows
from .events import bids


def q0(events: int) -> Rows:
    for bid in bids(events):
        yield bid["auction"], bid["bidder"], bid["price"], bid["dateTime"], bid["extra"]


def q1(events: int) -> Rows:
    for bid in bids(events):
        euro = bid["price"] * 0.908
        yield bid["auction"], bid["bidder"], euro, bid["dateTime"], bid["extra"]


def q2(events: int) -> Rows:
    for bid in bids(events):
        if bid["auction"] % 123 == 0:
            yield bid["auction"], bid["price"]


def q10(events: int) -> Rows:
    for row in q0(events):
        yield *row, row[3].strftime("%Y-%m-%d"), row[3].strftime("%H:%M")


def q14(events: int) -> Rows:
    for auction, bidder, euro, time, extra in q1(events):
        if not 1_000_000 < euro < 50_000_000:
            continue
        if 8 <= time.hour <= 18:
            label = "dayTime"
        elif time.hour <= 6 or time.hour >= 20:
            label = "nightTime"
        else:
            label = "otherTime"
        yield auction, bidder, euro, label, time, extra, extra.count("c")


def q21(events: int) -> Rows:
    for bid in bids(events):
        channel, in_url = bid["channel"].lower(), re.search("[&]channel_id=([^&]*)", bid["url"])
        if channel in ("apple", "google", "facebook", "baidu"):
            found = str(["apple", "google", "facebook", "baidu"].index(channel))
        elif in_url is not None:
            found = in_url.group(1)
        else:
            continue
        yield bid["auction"], bid["bidder"], bid["price"], bid["channel"], found


def q22(events: int) -> Rows:
    for bid in bids(events):
        parts = bid["url"].split("/")
        yield bid["auction"], bid["bidder"], bid["price"], bid["channel"], *parts[3:6]

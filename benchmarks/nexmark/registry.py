"""The queries by name."""

from __future__ import annotations

from strom import count

from . import joins, rows, stateless, tables, windows
from .query import Query, columns_only
from .references import joins as join_references
from .references import stateless as stateless_references
from .references import tables as table_references
from .references import windows as window_references

BID = ("bid",)
OFFERS = ("auction", "bid")
EURO_BID = ("auction", "bidder", "price", "dateTime", "extra")
BID_COLUMNS = joins.BID_COLUMNS
ITEM = (*joins.ITEM, "dateTime", "expires", "seller", "category", "extra")
ITEM_RIGHT = tuple({"dateTime": "dateTime_right", "extra": "extra_right"}.get(c, c) for c in ITEM)
STATISTICS = tuple(tables.statistics())
NEW_SELLER = ("id", "name", "window_start")
SESSION = ("bidder", "bid_count", "window_start", "window_end")
COUNTED = ("auction", "num", "window_end")
FOLDERS = ("auction", "bidder", "price", "channel", "dir1", "dir2", "dir3")
SALE = ("seller", "id", "price", "expires", "mean")
LABELLED = ("auction", "bidder", "price", "bidTimeType", "dateTime", "extra", "c_counts")
WINNER = ("id", *ITEM, "auction", "bidder", "price", "bid_dateTime", "bid_extra")
BIDDER = ("bidder", "price", "channel", "url", "bid_extra", "id", *joins.PERSON, "person_extra")
DAILY = ("auction", "day", *tables.by_rank("bids", count()))
PRICES = ("min_price", "max_price", "avg_price", "sum_price")

LAST_BID = columns_only(0, 1, 5)
"""Of q18: which auction, who, when. Bids of one millisecond come in no particular order."""

_stateless = {
    "q0": Query(stateless.q0, stateless_references.q0, BID, EURO_BID),
    "q1": Query(stateless.q1, stateless_references.q1, BID, EURO_BID),
    "q2": Query(stateless.q2, stateless_references.q2, BID, ("auction", "price")),
    "q10": Query(
        stateless.q10,
        stateless_references.q10,
        BID,
        (*EURO_BID, "day", "minute"),
        sink=stateless.log_files,
        read=stateless.read_log,
    ),
    "q14": Query(stateless.q14, stateless_references.q14, BID, LABELLED),
    "q21": Query(
        stateless.q21,
        stateless_references.q21,
        BID,
        ("auction", "bidder", "price", "channel", "channel_id"),
    ),
    "q22": Query(stateless.q22, stateless_references.q22, BID, FOLDERS),
}

_windows = {
    "q5": Query(windows.q5, window_references.q5, BID, ("auction", "num", "end")),
    "q7": Query(
        windows.q7,
        window_references.q7,
        BID,
        ("auction", "price", "bidder", "dateTime", "extra"),
    ),
    "q7c": Query(windows.q7c, window_references.q7c, BID, COUNTED),
    "q8": Query(windows.q8, window_references.q8, ("person", "auction"), NEW_SELLER),
    "q11": Query(windows.q11, window_references.q11, BID, SESSION),
    "q12": Query(
        windows.q12,
        window_references.q12,
        BID,
        SESSION,
        promised=window_references.bids_per_bidder,
    ),
}

_joins = {
    "q3": Query(
        joins.q3,
        join_references.q3,
        ("person", "auction"),
        ("name", "city", "state", "id"),
        unbounded_state=True,
    ),
    "q4": Query(
        joins.q4,
        join_references.q4,
        OFFERS,
        ("category", "price"),
        changelog=True,
        unbounded_state=True,
    ),
    "q6": Query(
        joins.q6, join_references.q6, OFFERS, SALE, promised=join_references.means_without_ties
    ),
    "q9": Query(joins.q9, join_references.q9, OFFERS, WINNER, changelog=True, unbounded_state=True),
    "q13": Query(
        joins.q13,
        join_references.q13,
        BID,
        ("auction", "bidder", "price", "dateTime", "value"),
    ),
    "q20": Query(
        joins.q20, join_references.q20, OFFERS, (*BID_COLUMNS, *ITEM_RIGHT), unbounded_state=True
    ),
    "q23": Query(
        joins.q23,
        join_references.q23,
        ("bid", "person", "auction"),
        (*BIDDER, *ITEM[:-1], "auction_extra"),
        unbounded_state=True,
    ),
}

_tables = {
    "q15": Query(tables.q15, table_references.q15, BID, ("day", *STATISTICS), changelog=True),
    "q16": Query(
        tables.q16,
        table_references.q16,
        BID,
        ("channel", "day", "minute", *STATISTICS),
        changelog=True,
    ),
    "q17": Query(tables.q17, table_references.q17, BID, (*DAILY, *PRICES), changelog=True),
    "q18": Query(
        tables.q18, table_references.q18, BID, BID_COLUMNS, promised=LAST_BID, changelog=True
    ),
    "q19": Query(
        tables.q19, table_references.q19, BID, (*BID_COLUMNS, "rank_number"), changelog=True
    ),
}

_rows = {
    "q0_rows": Query(rows.q0_rows, stateless_references.q0, BID, EURO_BID),
    "q1_rows": Query(rows.q1_rows, stateless_references.q1, BID, EURO_BID),
    "q2_rows": Query(rows.q2_rows, stateless_references.q2, BID, ("auction", "price")),
    "q7c_rows": Query(rows.q7c_rows, window_references.q7c, BID, COUNTED),
    "q8_rows": Query(rows.q8_rows, window_references.q8, ("person", "auction"), NEW_SELLER),
    "q11_rows": Query(rows.q11_rows, window_references.q11, BID, SESSION),
    "q18_rows": Query(rows.q18_rows, table_references.q18, BID, BID_COLUMNS, promised=LAST_BID),
}


def _number(name: str) -> tuple[int, str]:
    digits = "".join(c for c in name if c.isdigit())
    return int(digits), name


_columnar = {**_stateless, **_windows, **_joins, **_tables}
NEXMARK: dict[str, Query] = {name: _columnar[name] for name in sorted(_columnar, key=_number)}
"""In order of their numbers."""

NEXMARK_ROWS: dict[str, Query] = _rows
"""With a Python function per record."""

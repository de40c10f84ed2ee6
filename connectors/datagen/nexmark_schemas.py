"""Columns of the Nexmark streams. Apart, because describing a job must not load the kernels."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

Kind = Literal["person", "auction", "bid"]

SLOTS: dict[str, tuple[int, int]] = {"person": (0, 0), "auction": (1, 3), "bid": (4, 49)}
"""First and last slot of each kind in an epoch of 50 events."""

TIME = pa.timestamp("ms")
SCHEMAS: dict[str, pa.Schema] = {
    "person": pa.schema(
        {
            "id": pa.int64(),
            "name": pa.string(),
            "emailAddress": pa.string(),
            "creditCard": pa.string(),
            "city": pa.string(),
            "state": pa.string(),
            "dateTime": TIME,
            "extra": pa.string(),
        }
    ),
    "auction": pa.schema(
        {
            "id": pa.int64(),
            "itemName": pa.string(),
            "description": pa.string(),
            "initialBid": pa.int64(),
            "reserve": pa.int64(),
            "dateTime": TIME,
            "expires": TIME,
            "seller": pa.int64(),
            "category": pa.int64(),
            "extra": pa.string(),
        }
    ),
    "bid": pa.schema(
        {
            "auction": pa.int64(),
            "bidder": pa.int64(),
            "price": pa.int64(),
            "channel": pa.string(),
            "url": pa.string(),
            "dateTime": TIME,
            "extra": pa.string(),
        }
    ),
}

ALL_SCHEMA = pa.schema(
    [("event_type", pa.int8())]
    + [(kind, pa.struct(list(SCHEMAS[kind]))) for kind in SLOTS]
    + [("dateTime", TIME)]
)
"""The three streams as one: event_type 0 person, 1 auction, 2 bid; the other structs are null."""

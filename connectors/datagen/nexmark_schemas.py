"""Columns of the Nexmark streams. Apart, because describing a job must not load the kernels."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from ...api.connectors.reads import ColumnReads
from ...core.union_type import UnionType

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

Strings = Literal["string", "string_view"]


def schema_of(kind: str, strings: Strings) -> pa.Schema:
    """The columns of one kind, or of all: `event`, a union of the three, and `dateTime`."""
    if kind != "all":
        return _with_strings(SCHEMAS[kind], strings)
    kinds = {one: pa.struct(list(_with_strings(SCHEMAS[one], strings))) for one in SLOTS}
    return pa.schema([("event", UnionType.of(kinds)), ("dateTime", TIME)])


def read_field(field: pa.Field, columns: ColumnReads) -> pa.Field | None:
    """What is read of a column, None for nothing. A kind's rows keep one field at least, so that
    they are rows."""
    if field.name in columns.names or field.name not in columns.columns:
        return field if field.name in columns.names else None
    union = field.type
    kinds = {}
    for kind in union.kinds:
        rows, read = union.rows_type(kind), columns.of_kind(field.name, kind)
        kept = [one for one in rows if read is None or one.name in read]
        kinds[kind] = pa.struct(kept or [rows.field(0)])
    return field.with_type(UnionType.of(kinds))


def _with_strings(schema: pa.Schema, strings: Strings) -> pa.Schema:
    if strings == "string":
        return schema
    return pa.schema(
        [f.with_type(pa.string_view()) if f.type == pa.string() else f for f in schema]
    )

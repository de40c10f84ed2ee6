"""A case as a program: the public API, as a user would write it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl

from ...api.functions.user_functions import OutputTag
from ...api.streams.data_stream import DataStream
from ...api.watermarks import WatermarkStrategy
from ...state.ttl import StateTtlConfig
from .cases import Case, Table, Windows

LATE = OutputTag("late")
DROPPED = 5
"""Of records with n % 7 == DROPPED, the filter's."""


def program(case: Case, records: DataStream) -> DataStream:
    """The case's operator on a stream of its records."""
    operation = case.operation
    if isinstance(operation, Windows):
        return _windows(case, operation, records)
    return _table(case, operation, _keyed(case, records))


def filtered(case: Case, records: DataStream) -> DataStream:
    """The records that the case's filter lets pass."""
    return records.filter(pl.col("n") % 7 != DROPPED) if case.filtered else records


def _keyed(case: Case, records: DataStream) -> Any:
    return records.key_by(*(pl.col(name) if case.by_expression else name for name in case.key))


def _windows(case: Case, operation: Windows, records: DataStream) -> DataStream:
    windows: Any
    if operation.keyed:
        windows = _keyed(case, records).window(operation.assigner)
    else:
        windows = records.window_all(operation.assigner)
    if operation.trigger is not None:
        windows.trigger(operation.trigger)
    windows.allowed_lateness(timedelta(milliseconds=operation.lateness))
    if operation.late_tag:
        windows.side_output_late_data(LATE)
    stream: DataStream
    match operation.what:
        case "aggregate":
            stream = windows.aggregate(**case.built())
        case "extreme":
            method = windows.max_by if case.largest else windows.min_by
            stream = method(case.field, ties=case.ties)
        case _:
            stream = windows.top_n(case.n, order_by(case), rank=case.rank)
    return stream


def _table(case: Case, operation: Table, keyed: Any) -> DataStream:
    stream: DataStream
    ttl: Any = timedelta(days=1) if operation.ttl else None
    if operation.event_ttl is not None:
        ttl = StateTtlConfig.new_builder(operation.event_ttl).use_event_time().build()
    match operation.what:
        case "aggregate":
            changelog = "upsert" if operation.upsert else "retract"
            stream = keyed.aggregate(changelog=changelog, ttl=ttl, **case.built())
        case "top_n":
            stream = keyed.top_n(case.n, order_by(case), rank=case.rank, ttl=ttl)
        case "deduplicate":
            stream = keyed.deduplicate(operation.keep, order_by(case) or None, ttl=ttl)
        case "over":
            order = "arrival" if operation.arrival else "event_time"
            frame = {"rows": operation.rows, "range": operation.range_ms}
            ttl = None if operation.range_ms is not None else ttl
            over = keyed.over(**frame, order=order, ttl=ttl)
            stream = over.aggregate(**case.built())
        case _:
            stream = getattr(keyed, operation.rolling)(case.field, ttl=ttl)
    return stream


def order_by(case: Case) -> list[Any]:
    return [(name, "desc" if descending else "asc") for name, descending in case.order]


def strategy(slack: int) -> WatermarkStrategy:
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=slack))
    return bounded.with_timestamp_assigner("ts")

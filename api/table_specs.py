"""Specs of operators that keep a table per key for the whole stream, and of `with_event_time`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..core.keys import KeySelector
from .order import Order
from .specs import OperatorSpec

if TYPE_CHECKING:
    from .aggregates import Aggregate

Changelog = Literal["retract", "upsert"]
OverOrder = Literal["event_time", "arrival"]


@dataclass(frozen=True)
class GroupAggregateSpec(OperatorSpec):
    """Running aggregates per key, by output column. `ttl_ms`: a key without records for so long (in
    processing time) is forgotten."""

    key: KeySelector
    aggregates: tuple[tuple[str, Aggregate], ...]
    changelog: Changelog = "retract"
    ttl_ms: int | None = None


@dataclass(frozen=True)
class TopNSpec(OperatorSpec):
    """The first `n` records per key. `rank`: name of the column that says which, from 1."""

    key: KeySelector
    n: int
    order: Order
    rank: str | None = None


@dataclass(frozen=True)
class DeduplicateSpec(OperatorSpec):
    """The first or last record per key; in order of arrival when `order` is empty."""

    key: KeySelector
    keep: Literal["first", "last"]
    order: Order = ()


@dataclass(frozen=True)
class OverSpec(OperatorSpec):
    """Each record with aggregates over those of its key before it: the last `rows` with itself,
    those up to `range_ms` before it, or all (both None)."""

    key: KeySelector
    aggregates: tuple[tuple[str, Aggregate], ...]
    rows: int | None = None
    range_ms: int | None = None
    order: OverOrder = "event_time"


@dataclass(frozen=True)
class EventTimeSpec(OperatorSpec):
    """Event times from a column; watermarks stay as they are."""

    column: str

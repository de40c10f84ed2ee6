"""Specs of operators that keep a table per key for the whole stream, and of `with_event_time`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from ...core.keys import KeySelector
from ...core.row_kind import ROW_KIND, ROW_KIND_FIELD
from ...state.ttl import Lifetime
from .columns import Order
from .records import OperatorSpec
from .schemas import bare_fields, known_keys, result_fields

if TYPE_CHECKING:
    from ..aggregates import Aggregate


Changelog = Literal["retract", "upsert"]

OverOrder = Literal["event_time", "arrival"]


@dataclass(frozen=True)
class GroupAggregateSpec(OperatorSpec):
    """Running aggregates per key, by output column. `ttl`: a key without records for so long is
    forgotten."""

    key: KeySelector
    aggregates: tuple[tuple[str, Aggregate], ...]
    changelog: Changelog = "retract"
    ttl: Lifetime | None = None

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        records = _records(left)
        keys = known_keys(records, self.key)
        if records is None or keys is None:
            return None
        results = result_fields(records, self.aggregates)
        return None if results is None else _distinct([*bare_fields(keys), *results], changes=True)


@dataclass(frozen=True)
class TopNSpec(OperatorSpec):
    """The first `n` records per key. `rank`: name of the column that says which, from 1. `ttl`:
    a key whose records have not changed for so long is forgotten."""

    key: KeySelector
    n: int
    order: Order
    rank: str | None = None
    ttl: Lifetime | None = None

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        records = _records(left)
        places = [] if self.rank is None else [pa.field(self.rank, pa.int64())]
        return None if records is None else _distinct([*records, *places], changes=True)


@dataclass(frozen=True)
class DeduplicateSpec(OperatorSpec):
    """The first or last record per key; in order of arrival when `order` is empty. `ttl`: a key
    whose record has been kept for so long is forgotten."""

    key: KeySelector
    keep: Literal["first", "last"]
    order: Order = ()
    ttl: Lifetime | None = None

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        records = _records(left)
        if left is None or records is None:
            return None
        grows = self.keep == "first" and not self.order and ROW_KIND not in left.names
        return _distinct(list(records), changes=not grows)


@dataclass(frozen=True)
class OverSpec(OperatorSpec):
    """Each record with aggregates over those of its key before it: the last `rows` with itself,
    those up to `range_ms` before it, or all (both None). `ttl`: a key without records for so long
    is forgotten; not with `range_ms`."""

    key: KeySelector
    aggregates: tuple[tuple[str, Aggregate], ...]
    rows: int | None = None
    range_ms: int | None = None
    order: OverOrder = "event_time"
    ttl: Lifetime | None = None

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        records = _records(left)
        results = None if records is None else result_fields(records, self.aggregates)
        if records is None or results is None:
            return None
        return _distinct([*records, *results], changes=False)


@dataclass(frozen=True)
class EventTimeSpec(OperatorSpec):
    """Event times from a column; watermarks stay as they are."""

    writes_letters = True

    column: str

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        return left


def _records(schema: pa.Schema | None) -> pa.Schema | None:
    """The columns that an operator with a table per key binds to."""
    if schema is None:
        return None
    return pa.schema([field for field in bare_fields(schema) if field.name != ROW_KIND])


def _distinct(fields: list[pa.Field], changes: bool) -> pa.Schema | None:
    """With row kinds if the result `changes`. None for names that clash: an error of the job."""
    fields = [*fields, ROW_KIND_FIELD] if changes else fields
    names = [field.name for field in fields]
    return pa.schema(fields) if len(set(names)) == len(names) else None

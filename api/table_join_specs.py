"""Specs of the joins with tables and of the regular join."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..core.joined_columns import JoinedColumns, side_columns
from ..core.keys import ColumnKey, KeySelector
from ..core.row_kind import ROW_KIND, ROW_KIND_FIELD
from .joins import JoinKind
from .specs import OperatorSpec

if TYPE_CHECKING:
    import polars as pl


def joined_schema(
    how: JoinKind,
    sides: tuple[pa.Schema | None, pa.Schema | None],
    keys: tuple[Sequence[str], Sequence[str]],
    suffix: str,
) -> pa.Schema | None:
    """The columns that a join of these sides gives, without row kinds; None where that takes a side
    that is not known. `keys`: names of the key columns that are columns on both sides."""
    left, right = sides
    if left is not None and how in ("semi", "anti"):
        return left
    if left is None or right is None:
        return None
    return JoinedColumns.of(left, right, *keys, suffix).schema


def _like(schema: pa.Schema | None, records: pa.Schema | None) -> pa.Schema | None:
    """`schema` with row kinds if these records have them."""
    if schema is None or records is None:
        return None
    return schema.append(ROW_KIND_FIELD) if ROW_KIND in records.names else schema


@dataclass(frozen=True)
class RegularJoinSpec(OperatorSpec):
    """`key`, `right_key`: of port 0 and 1. `schemas`: columns of both sides where known; row kinds
    in them do not count. `shared`: names of the key columns that are columns on both sides."""

    key: KeySelector
    right_key: KeySelector
    how: JoinKind
    schemas: tuple[pa.Schema | None, pa.Schema | None]
    shared: tuple[tuple[str, ...], tuple[str, ...]]
    ttl_ms: int | None = None
    where: pl.Expr | None = None
    suffix: str = "_right"

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        mine, theirs = self.schemas
        sides = (side_columns(mine), side_columns(theirs))
        found = joined_schema(self.how, sides, self.shared, self.suffix)
        if found is None or self.how != "inner":
            return None if found is None else found.append(ROW_KIND_FIELD)
        if left is None or right is None:
            return None
        return _like(found, right if ROW_KIND in right.names else left)


@dataclass(frozen=True)
class TemporalJoinSpec(OperatorSpec):
    """Port 0: records; port 1: versions of the table's rows."""

    key: KeySelector
    right_key: KeySelector
    how: JoinKind
    schemas: tuple[pa.Schema | None, pa.Schema | None]
    shared: tuple[tuple[str, ...], tuple[str, ...]]
    ttl_ms: int | None = None
    suffix: str = "_right"

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        mine, theirs = self.schemas
        sides = (side_columns(mine), side_columns(theirs))
        return joined_schema(self.how, sides, self.shared, self.suffix)


@dataclass(frozen=True)
class BroadcastJoinSpec(OperatorSpec):
    """Port 0: records, partitioned anyhow; port 1: the table, complete in every subtask. `schemas`
    as in the regular join."""

    left_on: ColumnKey
    right_on: ColumnKey
    how: JoinKind
    schemas: tuple[pa.Schema | None, pa.Schema | None]
    suffix: str = "_right"

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        mine, theirs = self.schemas
        sides = (side_columns(mine), side_columns(theirs))
        keys = (self.left_on.names, self.right_on.names)
        return _like(joined_schema(self.how, sides, keys, self.suffix), left)


@dataclass(frozen=True)
class LookupJoinSpec(OperatorSpec):
    """`table`: a `pyarrow.Table`, or a function (or class of such) from distinct keys (a record
    batch of the columns `right_on`) to a table."""

    left_on: ColumnKey
    right_on: ColumnKey
    how: JoinKind
    table: pa.Table | Callable[[pa.RecordBatch], Any]
    cache_size: int = 0
    cache_ttl_ms: int | None = None
    suffix: str = "_right"

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        if left is None:
            return None
        mine = pa.schema([field for field in left if field.name != ROW_KIND])
        theirs = side_columns(self.table.schema) if isinstance(self.table, pa.Table) else None
        keys = (self.left_on.names, self.right_on.names)
        return _like(joined_schema(self.how, (mine, theirs), keys, self.suffix), left)

"""Specs of joins. The left stream is read at port 0, the right one at port 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ...core.errors import GraphError
from ...core.joined_columns import JoinedColumns, plain_columns, side_columns
from ...core.keys import ColumnKey, KeySelector
from ...core.row_kind import ROW_KIND, ROW_KIND_FIELD
from ...state.ttl import Lifetime
from .records import OperatorSpec
from .schemas import WINDOW_BOUNDS

if TYPE_CHECKING:
    import polars as pl

    from ..windows.base import WindowAssigner


JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True)
class JoinSides:
    """What every join is told of its sides.

    left_schema, right_schema: the columns of each side, None where its first record tells them;
    never None on a side that may be missing in an outer join. `equal`: names of the key columns
    that are columns on both sides, pair by pair."""

    left_key: KeySelector
    right_key: KeySelector
    how: JoinKind
    left_schema: pa.Schema | None
    right_schema: pa.Schema | None
    equal: tuple[tuple[str, str], ...]
    suffix: str

    def columns(self, left: pa.Schema, right: pa.Schema) -> JoinedColumns:
        """How records of these columns are joined, dictionaries as their values. GraphError where
        names clash."""
        lefts, rights = [a for a, _ in self.equal], [b for _, b in self.equal]
        return JoinedColumns.of(
            plain_columns(left), plain_columns(right), lefts, rights, self.suffix
        )

    def schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        """The columns of the result, None where that takes a side that is not known."""
        if left is None:
            return None
        if self.how in ("semi", "anti"):
            return plain_columns(left)
        return None if right is None else self.columns(left, right).schema


def with_bounds(joined: pa.Schema) -> pa.Schema:
    """The columns of a window join; GraphError where a side has columns of those names."""
    taken = sorted(set(joined.names) & {field.name for field in WINDOW_BOUNDS})
    if taken:
        raise GraphError(
            f"window_join appends columns {[field.name for field in WINDOW_BOUNDS]}, but its sides "
            f"have {taken} already: rename them before"
        )
    return pa.schema([*joined, *WINDOW_BOUNDS])


@dataclass(frozen=True)
class WindowJoinSpec(OperatorSpec):
    """Pairs of equal keys in one event-time window, tumbling or sliding. Output columns: those of
    the join, `window_start`, `window_end`; timestamp = window end - 1."""

    sides: JoinSides
    assigner: WindowAssigner

    @property
    def schema(self) -> pa.Schema | None:
        joined = self.sides.schema(self.sides.left_schema, self.sides.right_schema)
        return None if joined is None else with_bounds(joined)


@dataclass(frozen=True)
class IntervalJoinSpec(OperatorSpec):
    """Pairs of equal keys with `lower <= right timestamp - left timestamp <= upper` (ms)."""

    sides: JoinSides
    lower: int
    upper: int

    @property
    def schema(self) -> pa.Schema | None:
        return self.sides.schema(self.sides.left_schema, self.sides.right_schema)


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
    in them do not count. `shared`: names of the key columns that are columns on both sides. `ttl`:
    how long rows of each side are kept, both by the same time."""

    key: KeySelector
    right_key: KeySelector
    how: JoinKind
    schemas: tuple[pa.Schema | None, pa.Schema | None]
    shared: tuple[tuple[str, ...], tuple[str, ...]]
    ttl: tuple[Lifetime | None, Lifetime | None] = (None, None)
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
    """Port 0: records; port 1: versions of the table's rows, which are kept for `ttl` at most."""

    key: KeySelector
    right_key: KeySelector
    how: JoinKind
    schemas: tuple[pa.Schema | None, pa.Schema | None]
    shared: tuple[tuple[str, ...], tuple[str, ...]]
    ttl: Lifetime | None = None
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

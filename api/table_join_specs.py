"""Specs of the joins with tables and of the regular join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..core.keys import ColumnKey, KeySelector
from .joins import JoinKind
from .specs import OperatorSpec

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class RegularJoinSpec(OperatorSpec):
    """`key`, `right_key`: of port 0 and 1. `schemas`: columns of both sides where known, without
    row kinds. `shared`: names of the key columns that are columns on both sides."""

    key: KeySelector
    right_key: KeySelector
    how: JoinKind
    schemas: tuple[pa.Schema | None, pa.Schema | None]
    shared: tuple[tuple[str, ...], tuple[str, ...]]
    ttl_ms: int | None = None
    where: pl.Expr | None = None
    suffix: str = "_right"


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


@dataclass(frozen=True)
class BroadcastJoinSpec(OperatorSpec):
    """Port 0: records, partitioned anyhow; port 1: the table, complete in every subtask. `schemas`
    as in the regular join."""

    left_on: ColumnKey
    right_on: ColumnKey
    how: JoinKind
    schemas: tuple[pa.Schema | None, pa.Schema | None]
    suffix: str = "_right"


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

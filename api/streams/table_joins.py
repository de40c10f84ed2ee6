"""Joins of a stream with a table that every subtask has, or looks up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa

from ...core.errors import ConfigurationError, GraphError
from ...core.key_types import check_comparable
from ...core.keys import ColumnKey
from ...engine.graph.model import Broadcast
from ...engine.graph.transformation import Input
from ..functions.validation import require_batch_function
from ..specs.joins import (
    BroadcastJoinSpec,
    LookupJoinSpec,
)
from ..types.durations import Interval
from ..types.type_info import schema_of
from .sides import check_one_of, to_ttl
from .stream import Out, Stream, known_schema

Columns = str | Sequence[str]


class TableJoins(Stream[Out]):
    """Joins of a stream with a table that every subtask has; part of `DataStream`."""

    def broadcast_join(
        self,
        table_stream: Stream[Out],
        on: Columns | None = None,
        how: Literal["inner", "left", "semi", "anti"] = "inner",
        *,
        left_on: Columns | None = None,
        right_on: Columns | None = None,
        left_type: Any = None,
        right_type: Any = None,
        suffix: str = "_right",
    ) -> Out:
        """Each record with the rows of a bounded stream that have its key. The stream is sent to
        every subtask; records wait until it has ended."""
        _same_environment("broadcast_join", self, table_stream)
        check_one_of("broadcast_join", how, ("inner", "left", "semi", "anti"))
        mine, theirs = _on("broadcast_join", on, left_on, right_on)
        _check_bounded(table_stream._inputs)
        schemas = _schemas("broadcast_join", self, table_stream, how, left_type, right_type)
        _check_columns("broadcast_join", schemas, mine, theirs)
        spec = BroadcastJoinSpec(ColumnKey(mine), ColumnKey(theirs), how, schemas, suffix)
        rights = [replace(i, partitioner=Broadcast(), port=1) for i in table_stream._inputs]
        lefts = [replace(i, port=0) for i in self._inputs]
        return self._apply(spec, f"BroadcastJoin({how})", (*lefts, *rights))

    def lookup_join(
        self,
        table: Any,
        on: Columns | None = None,
        how: Literal["inner", "left", "semi", "anti"] = "inner",
        *,
        left_on: Columns | None = None,
        right_on: Columns | None = None,
        cache_size: int = 0,
        cache_ttl: Interval | None = None,
        suffix: str = "_right",
    ) -> Out:
        """Each record with the rows of `table` that have its key.

        `table`: a table that goes with the job (pyarrow Table or RecordBatch, polars or pandas
        frame), or a function called for each batch with its distinct keys (a record batch of the
        columns `right_on`), which gives a table of their rows, key columns included; or a class of
        such. The results of up to `cache_size` keys are remembered, for `cache_ttl`.
        """
        check_one_of("lookup_join", how, ("inner", "left", "semi", "anti"))
        mine, theirs = _on("lookup_join", on, left_on, right_on)
        found = _table(table)
        if found is None:
            require_batch_function("lookup_join", table)
        else:
            _check_columns("lookup_join", (known_schema(self), found.schema), mine, theirs)
        if isinstance(cache_size, bool) or not isinstance(cache_size, int) or cache_size < 0:
            raise ConfigurationError(f"lookup_join: cache_size must be >= 0, is {cache_size!r}")
        life = to_ttl("lookup_join", cache_ttl)
        if life is not None and life.event:
            raise ConfigurationError("lookup_join: a cache forgets by processing time alone")
        spec = LookupJoinSpec(
            ColumnKey(mine),
            ColumnKey(theirs),
            how,
            table if found is None else found,
            cache_size,
            None if life is None else life.ms,
            suffix,
        )
        return self._apply(spec, f"LookupJoin({how})")


def _same_environment(method: str, left: Stream[Any], right: Any) -> None:
    if not isinstance(right, Stream):
        raise ConfigurationError(f"{method}: expected a stream, got {right!r}")
    if left._env is not right._env:
        raise GraphError(f"{method}: the streams belong to different environments")


def _on(
    method: str, on: Columns | None, left_on: Columns | None, right_on: Columns | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The key columns of both sides."""
    if (on is None) == (left_on is None and right_on is None):
        raise ConfigurationError(f"{method}: give either on=, or left_on= and right_on=")
    mine, theirs = _names(method, on or left_on), _names(method, on or right_on)
    if len(mine) != len(theirs):
        raise ConfigurationError(
            f"{method}: left_on names {len(mine)} columns {list(mine)}, right_on {len(theirs)} "
            f"{list(theirs)}"
        )
    return mine, theirs


def _names(method: str, columns: Columns | None) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns or ())
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigurationError(
            f"{method}: key columns must be a name or names on both sides, are {columns!r}"
        )
    if len(set(names)) != len(names):
        raise ConfigurationError(f"{method}: key columns {list(names)} are not distinct")
    return names


def _schemas(
    method: str, left: Stream[Any], right: Stream[Any], how: str, left_type: Any, right_type: Any
) -> tuple[pa.Schema | None, pa.Schema | None]:
    mine = known_schema(left) if left_type is None else schema_of(left_type)
    theirs = known_schema(right) if right_type is None else schema_of(right_type)
    if how == "left" and theirs is None:
        raise GraphError(
            f"{method}: a left join writes the columns of the right side as nulls, and they are "
            "not known before the job runs; declare them with right_type=..., or give the function "
            "that makes them an output_type"
        )
    return mine, theirs


def _check_columns(
    method: str,
    schemas: tuple[pa.Schema | None, pa.Schema | None],
    mine: tuple[str, ...],
    theirs: tuple[str, ...],
) -> None:
    """Key columns that are known not to exist, or can never be equal, are an error."""
    for side, schema, names in zip(("left", "right"), schemas, (mine, theirs), strict=True):
        missing = [] if schema is None else [name for name in names if name not in schema.names]
        if schema is not None and missing:
            raise ConfigurationError(
                f"{method}: the {side} side has no columns {missing}, only {schema.names}"
            )
    if schemas[0] is not None and schemas[1] is not None:
        keys = [
            pa.schema([schema.field(name) for name in names])
            for schema, names in zip(schemas, (mine, theirs), strict=True)
            if schema is not None
        ]
        check_comparable(keys[0], keys[1], method)


def _check_bounded(inputs: tuple[Input, ...]) -> None:
    """An unbounded source before the table would hold the records back for ever."""
    for one in inputs:
        source = getattr(one.source.spec, "source", None)
        if one.source.is_source and source is not None and not source.bounded:
            raise ConfigurationError(
                f"broadcast_join: the table comes from source '{one.source.name}', which never "
                "ends; use temporal_join or join for tables that change"
            )
        _check_bounded(one.source.inputs)


def _table(value: Any) -> pa.Table | None:
    """A table the user gave, as Arrow; None for anything else."""
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if isinstance(value, type) or callable(value):
        return None
    if hasattr(value, "to_arrow"):
        found = value.to_arrow()
        return found if isinstance(found, pa.Table) else None
    if type(value).__module__.split(".")[0] == "pandas":
        return pa.Table.from_pandas(value, preserve_index=False)
    return None

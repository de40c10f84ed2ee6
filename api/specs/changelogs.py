"""Where the program shows that a changelog without -U is read as if it had it.

An upsert changelog (`aggregate(..., changelog="upsert")`, or a source that captures changes by key)
does not say what an update replaces.
What adds up records, ranks or joins them would count the old row beside the new one, silently.
Only readers that replace by the aggregate's key read it rightly: `deduplicate("last")` and the
versions of a temporal join. Asked when an operator is added; a function that passes row kinds on
without declaring the column hides where they come from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ...core.errors import GraphError
from ...core.keys import ColumnKey, ExpressionKey, KeySelector
from ...core.row_kind import ROW_KIND
from ...engine.graph.transformation import Input, Transformation
from .async_io import AsyncSpec
from .columns import NamedColumn, tells_kinds
from .joins import BroadcastJoinSpec, LookupJoinSpec, RegularJoinSpec, TemporalJoinSpec
from .records import (
    ExpressionSpec,
    FilterSpec,
    MapSpec,
    OperatorSpec,
    PassSpec,
    SourceSpec,
    WatermarkSpec,
)
from .schemas import schema_of_inputs
from .tables import DeduplicateSpec, EventTimeSpec, GroupAggregateSpec, TopNSpec

Path = tuple[Transformation, ...]
"""Operators between an aggregate and its reader, in the order in which records pass them."""

_PASSING = (
    AsyncSpec,
    BroadcastJoinSpec,
    EventTimeSpec,
    ExpressionSpec,
    FilterSpec,
    LookupJoinSpec,
    MapSpec,
    PassSpec,
    WatermarkSpec,
)
"""What gives records of port 0 the row kinds they came with. Of a function, if it declares them."""

_RETRACTING = (BroadcastJoinSpec, DeduplicateSpec, GroupAggregateSpec, RegularJoinSpec, TopNSpec)
"""What may make a changelog, or reads one by its -U and -D."""


def check_changelogs(spec: OperatorSpec, name: str, inputs: tuple[Input, ...]) -> None:
    """GraphError if the operator would misread an upsert changelog among its inputs, or would mix
    up the order of a changelog."""
    if isinstance(spec, AsyncSpec) and not spec.ordered:
        known = schema_of_inputs(inputs)
        if known is not None and ROW_KIND in known.names:
            raise GraphError(
                f"{name}: the rows of a changelog mean something in their order only, and results "
                "that come as they are answered may pass each other; ask in order (ordered_wait, "
                "ordered=True)"
            )
    for one in inputs:
        if not _reads_kinds(spec, one.port):
            continue
        for aggregate, path in _upserts(one):
            wrong = _misread(spec, aggregate, path)
            if wrong is not None:
                raise GraphError(
                    f"{name}: it reads the upsert changelog of '{aggregate.name}', which leaves "
                    f"out the rows that its updates replace, and {wrong}: "
                    f"{_advice(spec, aggregate)}"
                )


def upserts_among(inputs: tuple[Input, ...]) -> str | None:
    """The name of an operator whose upsert changelog is read here, also through others; None: there
    is none."""
    found = (maker.name for one in inputs for maker, _ in _upserts(one))
    return next(found, None)


def _advice(spec: OperatorSpec, made_by: Transformation) -> str:
    """A temporal join does not look at -U either."""
    if isinstance(spec, TemporalJoinSpec):
        return "key the versions by that key, and filter behind the join"
    what = "source" if isinstance(made_by.spec, SourceSpec) else "aggregate"
    return f'use changelog="retract" in that {what}'


def _reads_kinds(spec: OperatorSpec, port: int) -> bool:
    if isinstance(spec, (BroadcastJoinSpec, TemporalJoinSpec)):
        return port == 1
    return isinstance(spec, _RETRACTING)


def _upserts(one: Input) -> Iterator[tuple[Transformation, Path]]:
    """The aggregates and sources whose upserts this input has, and what they pass on the way."""
    operator, spec = one.source, one.source.spec
    if one.tag is not None:
        return
    if isinstance(spec, GroupAggregateSpec):
        if spec.changelog == "upsert":
            yield operator, ()
    elif isinstance(spec, SourceSpec):
        if spec.source.upsert_key is not None:
            yield operator, ()
    elif isinstance(spec, _PASSING) and _passes_kinds(one):
        for before in operator.inputs:
            if before.port == 0:
                for aggregate, path in _upserts(before):
                    yield aggregate, (*path, operator)


def _passes_kinds(one: Input) -> bool:
    spec = one.source.spec
    if isinstance(spec, ExpressionSpec):
        kept = spec.kind == "select" and not tells_kinds(spec.expressions)
        return kept or _source_of(spec, ROW_KIND) == ROW_KIND
    if isinstance(spec, (MapSpec, AsyncSpec)):
        return isinstance(spec.schema, pa.Schema) and ROW_KIND in spec.schema.names
    return True


def _misread(spec: OperatorSpec, aggregate: Transformation, path: Path) -> str | None:
    """Why the reader cannot take the aggregate's upserts; None if it can."""
    if isinstance(spec, DeduplicateSpec):
        if spec.keep != "last" or spec.order:
            return 'of records in order only deduplicate("last") without order_by replaces by key'
        if isinstance(aggregate.spec, SourceSpec) or _may_change(aggregate.inputs):
            return "of a key that is deleted the updates before would come back"
        key = spec.key
    elif isinstance(spec, TemporalJoinSpec):
        key = spec.right_key
    else:
        return "each update would count as one more record"
    for operator in path:
        if _may_drop(operator, aggregate, path[: path.index(operator)]):
            return (
                f"'{operator.name}' in between may drop an update, so that the row it replaces "
                "would stay"
            )
    if not _is_of_key(_roots(key), aggregate, path):
        names = ", ".join(sorted(_key_names(aggregate)))
        return f"rows can only be replaced by its key ({names}), not by ({key.describe()})"
    return None


def _may_drop(operator: Transformation, aggregate: Transformation, before: Path) -> bool:
    """Whether it may keep one record of a key and drop a later one."""
    match operator.spec:
        case FilterSpec() | AsyncSpec():
            return True
        case ExpressionSpec(kind="filter") as spec:
            roots = {root for one in spec.polars_expressions() for root in one.meta.root_names()}
            return not _is_of_key(roots, aggregate, before)
        case BroadcastJoinSpec(how=how) | LookupJoinSpec(how=how):
            return how != "left"
    return False


def _is_of_key(names: set[str], aggregate: Transformation, path: Path) -> bool:
    """Whether these columns, behind the path, are key columns of the aggregate."""
    for operator in reversed(path):
        if isinstance(operator.spec, (MapSpec, AsyncSpec)):
            return False
        if isinstance(operator.spec, ExpressionSpec):
            sources = {_source_of(operator.spec, name) for name in names}
            if None in sources:
                return False
            names = {name for name in sources if name is not None}
    return names <= _key_names(aggregate)


def _key_names(aggregate: Transformation) -> set[str]:
    """Of the columns that the aggregate's result starts with, or the source replaces by."""
    if isinstance(aggregate.spec, SourceSpec):
        return set(aggregate.spec.source.upsert_key or ())
    match aggregate.spec.key:
        case ColumnKey(names):
            return set(names)
        case ExpressionKey(expressions):
            return {one.meta.output_name() for one in expressions}
    return set()


def _roots(key: KeySelector) -> set[str]:
    """The columns that a key is made of."""
    match key:
        case ColumnKey(names):
            return set(names)
        case ExpressionKey(expressions):
            return {root for one in expressions for root in one.meta.root_names()}
    return set()


def _source_of(spec: ExpressionSpec, name: str) -> str | None:
    """The column ahead of the expressions that is `name` behind them; None if it is computed, or
    not there."""
    if spec.kind == "filter":
        return name
    for one in reversed(spec.expressions):
        if isinstance(one, NamedColumn):
            if one.name == name:
                return one.source
        elif one.meta.has_multiple_outputs():
            return name
        elif one.meta.output_name() == name:
            plain = one.meta.undo_aliases()
            return plain.meta.output_name() if plain.meta.is_column() else None
    return name if spec.kind == "with_columns" else None


def _may_change(inputs: tuple[Input, ...]) -> bool:
    """Whether these records are known to be a changelog, or come from what makes one."""
    schema = schema_of_inputs(inputs)
    if schema is not None:
        return ROW_KIND in schema.names
    return any(_makes_changes(one) for one in inputs)


def _makes_changes(one: Input) -> bool:
    spec: Any = one.source.spec
    if one.tag is not None:
        return False
    if isinstance(spec, _PASSING):
        before = tuple(other for other in one.source.inputs if other.port == 0)
        return _passes_kinds(one) and _may_change(before)
    if isinstance(spec, RegularJoinSpec):
        return spec.how != "inner" or _may_change(one.source.inputs)
    if isinstance(spec, DeduplicateSpec):
        return spec.keep == "last" or bool(spec.order) or _may_change(one.source.inputs)
    return isinstance(spec, (GroupAggregateSpec, TopNSpec))

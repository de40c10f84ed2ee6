"""Column names and arrays of joined records, the same for every join.

Left columns come first, then the right ones. A right key column of the same name as the left key
column it equals is left out (where the left side is missing, its value fills the left one); another
right column whose name is taken gets `suffix`. Side that is missing (outer joins): nulls. A
changelog's row kinds are no columns here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import pyarrow as pa

from .arrays import Int64s
from .batch import take_column
from .errors import GraphError
from .row_kind import ROW_KIND
from .value_types import holds, is_value_type

NO_ROW = -1
"""In a list of rows: there is none on this side."""


@dataclass(frozen=True)
class JoinedColumns:
    """How two sides' columns become one record. `shared`: (left column, right column) positions of
    key columns that become one. `kept`: right positions that stay columns of their own."""

    schema: pa.Schema
    shared: tuple[tuple[int, int], ...]
    kept: tuple[int, ...]

    @staticmethod
    def of(
        left: pa.Schema,
        right: pa.Schema,
        left_keys: Sequence[str],
        right_keys: Sequence[str],
        suffix: str = "_right",
    ) -> JoinedColumns:
        """For sides of these columns, joined on these key columns (those that are no columns, being
        expressions, are not in the lists). GraphError where names still clash."""
        pairs = [(a, b) for a, b in zip(left_keys, right_keys, strict=False) if a == b]
        shared = tuple((left.names.index(a), right.names.index(b)) for a, b in pairs)
        dropped = {at for _, at in shared}
        kept = tuple(i for i in range(len(right)) if i not in dropped)
        fields = [field.with_nullable(True) for field in left]
        for at in kept:
            field = right.field(at).with_nullable(True)
            clash = field.name in left.names
            fields.append(field.with_name(field.name + suffix) if clash else field)
        names = [field.name for field in fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise GraphError(f"a join would give several columns named {twice}: rename them before")
        return JoinedColumns(pa.schema(fields), shared, kept)

    def build(
        self, left: pa.RecordBatch, left_rows: Int64s, right: pa.RecordBatch, right_rows: Int64s
    ) -> pa.RecordBatch:
        """Joined records from pairs of rows; NO_ROW on one side makes nulls of its columns."""
        left_at, right_at = _indices(left_rows), _indices(right_rows)
        lefts = [take_column(column, left_at) for column in left.columns]
        if left_at.null_count:
            for mine, other in self.shared:
                theirs = take_column(right.column(other), right_at).cast(lefts[mine].type)
                lefts[mine] = either(left_at.is_valid(), lefts[mine], theirs)
        rights = [take_column(right.column(at), right_at) for at in self.kept]
        return pa.RecordBatch.from_arrays([*lefts, *rights], schema=self.schema)


def either(condition: pa.BooleanArray, yes: pa.Array, no: pa.Array) -> pa.Array:
    """`pc.if_else` of two columns of one type, for views as well."""
    import pyarrow.compute as pc

    kind = yes.type
    if holds(kind, is_value_type):
        count = len(yes)
        places = pc.if_else(condition, pa.array(range(count)), pa.array(range(count, 2 * count)))
        return pa.concat_arrays([yes, no]).take(places)
    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    if kind not in plain:
        return pc.if_else(condition, yes, no)
    return pc.if_else(condition, yes.cast(plain[kind]), no.cast(plain[kind])).cast(kind)


@overload
def side_columns(schema: None) -> None: ...
@overload
def side_columns(schema: pa.Schema) -> pa.Schema: ...
def side_columns(schema: pa.Schema | None) -> pa.Schema | None:
    """The columns of a side as joins keep them: without row kinds, dictionaries as values."""
    if schema is None:
        return None
    return plain_columns(pa.schema([field for field in schema if field.name != ROW_KIND]))


def plain_columns(schema: pa.Schema) -> pa.Schema:
    """The columns as joins keep them: nullable, dictionaries as their values, no metadata."""

    def plain(kind: pa.DataType) -> pa.DataType:
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    return pa.schema([pa.field(field.name, plain(field.type)) for field in schema])


def _indices(rows: Int64s) -> pa.Array:
    missing = rows == NO_ROW
    return pa.array(rows, mask=missing) if missing.any() else pa.array(rows)

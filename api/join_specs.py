"""Specs of the joins in event time. The left stream is read at port 0, the right one at port 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ..core.errors import GraphError
from ..core.joined_columns import JoinedColumns, plain_columns
from ..core.keys import KeySelector
from .schemas import WINDOW_BOUNDS
from .specs import OperatorSpec

if TYPE_CHECKING:
    from .joins import JoinKind
    from .windows import WindowAssigner


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

"""What changed in a buffer since a snapshot.

Rows of a namespace are numbered as they come, and go with their namespace. So a delta has a row for
each namespace that is gone, or was filled anew, and the rows that came since; their place is their
number, `__slot`, which tells the rows of one namespace apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..core.arrays import Groups, Int64s
from ..core.taking import null_array
from ..core.value_types import empty_table
from .group_sort import sorted_by_group
from .increments import (
    EVERY_GROUP,
    IDENTITY,
    REMOVED,
    SCOPE,
    SLOT,
    Continuity,
    Layer,
    Since,
    columns_text,
)
from .names import NAMESPACE
from .slot_changes import MOST_CHANGED
from .stored import KEY_GROUP, StateTable
from .stored_keys import StoredKeys

ROW_PREFIX = "row."


class Filled(NamedTuple):
    """What a namespace holds: `life` is another one when it was filled anew."""

    life: int
    rows: int


class BufferDelta(NamedTuple):
    """`cleared`: namespaces of which the rows of earlier snapshots are gone; `known`: how many rows
    of the others earlier snapshots hold."""

    cleared: Collection[int]
    known: Mapping[int, int]


class BufferRecord:
    """What one buffer knows of its snapshots.

    Invariant: `_base` is what the newest complete one holds, None if that is not known, `_last`
    what the last one does."""

    def __init__(self) -> None:
        self._continuity = Continuity()
        self._base: Mapping[int, Filled] | None = None
        self._last: Mapping[int, Filled] | None = None

    def advance(self, since: Since, now: Mapping[int, Filled], whole: bool) -> BufferDelta | None:
        """A snapshot of this is being taken. What changed since the one that is continued; None:
        all is to be written, as it is if `whole`."""
        match self._continuity.advance(since):
            case "unknown":
                self._base = None
            case "completed":
                self._base = self._last
        self._last, base = now, self._base
        if base is None or whole:
            return None
        same = {ns: one.rows for ns, one in base.items() if _lives(one, now.get(ns))}
        total = sum(one.rows for one in now.values())
        if total - sum(same.values()) > MOST_CHANGED * total:
            return None
        return BufferDelta(sorted(base.keys() - same.keys()), same)


def _lives(before: Filled, now: Filled | None) -> bool:
    return now is not None and now.life == before.life


@dataclass(frozen=True)
class Piece:
    """Rows of one namespace; `first`: the number of the first."""

    namespace: int
    first: int
    rows: pa.Table
    groups: Groups


def encoded(
    name: str,
    schema: pa.Schema,
    stored: StoredKeys,
    pieces: Collection[Piece],
    layer: Layer,
    cleared: Collection[int],
) -> StateTable | None:
    """Pieces as a table, sorted by key group; None if there is nothing to be said. `cleared`: of a
    delta."""
    if not pieces and not cleared:
        return None
    rows = pa.concat_tables([empty_table(schema), *(piece.rows for piece in pieces)])
    rows = stored.stored_rows(rows, name)
    groups = np.concatenate([_NO_GROUPS, *(piece.groups for piece in pieces)])
    sizes = [len(piece.groups) for piece in pieces]
    spaces = np.repeat(np.array([piece.namespace for piece in pieces], np.int64), sizes)
    names = [KEY_GROUP, NAMESPACE, *(ROW_PREFIX + name for name in rows.column_names)]
    arrays = [pa.array(groups), pa.array(spaces), *[plain(column) for column in rows.columns]]
    metadata = {}
    if layer != "whole":
        names.append(SLOT)
        arrays.append(pa.array(_numbers(pieces)))
    if layer == "delta":
        names.append(REMOVED)
        arrays.append(pa.array(np.zeros(len(groups), np.bool_)))
        metadata = {IDENTITY: columns_text([NAMESPACE, SLOT]), SCOPE: columns_text([NAMESPACE])}
    table = pa.Table.from_arrays(arrays, names=names)
    table = sorted_by_group([table])
    if cleared:
        table = pa.concat_tables([_cleared(cleared, table.schema), table])
    return StateTable(name, "buffer", table, metadata, layer)


def _numbers(pieces: Collection[Piece]) -> Int64s:
    each = [np.arange(piece.first, piece.first + len(piece.groups)) for piece in pieces]
    return np.concatenate([np.empty(0, np.int64), *each])


def _cleared(namespaces: Collection[int], schema: pa.Schema) -> pa.Table:
    """The rows that say so."""
    count = len(namespaces)
    known = {
        KEY_GROUP: pa.array(np.full(count, EVERY_GROUP, np.int32)),
        NAMESPACE: pa.array(list(namespaces), pa.int64()),
        REMOVED: pa.array(np.ones(count, np.bool_)),
    }
    columns = [
        known[field.name] if field.name in known else null_array(count, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


_NO_GROUPS: Groups = np.empty(0, np.int32)

_PLAIN = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
"""Arrow cannot gather views of text and bytes."""


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(_PLAIN[column.type]) if column.type in _PLAIN else column


def plain_type(kind: pa.DataType) -> pa.DataType:
    return _PLAIN.get(kind, kind)

"""Restored state that nobody has asked for: checked, and carried into later snapshots unread.

Several former subtasks may have encoded one column differently (one had only ints, another one
pickled); joining them turns the typed ones into pickles, without reading the pickled ones, whose
classes may no longer exist.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ..core.arrays import numpy_of
from ..core.errors import StateError
from ..core.ids import KeyGroupRange
from .backend import KEY_GROUP, StateTable
from .encoding import PICKLE, decode, pickled
from .group_sort import sorted_by_group
from .widening import with_rests


def check_restored(table: StateTable, key_groups: KeyGroupRange, known: str | None) -> None:
    """StateError unless all rows are within `key_groups` and the kind is `known` (if any)."""
    if known is not None and known != table.kind:
        raise StateError(f"state '{table.name}' is stored both as '{known}' and as '{table.kind}'")
    names = table.data.column_names
    if not names or names[0] != KEY_GROUP:
        raise StateError(f"state '{table.name}': the first column is not {KEY_GROUP} in {names}")
    groups = numpy_of(table.data.column(KEY_GROUP))
    outside = groups[(groups < key_groups.first) | (groups > key_groups.last)]
    if len(outside):
        raise StateError(
            f"state '{table.name}' holds key group {outside[0]}, which is outside this subtask's "
            f"range {key_groups.first}..{key_groups.last}: cut the tables to the subtask's key "
            "groups before restoring"
        )


def join(tables: Sequence[StateTable]) -> StateTable:
    """One table with the rows of all, sorted by key group. All are of one name and kind."""
    first = tables[0]
    if len(tables) == 1:
        return first
    metadata = dict(first.metadata)
    for column in metadata:
        if len({table.metadata[column] for table in tables}) > 1:
            metadata[column] = PICKLE
    parts = with_rests([_with_encodings(table, metadata) for table in tables])
    if any(not part.schema.equals(parts[0].schema) for part in parts):
        raise StateError(
            f"state '{first.name}' was stored with different columns by different subtasks: "
            f"{[part.schema.names for part in parts]}"
        )
    return StateTable(first.name, first.kind, sorted_by_group(parts), metadata)


def _with_encodings(table: StateTable, encodings: dict[str, str]) -> pa.Table:
    data = table.data
    for column, encoding in encodings.items():
        own = table.metadata[column]
        if own != encoding:
            what = f"{column} of state '{table.name}'"
            values = decode(data.column(column), own, what)
            at = data.schema.get_field_index(column)
            data = data.set_column(at, column, pickled(values, what))
    return data

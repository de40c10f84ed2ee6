"""Kept rows as a state table, and back: `__key_group | row.<column>... | num.<number>...`.

Sorted by key group, within a group in the order given: that of arrival. A row's key group is a
function of the row (`GroupsOf`), so keys need not be stored beside rows that hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import numpy_of
from ...core.batch import schema_text, take_column
from ...core.errors import StateError
from ...core.taking import null_array
from ..column_migration import fitted
from ..increments import (
    EVERY_GROUP,
    IDENTITY,
    REMOVED,
    SCOPE,
    SLOT,
    Layer,
    columns_text,
)
from ..key_groups import group_order
from ..migration import NO_MIGRATION
from ..stored import KEY_GROUP, AccColumn, StateTable

KIND = "rows"

ROW_PREFIX, NUMBER_PREFIX = "row.", "num."

GroupsOf = Callable[[pa.RecordBatch], npt.NDArray[np.int32]]
"""The key group of each row, from the row's columns as they are stored."""

Numbers = dict[str, npt.NDArray[Any]]
"""What is known of each row besides its columns, by name."""


@dataclass(frozen=True)
class FrozenRows:
    """Rows at a point in time. `read` makes them, in order of arrival, on whichever thread: columns
    of the stored schema, and numbers."""

    name: str
    groups_of: GroupsOf
    read: Callable[[], tuple[pa.RecordBatch, Numbers]]
    """Among the numbers is the place of each row, `__slot`, if they are a layer."""
    layer: Layer = "whole"
    gone: npt.NDArray[np.int64] | None = None
    """Of a delta: the places whose former rows count no more."""

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if there are no rows."""
        rows, numbers = self.read()
        if not rows.num_rows and (self.gone is None or not len(self.gone)):
            return None
        groups = self.groups_of(rows)
        order = group_order(groups)
        at = pa.array(order)
        columns = [take_column(column, at) for column in rows.columns]
        arranged = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        known = {name: values[order] for name, values in numbers.items()}
        return encoded_rows(self.name, groups[order], arranged, known, self.layer, self.gone)


def encoded_rows(
    name: str,
    groups: npt.NDArray[np.int32],
    rows: pa.RecordBatch,
    numbers: Numbers,
    layer: Layer,
    gone: npt.NDArray[np.int64] | None,
) -> StateTable:
    """Rows in order of their key groups, as of `FrozenRows`."""
    data = {KEY_GROUP: pa.array(groups)}
    for column_name, column in zip(rows.schema.names, rows.columns, strict=True):
        data[ROW_PREFIX + column_name] = column
    for column_name, values in numbers.items():
        data[column_name if column_name == SLOT else NUMBER_PREFIX + column_name] = pa.array(values)
    table, metadata = pa.table(data), {}
    if gone is not None:
        table = with_places_gone(table, gone)
        metadata = {IDENTITY: columns_text([SLOT]), SCOPE: columns_text([SLOT])}
    return StateTable(name, KIND, table, metadata, layer)


def with_places_gone(data: pa.Table, gone: npt.NDArray[np.int64]) -> pa.Table:
    """The rows of a delta, with those before them that say which places count no more."""
    data = data.append_column(REMOVED, pa.array(np.zeros(data.num_rows, np.bool_)))
    known = {
        KEY_GROUP: pa.array(np.full(len(gone), EVERY_GROUP, np.int32)),
        SLOT: pa.array(gone),
        REMOVED: pa.array(np.ones(len(gone), np.bool_)),
    }
    columns = [
        known[field.name] if field.name in known else null_array(len(gone), field.type)
        for field in data.schema
    ]
    return pa.concat_tables([pa.table(columns, schema=data.schema), data])


def stored_rows(
    name: str,
    tables: Iterable[StateTable],
    schema: pa.Schema,
    numbers: Sequence[AccColumn],
    groups_of: GroupsOf,
) -> list[tuple[pa.RecordBatch, Numbers]]:
    """What `FrozenRows.table` wrote, of each former subtask. `schema`: of the stored columns.
    `groups_of` is told of rows whose columns have another type than they were stored with.

    StateError if columns or numbers are not those declared, or key groups would not be theirs."""
    found = []
    for table in tables:
        names = sorted(
            n.removeprefix(NUMBER_PREFIX)
            for n in table.data.column_names
            if n.startswith(NUMBER_PREFIX)
        )
        if names != sorted(n.name for n in numbers):
            raise StateError(
                f"rows '{name}' were stored with columns {schema_text(table.data.schema)}, which "
                f"have numbers {names}, and are declared with numbers "
                f"{sorted(n.name for n in numbers)}: restore them with the settings they were "
                "stored with, or give the operator a new uid"
            )
        declared = [field.with_name(ROW_PREFIX + field.name) for field in schema]
        data = fitted(f"rows '{name}'", table.data, declared, (ROW_PREFIX,))
        columns = [
            pa.concat_arrays(data.column(ROW_PREFIX + field.name).chunks) for field in schema
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        changed = data is not table.data or table.migration is not NO_MIGRATION
        if changed and (groups_of(rows) != numpy_of(data.column(KEY_GROUP))).any():
            raise StateError(
                f"rows '{name}' were stored with {schema_text(table.data.schema)}, and as "
                f"{schema_text(schema)} their keys are others, which would be looked for "
                "elsewhere: keep the type of key columns, or give the operator a new uid"
            )
        known = {n.name: numpy_of(data.column(NUMBER_PREFIX + n.name)) for n in numbers}
        found.append((rows, known))
    return found

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
from ...core.batch import take_column
from ...core.errors import StateError
from ..key_groups import group_order
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

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if there are no rows."""
        rows, numbers = self.read()
        if not rows.num_rows:
            return None
        groups = self.groups_of(rows)
        order = group_order(groups)
        at = pa.array(order)
        data = {KEY_GROUP: pa.array(groups[order])}
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            data[ROW_PREFIX + name] = take_column(column, at)
        for name, values in numbers.items():
            data[NUMBER_PREFIX + name] = pa.array(values[order])
        return StateTable(self.name, KIND, pa.table(data))


def stored_rows(
    name: str, tables: Iterable[StateTable], schema: pa.Schema, numbers: Sequence[AccColumn]
) -> list[tuple[pa.RecordBatch, Numbers]]:
    """What `FrozenRows.table` wrote, of each former subtask. `schema`: of the stored columns.

    StateError if columns or numbers are not those declared."""
    found = []
    for table in tables:
        data = table.data
        fields = [
            (n.removeprefix(ROW_PREFIX), data.schema.field(n).type)
            for n in data.column_names
            if n.startswith(ROW_PREFIX)
        ]
        names = sorted(
            n.removeprefix(NUMBER_PREFIX) for n in data.column_names if n.startswith(NUMBER_PREFIX)
        )
        declared = [(field.name, field.type) for field in schema]
        if fields != declared or names != sorted(n.name for n in numbers):
            raise StateError(
                f"rows '{name}' were stored with columns {_text(fields)} and numbers {names}, and "
                f"are declared with {_text(declared)} and {sorted(n.name for n in numbers)}: "
                "restore them with the columns they were stored with, or give the operator a new "
                "uid"
            )
        columns = [
            pa.concat_arrays(data.column(ROW_PREFIX + field.name).chunks) for field in schema
        ]
        known = {n.name: numpy_of(data.column(NUMBER_PREFIX + n.name)) for n in numbers}
        found.append((pa.RecordBatch.from_arrays(columns, schema=schema), known))
    return found


def _text(fields: Sequence[tuple[str, pa.DataType]]) -> str:
    return "[" + ", ".join(f"{name}: {kind}" for name, kind in fields) + "]"

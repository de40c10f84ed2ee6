"""State that operators keep for key groups rather than keys, so that each subtask has it wherever
the groups go: how far windows have fired, and facts about all records.

With another number of key groups it is said anew for each: of what former subtasks knew together.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..core.errors import StateError
from ..state.buffer_changes import ROW_PREFIX
from ..state.event_time import KIND as EVENT_TIME
from ..state.event_time import WATERMARK
from ..state.names import NAMESPACE
from ..state.shared_facts import SCHEMA as FACTS
from ..state.stored import KEY_GROUP, StateTable
from ..state.window_progress import SCHEMA as PROGRESS

_MARKS: Final = ((f"{ROW_PREFIX}until", pa.int64()), (f"{ROW_PREFIX}fired", pa.int64()))


def _stored(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(ROW_PREFIX + field.name, field.type) for field in schema]


def is_per_group(table: StateTable) -> bool:
    """Whether the state says something of each key group, and of no key."""
    return table.kind == EVENT_TIME or (table.kind == "buffer" and _form(table) is not None)


def spread(table: StateTable, operator: str, most: int) -> StateTable:
    """The same for `most` key groups. StateError if groups have got to different points."""
    data = table.data.drop_columns([KEY_GROUP])
    if table.kind == EVENT_TIME:
        rows = [{WATERMARK: min(data.column(WATERMARK).to_pylist())}]
    elif _form(table) == "progress":
        rows = [_progress(table, data, operator)]
    elif _form(table) == "facts":
        rows = list({tuple(row.items()): row for row in data.to_pylist()}.values())
        known: dict[Any, set[Any]] = defaultdict(set)
        for row in rows:
            known[row[f"{ROW_PREFIX}name"]].add(row[f"{ROW_PREFIX}value"])
        if any(len(values) > 1 for values in known.values()):
            raise _unequal(table, operator)
    else:
        raise _unequal(table, operator)
    groups = pa.array(np.repeat(np.arange(most, dtype=np.int32), len(rows)))
    each = pa.Table.from_pylist(rows, schema=data.schema)
    every = each.take(pa.array(np.tile(np.arange(len(rows)), most)))
    return StateTable(
        table.name, table.kind, every.add_column(0, KEY_GROUP, groups), table.metadata
    )


def _form(table: StateTable) -> str | None:
    fields = [(field.name, field.type) for field in table.data.schema][1:]
    if not fields or fields[0] != (NAMESPACE, pa.int64()):
        return None
    if fields[1:] == _stored(PROGRESS):
        return "progress"
    if fields[1:] == _stored(FACTS) and table.name in ("layout", "layouts"):
        return "facts"
    marks = len(fields) == 2 and fields[1] in _MARKS and table.name in ("firing", "__event_firing")
    return "marks" if marks else None


def _progress(table: StateTable, data: pa.Table, operator: str) -> dict[str, Any]:
    """One row: the watermark of all, a number that is new to all, the layout of those that have
    seen records."""
    columns = {name: data.column(name).to_pylist() for name in data.column_names}
    layouts = set(columns[f"{ROW_PREFIX}layout"]) - {None}
    watermarks = set(columns[f"{ROW_PREFIX}watermark"])
    if len(watermarks) != 1 or len(layouts) > 1 or set(columns[NAMESPACE]) != {0}:
        raise _unequal(table, operator)
    return {
        NAMESPACE: 0,
        f"{ROW_PREFIX}watermark": watermarks.pop(),
        f"{ROW_PREFIX}number": max(columns[f"{ROW_PREFIX}number"]),
        f"{ROW_PREFIX}layout": layouts.pop() if layouts else None,
    }


def _unequal(table: StateTable, operator: str) -> StateError:
    return StateError(
        f"operator '{operator}', state '{table.name}': key groups have got to different points, so "
        "they cannot be cut anew: take a savepoint when the job has caught up"
    )

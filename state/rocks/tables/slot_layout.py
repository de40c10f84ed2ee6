"""The layout of slot tables in RocksDB, and how rows are read by it."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...slot_encoding import encoded
from ...stored import AccColumn, StateTable
from ...table_state import encoded_rows
from ..database.layouts import LAYOUT, Layout, Pair
from ..database.task_database import TaskDatabase
from .slot_rows import GROUP_AT, SPACE_AT, SlotRows, space_bytes, space_of


def slots_layout(keys: pa.Schema, columns: Sequence[AccColumn], width: int) -> dict[str, str]:
    """Of a table of these; `width`: how many leading key columns decide the key group."""
    named = [[column.name, str(np.dtype(column.dtype)), column.initial] for column in columns]
    schema = pa.schema([pa.field(field.name, field.type) for field in keys])
    return {
        LAYOUT: "slots",
        "keys": base64.b64encode(schema.serialize().to_pybytes()).decode("ascii"),
        "columns": json.dumps(named),
        "width": str(width),
    }


def slots_table(
    name: str, kind: str, layout: Layout, pairs: list[Pair], max_parallelism: int
) -> StateTable:
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(layout["keys"])))
    columns = [AccColumn(*one) for one in json.loads(layout["columns"])]
    rows = SlotRows(pairs[0][0][:2], schema, columns, int(layout["width"]), max_parallelism)
    places = [place for place, _ in pairs]
    numbers = rows.unpacked([data for _, data in pairs])
    arrays = {of: np.ascontiguousarray(numbers[of]) for of in numbers.dtype.names or ()}
    keys = pa.RecordBatch.from_arrays(rows.keys(places), names=schema.names)
    spaces = pa.array(map(space_of, places), pa.int64(), size=len(places))
    data = encoded_rows(rows.groups_of(places), spaces, keys, encoded(rows.columns, arrays, {}))
    return StateTable(name, kind, data)


def slot_groups(database: TaskDatabase, prefix: bytes) -> dict[int, list[int]]:
    """By namespace, the key groups of which rows lie there: one look for each of both."""
    found: dict[int, list[int]] = {}
    view, at = database.view(), prefix
    while view is not None and (place := view.first(at)) is not None and place[:2] == prefix:
        group, namespace = place[GROUP_AT:SPACE_AT], space_of(place)
        found.setdefault(namespace, []).append(int.from_bytes(group, "big"))
        at = prefix + group + space_bytes(namespace) + _BEHIND
    return found


_BEHIND = b"\xff"
"""Behind all keys, which begin with letters."""

"""The layouts of slot tables in RocksDB, and how rows are read by them: "slots" of numbers alone,
"valued" where there are values under codes, "objects" (with values or not) where keys are objects;
"typed" and "typed_valued" where one has to know a key's type to read it (`key_columns`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ....core.arrays import numpy_of
from ....core.batch import take_column
from ...names import KEY_PREFIX, NAMESPACE
from ...object_keys import ObjectKeyType
from ...slot_encoding import encoded
from ...stored import KEY_GROUP, AccColumn, StateTable
from ...stored_keys import stored_type
from ...table_state import encoded_rows
from ..database.layouts import LAYOUT, Layout, Pair
from ..database.task_database import TaskDatabase
from .key_columns import is_typed, plain_column
from .object_rows import ObjectRows
from .slot_rows import GROUP_AT, SPACE_AT, SlotRows, pieces, space_bytes, space_of
from .valued_rows import ValuedRows

PIECE, PIECE_BYTES = 1 << 16, 16 << 20
"""So many rows with values make a table, or of so many bytes."""


_TYPED = {"slots": "typed", "valued": "typed_valued"}


def slots_layout(
    keys: pa.Schema, columns: Sequence[AccColumn], width: int, values: pa.Schema
) -> dict[str, str]:
    """Of a table of these; `width`: how many leading key columns decide the key group; `values`:
    see `SlotRows`."""
    named = [[column.name, str(np.dtype(column.dtype)), column.initial] for column in columns]
    objects = any(isinstance(kind, ObjectKeyType) for kind in keys.types)
    kinds = [stored_type(kind) for kind in keys.types] if objects else keys.types
    pairs = zip(keys.names, kinds, strict=True)
    typed = any(is_typed(kind) for kind in kinds)
    plain = "valued" if len(values) else "slots"
    layout = {
        LAYOUT: "objects" if objects else _TYPED[plain] if typed else plain,
        "keys": _text(pa.schema([pa.field(name, kind) for name, kind in pairs])),
        "columns": json.dumps(named),
        "width": str(width),
    }
    return layout | {"coded": _text(values)} if objects or len(values) else layout


def make_rows(
    prefix: bytes,
    keys: pa.Schema,
    columns: Sequence[AccColumn],
    width: int,
    max_parallelism: int,
    values: pa.Schema,
) -> SlotRows:
    """Those of a table of these: see `slots_layout`."""
    of = prefix, keys, columns, width, max_parallelism
    if isinstance(keys.types[0], ObjectKeyType):
        return ObjectRows(*of, values)
    return ValuedRows(*of, values) if len(values) else SlotRows(*of)


def slot_rows(layout: Layout, prefix: bytes, max_parallelism: int) -> SlotRows:
    """The rows of a state in this layout."""
    columns = [AccColumn(*one) for one in json.loads(layout["columns"])]
    of = prefix, _schema(layout["keys"]), columns, int(layout["width"]), max_parallelism
    if "coded" not in layout:
        return SlotRows(*of)
    made = ObjectRows if layout[LAYOUT] == "objects" else ValuedRows
    return made(*of, _schema(layout["coded"]))


def stored_keys(layout: Layout) -> pa.Schema:
    """The key columns of a layout."""
    return _schema(layout["keys"])


def _text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def slots_table(
    name: str, kind: str, layout: Layout, pairs: list[Pair], max_parallelism: int
) -> StateTable:
    rows = slot_rows(layout, pairs[0][0][:2], max_parallelism)
    places = [place for place, _ in pairs]
    packed = [data for _, data in pairs]
    numbers, values = rows.read(packed)
    arrays = {of: np.ascontiguousarray(numbers[of]) for of in numbers.dtype.names or ()}
    names = _schema(layout["keys"]).names
    keys = pa.RecordBatch.from_arrays(rows.stored_keys(places, packed), names=names)
    spaces = pa.array(map(space_of, places), pa.int64(), size=len(places))
    columns = [
        (column, values[column.name]) if column.name in values else encoded([column], arrays, {})[0]
        for column in rows.columns
    ]
    data = encoded_rows(rows.groups_of(places), spaces, keys, columns)
    return StateTable(name, kind, data)


def places_in(
    layout: Layout, prefix: bytes, table: StateTable, max_parallelism: int
) -> list[bytes]:
    """Where rows of the keys in a table lie, as `slots_table` makes it; the keys are columns."""
    rows, data = slot_rows(layout, prefix, max_parallelism), table.data
    if not data.num_rows:
        return []
    keys = stored_keys(layout)
    columns = [pa.concat_arrays(data.column(KEY_PREFIX + name).chunks) for name in keys.names]
    spaces, groups = numpy_of(data.column(NAMESPACE)), numpy_of(data.column(KEY_GROUP))
    found: list[bytes] = []
    for space in np.unique(spaces).tolist():
        at = np.flatnonzero(spaces == space)
        some = [take_column(column, pa.array(at)) for column in columns]
        own = [plain_column(column, kind) for column, kind in zip(some, rows.kinds, strict=True)]
        found += rows.places(own, space, groups[at])
    return found


def valued_pieces(layout: Layout, pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    """Rows with values, in lists that are bounded by bytes, too."""
    return pieces(pairs, PIECE, PIECE_BYTES)


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

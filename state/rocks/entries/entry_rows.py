"""Entries of keys as RocksDB holds them: all of a key in one row.

    state (2 bytes) | key group (2) | 0 | key  ->  entries (`entry_forms`)

Keys are as of a slot table (`slot_rows`, or `object_rows`), and there is a number for each word
that is state. The owner is told by the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core.arrays import Slots, numpy_of
from ...away import Entries
from ...live_keys import LiveKeys
from ...object_keys import ObjectKeyType
from ...slot_encoding import encoded
from ...stored import KEY_GROUP, AccColumn, StateTable
from ...table_state import encoded_rows
from ..database.layouts import LAYOUT, Layout, Pair
from ..tables.object_rows import objects_fit
from ..tables.slot_layout import slot_rows, slots_layout, stored_keys
from ..tables.slot_rows import fits
from .entry_forms import make_form

OWNED = "owned"
VALUED = "owned_valued"
OBJECTS = "owned_objects"
"""The layouts' names: of entries that are numbers alone, of those with values, and of those (with
values or not) whose keys are objects."""

_NAMES = {
    "slots": OWNED,
    "valued": VALUED,
    "objects": OBJECTS,
    "typed": "owned_typed",
    "typed_valued": "owned_typed_valued",
}
"""By the name of a table's layout."""


def flat_columns(columns: Sequence[AccColumn], owner: str) -> list[AccColumn]:
    """A column for each number that is stored of an entry: for words their names."""
    flat: list[AccColumn] = []
    for column in columns:
        if column.words:
            named = [name for name in column.words if name is not None and name != owner]
            flat += [AccColumn(name, "int64") for name in named]
        elif column.name != owner:
            flat.append(column)
    return flat


def kept_keys(keys: LiveKeys) -> pa.Schema:
    """The key columns as they are kept, but those of codes with the objects' type."""
    pairs = zip(keys.kept, keys.kinds, strict=True)
    return pa.schema([f.with_type(k) if is_objects(k) else f for f, k in pairs])


def is_objects(kind: pa.DataType) -> bool:
    return isinstance(kind, ObjectKeyType)


def entries_fit(keys: LiveKeys, columns: Sequence[AccColumn], owner: str) -> bool:
    """Whether entries of these have rows as bytes, of those of their keys that have bytes."""
    schema, flat = kept_keys(keys), flat_columns(columns, owner)
    return fits(schema, flat) or objects_fit(schema, flat)


def owned_layout(
    keys: pa.Schema, columns: Sequence[AccColumn], values: pa.Schema
) -> dict[str, str]:
    """Of entries with these flat columns; `values`: see `ValuedForm`."""
    layout = slots_layout(keys, columns, len(keys), values)
    return layout | {LAYOUT: _NAMES[layout[LAYOUT]]}


def owned_table(
    name: str, kind: str, layout: Layout, pairs: list[Pair], max_parallelism: int
) -> StateTable:
    """As of `EntryFreeze`, in order of places."""
    rows = slot_rows(layout, pairs[0][0][:2], max_parallelism)
    places = [place for place, _ in pairs]
    owned = make_form(rows.columns, rows.values, layout[LAYOUT] == OBJECTS).read(
        [row for _, row in pairs]
    )
    numbers, values = owned.numbers, owned.values
    arrays = {of: np.ascontiguousarray(numbers[of]) for of in numbers.dtype.names or ()}
    columns = [
        (column, values[column.name]) if column.name in values else encoded([column], arrays, {})[0]
        for column in rows.columns
    ]
    own = rows.keys(places) if owned.pickles is None else [owned.pickles]
    each = np.repeat(np.arange(len(pairs)), owned.counts)
    at = pa.array(each)
    names = stored_keys(layout).names
    keys = pa.RecordBatch.from_arrays([column.take(at) for column in own], names=names)
    return StateTable(name, kind, encoded_rows(rows.groups_of(places)[each], None, keys, columns))


def entries_in(
    columns: Sequence[AccColumn],
    arrays: Mapping[str, npt.NDArray[Any]],
    slots: Slots,
    into: Entries,
) -> Entries:
    """What these slots hold. `columns`: as declared; `into`: entries to be filled."""
    stored = into.dtype.names or ()
    for column in columns:
        if column.words:
            words = arrays[column.name].view(np.int64).reshape(-1, len(column.words))
            for at, name in enumerate(column.words):
                if name in stored:
                    into[name] = words[slots, at]
        elif column.name in stored:
            into[column.name] = arrays[column.name][slots]
    return into


def fill_entries(
    columns: Sequence[AccColumn],
    arrays: Mapping[str, npt.NDArray[Any]],
    slots: Slots,
    entries: Entries,
) -> None:
    """The same the other way."""
    stored = entries.dtype.names or ()
    for column in columns:
        if column.words:
            words = arrays[column.name].view(np.int64).reshape(-1, len(column.words))
            for at, name in enumerate(column.words):
                if name in stored:
                    words[slots, at] = entries[name]
        elif column.name in stored:
            arrays[column.name][slots] = entries[column.name]


def pieces_of(table: StateTable, most: int) -> Iterator[StateTable]:
    """About so many rows at a time; all entries of a key group, so of a key, are in one piece."""
    count = table.data.num_rows
    if count <= most:
        yield table
        return
    groups = numpy_of(table.data.column(KEY_GROUP))
    start = 0
    while start < count:
        stop = min(start + most, count)
        stop = int(np.searchsorted(groups, groups[stop - 1], side="right"))
        yield replace(table, data=table.data.slice(start, stop - start))
        start = stop

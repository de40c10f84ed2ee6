"""Entries of keys as RocksDB holds them: all of a key in one row, one behind the other.

    state (2 bytes) | key group (2) | 0 | key  ->  numbers of an entry, of the next one, ...

Keys and numbers are as of a slot table (`slot_rows`), with a number for each word that is state.
The owner is told by the key.
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
from ..tables.slot_layout import slot_rows, slots_layout, stored_keys
from ..tables.slot_rows import SlotRows, fits

OWNED = "owned"
"""The layout's name."""


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


def entries_fit(keys: LiveKeys, columns: Sequence[AccColumn], owner: str) -> bool:
    """Whether entries of these have rows as bytes. Objects' codes are numbers, and mean nothing but
    to the table that gave them."""
    if any(isinstance(kind, ObjectKeyType) for kind in keys.kinds):
        return False
    return fits(keys.kept, flat_columns(columns, owner))


def owned_layout(keys: pa.Schema, columns: Sequence[AccColumn]) -> dict[str, str]:
    """Of entries with these flat columns."""
    return slots_layout(keys, columns, len(keys), pa.schema([])) | {LAYOUT: OWNED}


def owned_table(
    name: str, kind: str, layout: Layout, pairs: list[Pair], max_parallelism: int
) -> StateTable:
    """As of `EntryFreeze`, in order of places."""
    schema = stored_keys(layout)
    rows = slot_rows(layout, pairs[0][0][:2], max_parallelism)
    columns = rows.columns
    places = [place for place, _ in pairs]
    data = [row for _, row in pairs]
    entries = rows.unpacked(data)
    each = np.repeat(np.arange(len(pairs)), counts_of(rows, data))
    arrays = {of: np.ascontiguousarray(entries[of]) for of in entries.dtype.names or ()}
    at = pa.array(each)
    keys = pa.RecordBatch.from_arrays(
        [column.take(at) for column in rows.keys(places)], names=schema.names
    )
    groups = rows.groups_of(places)[each]
    return StateTable(name, kind, encoded_rows(groups, None, keys, encoded(columns, arrays, {})))


def counts_of(rows: SlotRows, data: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """How many entries each of these has."""
    lengths = np.fromiter([len(row) for row in data], np.int64, len(data))
    return lengths // rows.size


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


def cut(entries: Entries, counts: npt.NDArray[np.int64]) -> list[bytes]:
    """As bytes, so many together each."""
    data, width = entries.tobytes(), entries.dtype.itemsize
    ends = np.cumsum(counts) * width
    starts = ends - counts * width
    return [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


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

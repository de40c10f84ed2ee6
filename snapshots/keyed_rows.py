"""Single keys of a stored keyed state: found, changed, added, removed.

A key is found as state tells keys apart: 1, 1.0 and True are three. What a column's type cannot
hold makes the column one of pickles, as a task's snapshot would.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.batch import take_table
from ..core.errors import StateError
from ..core.key_kinds import held_key
from ..core.keys import findable
from ..state.encoding import PICKLE, decode, encode, pickled
from ..state.expiry import PROCESSING_STAMP, UNKNOWN
from ..state.key_groups import group_order, key_group, key_groups_of
from ..state.names import ACC_PREFIX, KEY_PREFIX
from ..state.pickling import dumps
from ..state.row_tables import KEY, MAP_KEY, NAMESPACE, VALUE
from ..state.stored import KEY_GROUP, StateTable
from .columns import shown_names
from .descriptions import UnreadableError
from .keys import certain
from .pickles import are_pickles, described
from .stored import ROW_KINDS

ALL: Final = object()
"""Every namespace, or every entry of a map."""

Mask = npt.NDArray[np.bool_]


def sorted_by_group(table: StateTable, data: pa.Table, groups: npt.NDArray[np.int32]) -> StateTable:
    """The state with these rows, which are in these key groups."""
    order = group_order(groups)
    data = take_table(data, pa.array(order))
    data = data.set_column(0, pa.field(KEY_GROUP, pa.int32()), pa.array(groups[order]))
    return StateTable(table.name, table.kind, data.combine_chunks(), dict(table.metadata))


def put(
    table: StateTable,
    key: Any,
    value: Any,
    map_key: Any,
    namespace: Any,
    stamp: int | None,
    max_parallelism: int,
) -> StateTable:
    """A row-face state in which the key has this value."""
    of_key = _rows_of(table, {KEY: key, NAMESPACE: namespace})
    map_keys: list[Any] | None = None
    match table.kind:
        case "list":
            if not isinstance(value, (list, tuple)):
                raise StateError(f"state '{table.name}' is a list: give all its elements as a list")
            values, gone = list(value), of_key
        case "map" if map_key is not ALL:
            values, map_keys = [value], [map_key]
            gone = of_key & _is(table, MAP_KEY, map_key)
        case "map":
            if not isinstance(value, dict):
                raise StateError(f"state '{table.name}' is a map: give a dict, or map_key=")
            values, map_keys, gone = list(value.values()), list(value), of_key
        case _:
            if value is None:
                raise StateError(f"state '{table.name}': None is no value: remove the key instead")
            values, gone = [value], of_key
    columns: dict[str, list[Any]] = {
        KEY: [key] * len(values),
        NAMESPACE: [namespace] * len(values),
        VALUE: values,
    }
    if map_keys is not None:
        columns[MAP_KEY] = map_keys
    for name in table.data.column_names:
        if name.endswith("_stamp"):
            columns[name] = [_stamp(table, name, gone, stamp)] * len(values)
    group = key_group(findable([key])[0], max_parallelism)
    return _with_rows(_without(table, gone), columns, group)


def put_columns(
    table: StateTable, key: Any, values: Any, namespace: int, max_parallelism: int
) -> StateTable:
    """A table of numbers per key in which the key has these values in these columns."""
    if table.kind != "table":
        raise StateError(
            f"state '{table.name}' is kept as '{table.kind}', of which single keys cannot be set: "
            "values, lists, maps and tables can"
        )
    data = table.data
    parts = _parts(table, key)
    names = {shown: name for name, shown in shown_names(data.column_names).items()}
    unknown = [one for one in values if not names.get(one, "").startswith(ACC_PREFIX)]
    if unknown:
        known = sorted(one for one, name in names.items() if name.startswith(ACC_PREFIX))
        raise StateError(f"state '{table.name}' has no columns {unknown} to set, only {known}")
    mask = _rows_of(table, {**parts, NAMESPACE: namespace})
    if not mask.any():
        row = {names[shown]: value for shown, value in values.items()} | parts
        row[NAMESPACE] = namespace
        missing = [n for n in data.column_names[1:] if n not in row]
        if missing:
            shown = sorted(name for name, one in names.items() if one in missing)
            raise StateError(
                f"state '{table.name}': a new key needs all columns, not without {shown}"
            )
        return _with_row(table, row, list(parts), max_parallelism)
    at = pa.array(mask)
    for shown, value in values.items():
        field = data.schema.field(names[shown])
        new = pa.array([value] * data.num_rows, field.type)
        old = data.column(field.name).combine_chunks()
        place = data.schema.get_field_index(field.name)
        data = data.set_column(place, field, pa.compute.if_else(at, new, old))
    return StateTable(table.name, table.kind, data, dict(table.metadata))


def _with_row(
    table: StateTable, row: dict[str, Any], keys: list[str], max_parallelism: int
) -> StateTable:
    """One row more, of these stored columns."""
    data = table.data
    if _holds_pickles(table, keys[0]):
        group = np.array([key_group(findable([row[keys[0]]])[0], max_parallelism)], np.int32)
        row = {**row, keys[0]: dumps(row[keys[0]], f"key of state '{table.name}'")}
    else:
        width = len(certain(table, max_parallelism).columns) if data.num_rows else len(keys)
        parts = [pa.array([row[name]], data.schema.field(name).type) for name in keys[:width]]
        batch = pa.RecordBatch.from_arrays(parts, names=[str(at) for at in range(width)])
        group = key_groups_of(batch, max_parallelism)
    columns = [pa.array([row[f.name]], f.type) for f in list(data.schema)[1:]]
    made = pa.Table.from_arrays([pa.array(group), *columns], schema=data.schema)
    data = pa.concat_tables([data, made])
    groups = data.column(KEY_GROUP).to_numpy().astype(np.int32)
    return sorted_by_group(table, data, groups)


def removed(
    table: StateTable, key: Any, map_key: Any, namespace: Any, max_parallelism: int
) -> StateTable:
    """The state without the key. StateError if it is not there."""
    if table.kind in ROW_KINDS or table.kind == "timers":
        wanted: dict[str, Any] = {KEY: key}
        if map_key is not ALL:
            if table.kind != "map":
                raise StateError(f"state '{table.name}' is no map, it has no map keys")
            wanted[MAP_KEY] = map_key
    else:
        wanted = _parts(table, key)
    if namespace is not ALL:
        wanted[NAMESPACE] = namespace
    gone = _rows_of(table, wanted)
    if not gone.any():
        shown = key if map_key is ALL else (key, map_key)
        raise StateError(f"state '{table.name}' has nothing under {shown!r} to remove")
    return _without(table, gone)


def _parts(table: StateTable, key: Any) -> dict[str, Any]:
    """The stored key columns and what a key has in them."""
    names = [name for name in table.data.column_names if name.startswith(KEY_PREFIX)]
    if not names:
        raise StateError(
            f"state '{table.name}' is kept as '{table.kind}', of which single keys cannot be told"
        )
    parts = key if isinstance(key, (tuple, list)) and len(names) > 1 else [key]
    if len(parts) != len(names):
        raise StateError(
            f"state '{table.name}': the key {key!r} has {len(parts)} parts, the state has "
            f"{[name.removeprefix(KEY_PREFIX) for name in names]}"
        )
    return dict(zip(names, parts, strict=True))


def _rows_of(table: StateTable, wanted: dict[str, Any]) -> Mask:
    mask = np.ones(table.data.num_rows, bool)
    for column, value in wanted.items():
        if mask.any():
            mask &= _is(table, column, value)
    return mask


def _is(table: StateTable, column: str, value: Any) -> Mask:
    """Which rows of a column have exactly this value."""
    data = table.data.column(column)
    count = table.data.num_rows
    if table.metadata.get(column) == PICKLE or _holds_pickles(table, column):
        wanted = described(dumps(value, f"{column} of state '{table.name}'"))
        known: dict[bytes, bool] = {}
        for one in data.to_pylist():
            if one not in known:
                known[one] = _same(one, wanted)
        return np.fromiter((known[one] for one in data.to_pylist()), bool, count)
    held = held_key(findable([value])[0])
    found = findable(data.to_pylist())
    return np.fromiter((held_key(one) == held for one in found), bool, count)


def _holds_pickles(table: StateTable, column: str) -> bool:
    if not (column.startswith(KEY_PREFIX) and table.data.num_rows):
        return False
    if not pa.types.is_large_binary(table.data.schema.field(column).type):
        return False
    return are_pickles(table.data.column(column).to_pylist())


def _same(data: bytes, wanted: Any) -> bool:
    try:
        found = described(data)
        return type(found) is type(wanted) and bool(found == wanted) and repr(found) == repr(wanted)
    except UnreadableError:
        return False


def _without(table: StateTable, gone: Mask) -> StateTable:
    data = table.data.filter(pa.array(~gone)) if gone.any() else table.data
    return StateTable(table.name, table.kind, data, dict(table.metadata))


def _stamp(table: StateTable, column: str, gone: Mask, stamp: int | None) -> int:
    if stamp is not None:
        return stamp
    if gone.any():
        return int(max(table.data.column(column).filter(pa.array(gone)).to_pylist()))
    return int(time.time() * 1000) if column == PROCESSING_STAMP else UNKNOWN


def _with_rows(table: StateTable, columns: Mapping[str, Sequence[Any]], group: int) -> StateTable:
    """The state with these rows behind the others of their key group."""
    count = len(columns[KEY])
    if not count:
        return table
    metadata = dict(table.metadata)
    old, made = table.data, [pa.array([group] * count, pa.int32())]
    for at, name in enumerate(table.data.column_names[1:], 1):
        what = f"{name} of state '{table.name}'"
        array, encoding = encode(list(columns[name]), what)
        own = metadata[name]
        if array.null_count == count:
            array, encoding = encode([None] * count, what)
            encoding = own if own != PICKLE else encoding
            array = pa.nulls(count, old.schema.field(at).type) if own != PICKLE else array
        if encoding != own and old.column(at).null_count == old.num_rows and own != PICKLE:
            old = old.set_column(at, name, pa.nulls(old.num_rows, array.type))
            metadata[name] = encoding
        elif encoding != own:
            array = pickled(list(columns[name]), what)
            if own != PICKLE:
                old = old.set_column(at, name, pickled(decode(old.column(at), own, what), what))
            metadata[name] = PICKLE
        made.append(array)
    data = pa.concat_tables([old, pa.Table.from_arrays(made, schema=old.schema)])
    groups = data.column(KEY_GROUP).to_numpy().astype(np.int32)
    return sorted_by_group(StateTable(table.name, table.kind, data, metadata), data, groups)

"""State of whole tables, a row for each value, element, entry or key."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..core.column_values import python_values
from ..core.errors import StateError
from ..core.key_kinds import held_key
from ..core.keys import findable
from ..core.row import make_row
from ..state.encoding import encode
from ..state.expiry import EVENT_STAMP, PROCESSING_STAMP, UNKNOWN
from ..state.group_sort import sorted_by_group
from ..state.key_groups import key_groups_of
from ..state.names import ACC_PREFIX, KEY_PREFIX
from ..state.row_tables import KEY, MAP_KEY, NAMESPACE, VALUE, groups_of_keys
from ..state.stored import KEY_GROUP, StateTable
from ..state.stored_keys import stored_type
from .frames import Frame, column_of, table_of

Names = str | Sequence[str]
"""One column, or several."""


class Filled(ABC):
    """What `Edits` can be filled with. A state of the name that is there already is replaced.

    uid: the operator's, in the program that is to have the state; state: the name of its
    descriptor. key, value, map_key: columns; several are a tuple as key, a Row as value. Values are
    those that the program would have from such columns."""

    def value(
        self, uid: str, state: str, data: Frame, *, key: Names, value: Names, stamp: str = ""
    ) -> Any:
        """A value state: a row for each key. stamp: "processing" or "event" for a state with a time
        to live of that time, which counts from now, or from the first watermark."""
        return self._rows(uid, state, "value", data, key, value, None, stamp)

    def list(
        self, uid: str, state: str, data: Frame, *, key: Names, value: Names, stamp: str = ""
    ) -> Any:
        """A list state: a row for each element, in order."""
        return self._rows(uid, state, "list", data, key, value, None, stamp)

    def map(
        self,
        uid: str,
        state: str,
        data: Frame,
        *,
        key: Names,
        map_key: Names,
        value: Names,
        stamp: str = "",
    ) -> Any:
        """A map state: a row for each entry."""
        return self._rows(uid, state, "map", data, key, value, map_key, stamp)

    def reducing(self, uid: str, state: str, data: Frame, *, key: Names, value: Names) -> Any:
        """A reducing state: the reduction so far of each key."""
        return self._rows(uid, state, "reducing", data, key, value, None, "")

    def aggregating(self, uid: str, state: str, data: Frame, *, key: Names, value: Names) -> Any:
        """An aggregating state: the accumulator of each key."""
        return self._rows(uid, state, "aggregating", data, key, value, None, "")

    def table(
        self,
        uid: str,
        state: str,
        data: Frame,
        *,
        keys: Names,
        columns: Mapping[str, str] | Sequence[str],
        namespace: str | None = None,
        like: pa.Schema | None = None,
    ) -> Any:
        """Numbers per key, as built-in aggregates keep them. `columns`: those of `data` by the
        names they have in the state (as `open(...).table` shows of a snapshot of such a job), or
        the names, if they are the same. namespace: the column of windows' or slices' times; None:
        0, as aggregates without windows have. like: the schema that the job's state has, of
        `open(...).table(..., raw=True)`, for the types; None: those of `data`, which must be
        the same."""
        names = [keys] if isinstance(keys, str) else [*keys]
        stored = dict(columns) if isinstance(columns, Mapping) else {one: one for one in columns}
        source = table_of(data)
        found = [_plain(column_of(source, name, state)) for name in names]
        _check_distinct(source, [*names, *([namespace] if namespace else [])], state)
        groups = key_groups_of(pa.RecordBatch.from_arrays(found, names=names), self._most_of(uid))
        spaces = (
            pa.array(np.zeros(source.num_rows, np.int64))
            if namespace is None
            else column_of(source, namespace, state).cast(pa.int64())
        )
        made = {KEY_GROUP: pa.array(groups), NAMESPACE: spaces}
        for name, column in zip(names, found, strict=True):
            made[KEY_PREFIX + name] = column
        for name, column in stored.items():
            made[ACC_PREFIX + name] = column_of(source, column, state)
        rows = sorted_by_group([pa.table(made)])
        if like is not None:
            rows = _as_stored(rows, like, state)
        self._add(uid, StateTable(state, "table", rows))
        return self

    @abstractmethod
    def _add(self, uid: str, made: StateTable) -> None:
        """Let the operator have this state."""

    @abstractmethod
    def _most_of(self, uid: str) -> int:
        """The max parallelism of the operator."""

    def _rows(
        self,
        uid: str,
        state: str,
        kind: str,
        data: Frame,
        key: Names,
        value: Names,
        map_key: Names | None,
        stamp: str,
    ) -> Any:
        source = table_of(data)
        if kind != "list":
            names = [*_listed(key), *(() if map_key is None else _listed(map_key))]
            _check_distinct(source, names, state)
        what = f"state '{state}'"
        keys = findable(_values(source, key, state, as_row=False))
        column, encoding = encode(keys, f"key of {what}")
        groups = groups_of_keys(keys, column, encoding, self._most_of(uid))
        columns = {NAMESPACE: encode([None] * len(keys), what), KEY: (column, encoding)}
        if map_key is not None:
            found = _values(source, map_key, state, as_row=False)
            columns[MAP_KEY] = encode(found, f"map key of {what}")
        values = _values(source, value, state, as_row=True)
        if kind not in ("list", "map") and None in values:
            raise StateError(f"{what}: row {values.index(None)} has no value: leave it out")
        columns[VALUE] = encode(values, f"value of {what}")
        if stamp:
            name, at = _stamps(stamp, what)
            columns[name] = (pa.array(np.full(len(keys), at, np.int64)), "int")
        made = {KEY_GROUP: pa.array(groups)} | {name: one for name, (one, _) in columns.items()}
        rows = sorted_by_group([pa.table(made)])
        metadata = {name: one for name, (_, one) in columns.items()}
        self._add(uid, StateTable(state, kind, rows, metadata))
        return self


def _listed(names: Names) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


def _values(source: pa.Table, names: Names, state: str, as_row: bool) -> list[Any]:
    if isinstance(names, str):
        return python_values(column_of(source, names, state))
    parts = [python_values(column_of(source, name, state)) for name in names]
    rows = zip(*parts, strict=True)
    return [make_row(tuple(names), row) for row in rows] if as_row else [*rows]


def _stamps(time_of: str, what: str) -> tuple[str, int]:
    if time_of == "processing":
        return PROCESSING_STAMP, int(time.time() * 1000)
    if time_of == "event":
        return EVENT_STAMP, UNKNOWN
    raise StateError(f"{what}: stamp is 'processing' or 'event', not '{time_of}'")


def _check_distinct(source: pa.Table, names: Sequence[str], state: str) -> None:
    """StateError if a key is there twice: one of its values would be lost."""
    for name in names:
        column_of(source, name, state)
    keys = source.select(list(names))
    try:
        distinct = keys.group_by(list(names)).aggregate([]).num_rows
    except pa.ArrowNotImplementedError:  # of lists and structs
        columns = [findable(python_values(column)) for column in keys.columns]
        try:
            distinct = len({tuple(map(held_key, row)) for row in zip(*columns, strict=True)})
        except TypeError as error:
            kinds = ", ".join(f"{field.name}: {field.type}" for field in keys.schema)
            raise StateError(f"state '{state}': {kinds}: {error}, and so no keys") from error
    if distinct < source.num_rows:
        raise StateError(f"state '{state}': keys are there twice in the columns {list(names)}")


def _as_stored(rows: pa.Table, like: pa.Schema, state: str) -> pa.Table:
    if sorted(rows.column_names) != sorted(like.names):
        raise StateError(
            f"state '{state}': it would have the columns {sorted(rows.column_names)}, and is to "
            f"have {sorted(like.names)}"
        )
    try:
        return rows.select(like.names).cast(like)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise StateError(f"state '{state}': {error}; wanted are {like.names}") from error


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = stored_type(column.type)
    return column if column.type == kind else column.cast(kind)

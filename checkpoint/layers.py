"""A base and the deltas over it, put together again: what a state held at a checkpoint.

On the files' contents alone; `state.increments` says what they mean. From the newest layer to the
oldest: a row is left out if a newer layer has its identity, or has removed its scope.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.arrays import Bools, numpy_of
from ..core.batch import take_table
from ..core.errors import CorruptCheckpointError
from ..state.carry import join
from ..state.increments import (
    BESIDE,
    EVERY_GROUP,
    IDENTITY,
    OWNER,
    PART,
    REMOVED,
    SCOPE,
    SLOT,
)
from ..state.key_index import CompositeIndex
from ..state.stored import KEY_GROUP, StateTable

_LEFT_OUT = tuple(name for name in BESIDE if name != SLOT)


def flattened(layers: Sequence[StateTable]) -> list[StateTable]:
    """The rows that count of one state of one former subtask, as whole tables, the oldest layer's
    first; those of a layer stay in order. `layers`: the oldest first, of each all its rows or those
    of some key groups, and of deltas the rows that are for every reader."""
    newer: dict[tuple[str, ...], _Seen] = {}
    kept = []
    placed = any(layer.kind == "map" and layer.layer == "delta" for layer in layers)
    places = _Places(layers) if placed else None
    for layer in reversed(layers):
        data = scopes = layer.data
        metadata = {k: v for k, v in layer.metadata.items() if k not in (IDENTITY, SCOPE)}
        if layer.layer == "delta":
            data, scopes = _parted(layer)
        keep = np.ones(data.num_rows, dtype=np.bool_)
        for seen in newer.values():
            keep &= ~seen.has(data)
        if layer.layer == "delta":
            for key, rows in ((SCOPE, scopes), (IDENTITY, data)):
                columns = _columns(layer, key)
                newer.setdefault(columns, _Seen(columns)).add(rows)
            keep &= ~numpy_of(data.column(REMOVED))
        if not keep.all():
            data = take_table(data, pa.array(np.flatnonzero(keep)))
        if data.num_rows:
            if places is not None:
                data = data.append_column(SLOT, places.of(data))
            data = data.drop_columns([n for n in _LEFT_OUT if n in data.column_names])
            kept.append(StateTable(layer.name, layer.kind, data, metadata))
    return _in_order(kept[::-1])


def _in_order(tables: list[StateTable]) -> list[StateTable]:
    """Rows of places in the order of these, as whole snapshots have them, without the places."""
    if not tables or SLOT not in tables[0].data.column_names:
        return tables
    joined = join(tables)
    places = numpy_of(joined.data.column(SLOT))
    order = np.lexsort((places, numpy_of(joined.data.column(KEY_GROUP))))
    data = take_table(joined.data.drop_columns([SLOT]), pa.array(order))
    return [StateTable(joined.name, joined.kind, data, joined.metadata)]


class _Places:
    """Where the entries of maps are among each other: a row has the place of the one it replaces,
    unless that is also removed."""

    def __init__(self, layers: Sequence[StateTable]) -> None:
        """`layers`: the oldest first."""
        for layer in layers:
            missing = {OWNER, PART}.difference(layer.data.column_names)
            if missing:
                raise CorruptCheckpointError(
                    f"state '{layer.name}': a layer of a map without columns {sorted(missing)}"
                )
        schema = layers[0].data.select([OWNER, PART]).schema
        self._rows, self._owners = CompositeIndex(schema), CompositeIndex(schema.remove(1))
        places = np.empty(0, np.int64)
        """By number of a row; -1: it is gone."""
        owners = np.empty(0, np.int64)
        next_place = 0
        for layer in layers:
            data, scopes = layer.data, layer.data.slice(0, 0)
            if layer.layer == "delta":
                data, scopes = _parted(layer)
                gone = self._owners.find(_arrays(scopes, [OWNER]))
                places[np.isin(owners, gone[gone >= 0])] = -1
                removed = data.column(REMOVED)
                gone = self._rows.find(_arrays(data.filter(removed), [OWNER, PART]))
                places[gone[gone >= 0]] = -1
                data = data.filter(pc.invert(removed))
            rows = self._rows.upsert(_arrays(data, [OWNER, PART]))
            places = np.append(places, np.full(len(self._rows) - len(places), -1))
            owners = np.append(owners, np.full(len(places) - len(owners), -1))
            owners[rows] = self._owners.upsert(_arrays(data, [OWNER]))
            new = places[rows] < 0
            places[rows[new]] = next_place + np.flatnonzero(new)
            next_place += len(rows)
        self._places = places

    def of(self, data: pa.Table) -> pa.Array:
        """The places of rows that count."""
        return pa.array(self._places[self._rows.find(_arrays(data, [OWNER, PART]))])


def _parted(layer: StateTable) -> tuple[pa.Table, pa.Table]:
    """The rows of key groups, and those for every reader, which come first."""
    groups = numpy_of(layer.data.column(KEY_GROUP))
    first = int(np.searchsorted(groups, EVERY_GROUP, side="right"))
    return layer.data.slice(first), layer.data.slice(0, first)


def _columns(layer: StateTable, key: str) -> tuple[str, ...]:
    try:
        names = json.loads(layer.metadata[key])
        missing = [name for name in names if name not in layer.data.column_names]
    except (KeyError, ValueError, TypeError) as error:
        raise CorruptCheckpointError(
            f"state '{layer.name}': a delta without a list of columns as its '{key}': {error!r}"
        ) from error
    if missing or not names:
        raise CorruptCheckpointError(
            f"state '{layer.name}': the '{key}' of a delta is {names}, its columns are "
            f"{layer.data.column_names}"
        )
    return tuple(names)


class _Seen:
    """The values of some columns that newer layers have."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._index: CompositeIndex | None = None

    def has(self, rows: pa.Table) -> Bools:
        """Of each row, whether its values are among them."""
        if self._index is None or not rows.num_rows:
            return np.zeros(rows.num_rows, dtype=np.bool_)
        found: Bools = self._index.find(self._arrays(rows)) >= 0
        return found

    def add(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        if self._index is None:
            self._index = CompositeIndex(rows.select(self._columns).schema)
        self._index.upsert(self._arrays(rows))

    def _arrays(self, rows: pa.Table) -> list[pa.Array]:
        return _arrays(rows, self._columns)


def _arrays(rows: pa.Table, columns: Sequence[str]) -> list[pa.Array]:
    found = [rows.column(name) for name in columns]
    return [pa.concat_arrays(c.chunks) if c.chunks else pa.array([], c.type) for c in found]

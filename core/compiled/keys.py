"""Keys that a function makes, on columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ..batch import Batch, ColumnBatch
from .kinds import Kind
from .program import Constant, Shape, kind
from .results import objects
from .running import Leaf
from .tried import Tried

_HASHED = (Kind.BOOL, Kind.INT, Kind.TEXT)
"""Of columns of these kinds the hash is the one of their values."""


class KeysByColumns(Tried):
    """Of one key function."""

    def keys(self, batch: Batch) -> list[Any] | None:
        """What the function gives for each record; None: it has to be called."""
        made: list[Any] | None = self.tried(batch, _objects)
        return made

    def hashed(self, batch: Batch) -> pa.RecordBatch | list[Any] | None:
        """Columns that have the same hash as the keys, several for keys that are tuples, where
        there are such; else what the function gives, as `keys`."""
        made: pa.RecordBatch | list[Any] | None = self.tried(batch, _hashed)
        return made


def _objects(leaves: list[Leaf], batch: ColumnBatch, prepared: Any) -> list[Any]:
    return objects(leaves, len(batch))


def _hashed(leaves: list[Leaf], batch: ColumnBatch, prepared: Any) -> pa.RecordBatch | list[Any]:
    columns = _columns(leaves)
    return _objects(leaves, batch, prepared) if columns is None else columns


def _columns(leaves: list[Leaf]) -> pa.RecordBatch | None:
    (rows, group), *more = leaves
    parts = [part for part in group.parts if not isinstance(part, Constant)]
    plain = len(parts) == len(group.parts) and all(kind(part) in _HASHED for part in parts)
    one = group.shape is Shape.ONE
    if more or not plain or not (one or (group.shape is Shape.TUPLE and len(parts) > 1)):
        return None
    names = [f"f{at}" for at in range(len(parts))]
    return pa.RecordBatch.from_arrays([rows.of(part) for part in parts], names)

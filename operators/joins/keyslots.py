"""Keys of both sides of a join as dense slots, and the key groups of rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s, numpy_of
from ...core.batch import ColumnBatch, schema_text
from ...core.errors import TypeMismatchError
from ...core.key_types import widened_keys
from ...core.keys import KeySelector
from ...state.key_groups import key_groups_of
from ...state.key_index import CompositeIndex
from ...state.rows.format import GroupsOf

NO_SLOT = -1
"""Slot of a key with a null in it: it equals no key."""


class KeySlots:
    """In memory only: rebuilt from the rows that are in state. Slots are never taken back; the
    owner makes a new one when most are of no more use."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._index: CompositeIndex | None = None
        self._schema = pa.schema([])

    def __len__(self) -> int:
        return 0 if self._index is None else len(self._index)

    def slots(self, keys: pa.RecordBatch) -> Int64s:
        """One per row, NO_SLOT for keys with nulls; keys not seen before get the next ones."""
        wide = widened_keys(keys)
        index = self._index_for(wide)
        complete = _complete(wide)
        if complete is None:
            return index.upsert(wide.columns)
        slots = np.full(wide.num_rows, NO_SLOT, dtype=np.int64)
        chosen = np.flatnonzero(complete)
        slots[chosen] = index.upsert(wide.take(pa.array(chosen)).columns)
        return slots

    def _index_for(self, keys: pa.RecordBatch) -> CompositeIndex:
        if self._index is None:
            self._index, self._schema = CompositeIndex(keys.schema), keys.schema
        elif keys.schema.types != self._schema.types:
            raise TypeMismatchError(
                f"{self._what}: keys {schema_text(keys.schema)} on one side and "
                f"{schema_text(self._schema)} on the other can never be equal: "
                "cast one of them before key_by"
            )
        return self._index


def groups_by(key: KeySelector, max_parallelism: int) -> GroupsOf:
    """The key groups of rows as they are stored, on any thread."""

    def groups_of(rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        keys = key.key_columns(ColumnBatch(rows))
        assert keys is not None
        return key_groups_of(widened_keys(keys), max_parallelism)

    return groups_of


def _complete(keys: pa.RecordBatch) -> npt.NDArray[np.bool_] | None:
    """Which keys have no null; None if all."""
    complete: npt.NDArray[np.bool_] | None = None
    for column in keys.columns:
        if column.null_count:
            valid = numpy_of(column.is_valid())
            complete = valid if complete is None else complete & valid
    return complete

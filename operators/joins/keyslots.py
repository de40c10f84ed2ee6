"""Keys of both sides of a join as dense slots, and the key group of each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s, numpy_of
from ...core.batch import schema_text
from ...core.errors import TypeMismatchError
from ...core.growing import GrowingList
from ...core.key_types import widened_keys
from ...state.key_groups import key_groups_of
from ...state.key_index import CompositeIndex

NO_SLOT = -1
"""Slot of a key with a null in it: it equals no key."""


class KeySlots:
    """In memory only: rebuilt from the rows that are in state. Slots are never taken back; the
    owner makes a new one when most are of no more use."""

    def __init__(self, max_parallelism: int, what: str) -> None:
        self._max_parallelism = max_parallelism
        self._what = what
        self._index: CompositeIndex | None = None
        self._schema = pa.schema([])
        self._groups = GrowingList(np.int32)

    def __len__(self) -> int:
        return self._groups.length

    def slots(self, keys: pa.RecordBatch) -> Int64s:
        """One per row, NO_SLOT for keys with nulls; keys not seen before get the next ones."""
        wide = widened_keys(keys)
        index = self._index_for(wide)
        complete = _complete(wide)
        if complete is None:
            return self._upsert(index, wide)
        slots = np.full(wide.num_rows, NO_SLOT, dtype=np.int64)
        chosen = np.flatnonzero(complete)
        slots[chosen] = self._upsert(index, wide.take(pa.array(chosen)))
        return slots

    def groups(self, slots: Int64s) -> npt.NDArray[np.int32]:
        """The key groups of slots given out before."""
        groups: npt.NDArray[np.int32] = self._groups.array[slots]
        return groups

    def _upsert(self, index: CompositeIndex, keys: pa.RecordBatch) -> Int64s:
        before = len(self)
        slots = index.upsert(keys.columns)
        if len(index) > before:
            new = np.flatnonzero(slots >= before)
            self._groups.extend(len(index) - before)
            found = key_groups_of(keys.take(pa.array(new)), self._max_parallelism)
            self._groups.array[slots[new]] = found
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


def _complete(keys: pa.RecordBatch) -> npt.NDArray[np.bool_] | None:
    """Which keys have no null; None if all."""
    complete: npt.NDArray[np.bool_] | None = None
    for column in keys.columns:
        if column.null_count:
            valid = numpy_of(column.is_valid())
            complete = valid if complete is None else complete & valid
    return complete

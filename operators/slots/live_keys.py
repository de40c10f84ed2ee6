"""Keys in use, as dense numbers: of open sessions, or of windows that are counted or emptied apart.

An index gives a key its number for good, and keys come and go for ever. So the index is made anew
from the keys still in use once they are fewer than half of those it knows; each key is then moved
at most once per key forgotten.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Slots
from ...core.batch import take_column
from ...state.key_index import CompositeIndex
from ..values.value_store import ValueStore, wide_type

FIRST_LIMIT = 4096
"""Keys known before those no longer in use are forgotten."""


class LiveKeys:
    """Number -> key, key -> number. Invariant: every column store holds len(self) values."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._wide = [wide_type(field.type) for field in schema]
        self.kept = pa.schema([pa.field(f"k{i}", kind) for i, kind in enumerate(self._wide)])
        self._clear()

    def __len__(self) -> int:
        return len(self._index)

    def numbers(self, keys: pa.RecordBatch) -> Slots:
        """The number of each row's key; new keys get the next ones."""
        known = len(self._index)
        columns = [
            _wide(column, kind) for column, kind in zip(keys.columns, self._wide, strict=True)
        ]
        numbers = self._index.upsert(columns)
        if len(self._index) > known:
            rows = np.flatnonzero(numbers >= known)
            rows = rows[np.unique(numbers[rows], return_index=True)[1]]
            for store, column in zip(self._stores, columns, strict=True):
                store.append(take_column(column, pa.array(rows)))
        return numbers

    def take(self, numbers: Slots) -> list[pa.Array]:
        """The key columns of these keys, of their declared types."""
        return [store.declared(numbers) for store in self._stores]

    def stored(self, numbers: Slots) -> pa.RecordBatch:
        """The key columns as they are kept, of types that Arrow can gather."""
        columns = [store.take(numbers) for store in self._stores]
        return pa.RecordBatch.from_arrays(columns, schema=self.kept)

    def crowded(self, used: int) -> bool:
        """Whether to `keep` only the `used` keys that are in use."""
        return len(self._index) > max(FIRST_LIMIT, 2 * used)

    def keep(self, numbers: npt.NDArray[np.int64]) -> None:
        """Forget all keys but these (distinct), which get the numbers 0, 1, ... in this order."""
        columns = [store.take(numbers) for store in self._stores]
        self._clear()
        if len(numbers):
            self._index.upsert(columns)
            for store, column in zip(self._stores, columns, strict=True):
                store.append(column)

    def _clear(self) -> None:
        self._index = CompositeIndex(self.kept)
        self._stores = [ValueStore(field.type) for field in self._schema]


def _wide(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type.equals(kind):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(kind)

"""Keys in use, as dense numbers: the owners of entries (`entry_table`).

An index gives a key its number for good, and keys come and go for ever. So the index is made anew
from the keys still in use once they are fewer than half of those it knows; each key is then moved
at most once per key forgotten.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Bools, Slots
from .key_index import CompositeIndex, Frozen, as_declared
from .value_store import wide_type

FIRST_LIMIT = 4096
"""Keys known before those no longer in use are forgotten."""


class LiveKeys:
    """Number -> key, key -> number."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.kinds: list[pa.DataType] = schema.types
        """The types declared."""
        self._wide = [wide_type(field.type) for field in schema]
        self.kept = pa.schema([pa.field(f"k{i}", kind) for i, kind in enumerate(self._wide)])
        """The types that keys are kept as."""
        self._index = CompositeIndex(self.kept)

    def __len__(self) -> int:
        return len(self._index)

    def numbers(self, keys: pa.RecordBatch) -> Slots:
        """The number of each row's key; new keys get the next ones."""
        pairs = zip(keys.columns, self._wide, strict=True)
        return self._index.upsert([_wide(column, kind) for column, kind in pairs])

    def take(self, numbers: Slots) -> list[pa.Array]:
        """The key columns of these keys, of their declared types."""
        pairs = zip(self._index.take(numbers), self._schema.types, strict=True)
        return [as_declared(column, kind) for column, kind in pairs]

    def find(self, columns: list[pa.Array]) -> Slots:
        """The number of each key, given as keys are kept; -1 for those that have none."""
        return self._index.find(columns)

    def take_kept(self, numbers: Slots) -> list[pa.Array]:
        """The key columns of these keys, as they are kept."""
        return self._index.take(numbers)

    def mark_objects(self, held: Bools) -> None:
        """Set the codes of objects that are in keys."""
        self._index.mark(self.kinds, held)

    def freeze(self) -> Frozen:
        """The key columns of all keys there are now, as they are kept, to be made on any thread."""
        return self._index.freeze()

    def crowded(self, used: int) -> bool:
        """Whether to `keep` only the `used` keys that are in use."""
        return len(self._index) > max(FIRST_LIMIT, 2 * used)

    def keep(self, numbers: npt.NDArray[np.int64]) -> None:
        """Forget all keys but these (distinct), which get the numbers 0, 1, ... in this order."""
        columns = self._index.take(numbers)
        self._index = CompositeIndex(self.kept)
        if len(numbers):
            self._index.upsert(columns)

    @property
    def nbytes(self) -> int:
        return self._index.nbytes


def _wide(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type.equals(kind):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(kind)

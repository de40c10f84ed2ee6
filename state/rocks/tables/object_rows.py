"""Rows of a slot table whose keys are Python objects, which tables know by codes (`object_keys`).

Where a row lies is said by its key's bytes, as of states per key; behind its numbers and values it
has the key's pickle, for bytes of a key do not tell the key. Keys that have no bytes, no hash or no
pickle stay in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
import pyarrow as pa

from ....core.arrays import Bools, Groups
from ....core.errors import StateError
from ...object_keys import STORED, FrozenKeys, ObjectKeys, ObjectKeyType, codes_of
from ...pickling import dumps
from ...stored import AccColumn
from ..database.key_bytes import key_bytes
from .slot_rows import numbers_fit, space_bytes
from .value_bytes import RowReader
from .valued_rows import ValuedRows

PICKLE = ""
"""In rows, what the key's pickle is called: no column has that name."""


def objects_fit(keys: pa.Schema, columns: Sequence[AccColumn]) -> bool:
    """Whether a table of these has rows as bytes, of those of its keys that have bytes."""
    return len(keys) == 1 and isinstance(keys.types[0], ObjectKeyType) and numbers_fit(columns)


class ObjectRows(ValuedRows):
    """As `ValuedRows`. Keys are columns of codes."""

    of_objects = True

    def __init__(
        self,
        prefix: bytes,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        width: int,
        max_parallelism: int,
        values: pa.Schema,
    ) -> None:
        super().__init__(prefix, keys, columns, width, max_parallelism, values)
        (kind,) = keys.types
        self._objects: ObjectKeys | None = kind.keys if isinstance(kind, ObjectKeyType) else None
        """None: the rows are only read."""
        self._frozen: FrozenKeys | None = None
        self.kinds = [pa.int64()]
        self._fields = pa.schema([*values, (PICKLE, STORED)])

    def by(self, objects: ObjectKeys) -> ObjectRows:
        rows = copy(self)
        rows._objects = objects
        return rows

    def frozen(self) -> ObjectRows:
        """For any thread: of the codes as they are now."""
        rows = copy(self)
        rows._frozen = self._known()
        return rows

    def groups(self, keys: Sequence[pa.Array]) -> Groups:
        hashes = self._known().hashes(codes_of(keys[0]))
        groups: Groups = (hashes % np.uint64(self._max_parallelism)).astype(np.int32)
        return groups

    def placed(self, keys: Sequence[pa.Array]) -> Bools:
        known, codes = self._known(), codes_of(keys[0])
        own = [key_bytes(known.objects[code]) is not None for code in codes.tolist()]
        placed: Bools = np.array(own, dtype=np.bool_) & (known.known[codes] != 0)
        return placed

    def pickles(self, keys: Sequence[pa.Array], state: str) -> list[bytes | None]:
        """Of keys that are `placed`; None where a key cannot be pickled."""
        objects = self._known().objects
        found: list[bytes | None] = []
        for code in codes_of(keys[0]).tolist():
            try:
                found.append(dumps(objects[code], f"key of state '{state}'"))
            except StateError:
                found.append(None)
        return found

    def places(
        self, keys: Sequence[pa.Array], namespace: int = 0, groups: Groups | None = None
    ) -> list[bytes]:
        objects = self._known().objects
        codes = codes_of(keys[0]).tolist()
        own = [key_bytes(objects[code]) for code in codes]
        space = space_bytes(namespace)
        heads = (self.groups(keys) if groups is None else groups).tolist()
        return [
            b"".join((self.prefix, group.to_bytes(2, "big"), space, key))
            for group, key in zip(heads, own, strict=True)
            if key is not None
        ]

    def keys_in(self, places: Sequence[bytes], rows: Sequence[bytes], state: str) -> list[pa.Array]:
        stored = self.stored_keys(places, rows)
        assert self._objects is not None
        return [self._objects.restored(pa.chunked_array(stored), state)]

    def stored_keys(self, places: Sequence[bytes], rows: Sequence[bytes]) -> list[pa.Array]:
        reader = RowReader(rows)
        reader.fixed(self._row)
        found = [reader.values(field.type) for field in self._fields]
        return found[-1:]

    def _known(self) -> FrozenKeys:
        if self._frozen is not None:
            return self._frozen
        assert self._objects is not None
        return self._objects.freeze()

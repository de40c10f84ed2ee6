"""Restored rows of a table whose keys are objects, on their way into RocksDB.

Their keys have codes of their own, which are forgotten with them: else a restore would have all
keys in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ....core.arrays import numpy_of
from ....core.key_kinds import held_keys
from ...key_types import one_of_each
from ...names import ACC_PREFIX, KEY_PREFIX
from ...object_keys import STORED, ObjectKeys
from ...stored import AccColumn
from .object_rows import PICKLE
from .slot_rows import SlotRows


class PassingRows:
    """`rows`: of one namespace, as snapshots hold them; `key`: what their key column is called;
    `objects`: those of the state. `left`: the rows that have to be in memory: of keys that are
    known there, or cannot lie elsewhere; once the others are `packed`."""

    def __init__(self, rows: pa.Table, key: str, objects: ObjectKeys, state: str) -> None:
        self._rows = rows
        self._state = state
        self._objects = objects.apart()
        self._codes = self._objects.restored(rows.column(KEY_PREFIX + key), state)
        self._new = objects.find(held_keys(self._objects.objects(self._codes))) < 0
        objects.column(one_of_each(held_keys(self._objects.known())))  # of which types keys are
        self.left = rows

    def packed(
        self, rows: SlotRows, namespace: int, columns: Sequence[AccColumn]
    ) -> tuple[list[bytes], list[bytes], list[int]]:
        """Places and rows, in order of the first, and the key groups that they are of. `rows`: of
        the state."""
        rows = rows.by(self._objects)
        placed = rows.placed([self._codes])
        assert placed is not None, "keys are objects"
        at = np.flatnonzero(placed & self._new)
        pickles = rows.pickles([self._codes.take(pa.array(at))], self._state)
        fine = np.array([data is not None for data in pickles], dtype=np.bool_)
        at, made = at[fine], [data for data in pickles if data is not None]
        goes = np.zeros(self._rows.num_rows, dtype=np.bool_)
        goes[at] = True
        self.left = self._rows.filter(pa.array(~goes))
        codes = self._codes.take(pa.array(at))
        groups = rows.groups([codes])
        order = np.argsort(groups, kind="stable")
        keys, at, groups = codes.take(pa.array(order)), at[order], groups[order]
        values = {PICKLE: pa.array(made, STORED).take(pa.array(order))}
        arrays = {}
        for column in columns:
            stored = self._rows.column(ACC_PREFIX + column.name)
            if column.name in rows.values.names:
                values[column.name] = pa.concat_arrays(stored.chunks).take(pa.array(at))
            else:
                arrays[column.name] = numpy_of(stored).astype(column.dtype, copy=False)
        places = rows.places([keys], namespace, groups)
        return places, rows.packed(arrays, at, values), np.unique(groups).tolist()

"""The groups of a running aggregate: a table of accumulators, renumbered when most are gone.

Slots of a table are never taken back, so groups that are no more are left behind by copying the
others into a new namespace of the table state. Only one namespace is in use.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...state.backend import AccColumn, ColumnTable, KeyedStateBackend
from ..windows.slices import Int64s
from .grown import take_rows


class Groups:
    """`table`: the table in use; valid until `keep`."""

    def __init__(
        self, state: KeyedStateBackend, keys: pa.Schema, columns: Sequence[AccColumn]
    ) -> None:
        self._state = state.table("groups", keys, columns)
        self._names = [column.name for column in columns]
        self._namespace = 0
        self.table: ColumnTable
        spaces = self._state.namespaces()
        if spaces:
            self._namespace = spaces[-1]
        self.table = self._state.table(self._namespace)
        for other in spaces[:-1]:
            old = self._state.table(other)
            self._copy(old, np.arange(len(old)))
            self._state.drop(other)

    def __len__(self) -> int:
        return len(self.table)

    def keep(self, slots: Int64s) -> None:
        """Only these slots, ascending, stay; they are numbered from 0."""
        old, before = self.table, self._namespace
        self._namespace = before + 1
        self.table = self._state.table(self._namespace)
        self._copy(old, slots)
        self._state.drop(before)

    def _copy(self, old: ColumnTable, slots: Int64s) -> None:
        if len(slots):
            new = self.table.slots(take_rows(old.keys(), slots))
            for name in self._names:
                self.table.column(name)[new] = old.column(name)[slots]

"""Deltas of the column face: what changed in all tables of one table state.

A delta has a row for each key that was written and is there, with `__removed` false; a row for each
key that is gone; and one for each namespace that is gone, or whose table was numbered anew and
follows whole (`increments` says what each means). A namespace that appeared since, such as a window
that opened, is all rows; one that fired is one row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.taking import null_array
from .change_bits import Bits
from .group_sort import sorted_by_group
from .increments import (
    EVERY_GROUP,
    IDENTITY,
    REMOVED,
    SCOPE,
    Continuity,
    Since,
    columns_text,
)
from .names import ACC_PREFIX, KEY_PREFIX, NAMESPACE
from .slot_changes import MOST_CHANGED, FrozenChanges, SlotChanges
from .slot_encoding import Columns
from .slot_table import FrozenTable, MemorySlotTable
from .stored import KEY_GROUP, StateTable
from .stored_keys import StoredKeys


class TableRecord:
    """What one table state knows of its snapshots.

    Invariant: `_base` are the namespaces with keys in the newest complete one, `_last` those in the
    last one."""

    def __init__(self) -> None:
        self._continuity = Continuity()
        self._base: Collection[int] = ()
        self._last: Collection[int] = ()

    def freeze(
        self,
        name: str,
        since: Since,
        tables: Mapping[int, MemorySlotTable],
        declared: pa.Schema,
        key_columns: int,
    ) -> TableDelta | None:
        """What changed, or None if all is to be written. `declared`: the columns of a base."""
        came = self._continuity.advance(since)
        if came == "unknown":
            for table in tables.values():
                table.renumbered()
            self._last = ()
        if came != "failed":
            self._base = self._last
        self._last = frozenset(ns for ns, table in tables.items() if len(table))
        changes = {ns: table.advance(came != "failed") for ns, table in tables.items()}
        if came == "unknown" or name in since.whole or _most(tables, changes):
            return None
        present = [(ns, tables[ns], changes[ns]) for ns in sorted(self._last)]
        continued = {ns for ns, _, some in present if some is not None}
        return TableDelta(
            name,
            declared,
            key_columns,
            StoredKeys([] if not tables else next(iter(tables.values())).kinds),
            [(ns, table.freeze_changes(some)) for ns, table, some in present if some is not None],
            [(ns, table.freeze()) for ns, table, some in present if some is None],
            [ns for ns in sorted(self._base) if ns not in continued],
        )


def _most(
    tables: Mapping[int, MemorySlotTable], changes: Mapping[int, tuple[Bits, int] | None]
) -> bool:
    """Whether most keys are to be written anyway."""
    total = sum(len(table) for table in tables.values())
    changed = 0
    for ns, table in tables.items():
        some = changes[ns]
        changed += len(table) if some is None else SlotChanges.number(some, len(table))
    return changed > MOST_CHANGED * total


@dataclass(frozen=True)
class TableDelta:
    """A point in time of what changed. `cleared`: namespaces whose earlier rows are all gone."""

    name: str
    declared: pa.Schema
    key_columns: int
    stored: StoredKeys
    changed: Sequence[tuple[int, FrozenChanges]]
    fresh: Sequence[tuple[int, FrozenTable]]
    cleared: Sequence[int]

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if nothing changed."""
        pieces = [self._cleared()] if self.cleared else []
        for ns, frozen in self.fresh:
            pieces.append(self._rows(ns, *frozen.read(), max_parallelism))
        for ns, some in self.changed:
            keys, columns, gone = some.read()
            pieces.append(self._rows(ns, keys, columns, max_parallelism))
            pieces.append(self._rows(ns, gone, None, max_parallelism))
            del keys, columns, gone
        pieces = [piece for piece in pieces if piece.num_rows]
        if not pieces:
            return None
        identity = [NAMESPACE, *(n for n in self.declared.names if n.startswith(KEY_PREFIX))]
        metadata = {IDENTITY: columns_text(identity), SCOPE: columns_text([NAMESPACE])}
        data = sorted_by_group(pieces)
        return StateTable(self.name, "table", data, metadata, "delta")

    def _rows(
        self, namespace: int, keys: list[pa.Array], columns: Columns | None, max_parallelism: int
    ) -> pa.Table:
        """Of these keys; `columns` None: they are gone."""
        count = len(keys[0])
        groups: npt.NDArray[np.int32] = np.empty(0, np.int32)
        if count:
            groups = self.stored.groups(keys[: self.key_columns], max_parallelism)
        shown = self.stored.stored(keys, self.name)
        known = {ACC_PREFIX + acc.name: array for acc, array in columns or ()}
        spaces = np.full(count, namespace, np.int64)
        return self._table(count, groups, spaces, shown, known, columns is None)

    def _cleared(self) -> pa.Table:
        count = len(self.cleared)
        groups = np.full(count, EVERY_GROUP, np.int32)
        return self._table(count, groups, np.array(self.cleared, np.int64), None, {}, True)

    def _table(
        self,
        count: int,
        groups: npt.NDArray[np.int32],
        namespaces: npt.NDArray[np.int64],
        keys: list[pa.Array] | None,
        known: Mapping[str, pa.Array],
        removed: bool,
    ) -> pa.Table:
        """Rows with nulls where nothing is known."""
        data = {KEY_GROUP: pa.array(groups), NAMESPACE: pa.array(namespaces)}
        given = iter(keys or ())
        for field in self.declared:
            if field.name.startswith(KEY_PREFIX):
                data[field.name] = next(given) if keys else null_array(count, field.type)
            elif field.name.startswith(ACC_PREFIX):
                column = known.get(field.name)
                data[field.name] = null_array(count, field.type) if column is None else column
        data[REMOVED] = pa.array(np.full(count, removed))
        return pa.table(data)

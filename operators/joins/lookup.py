"""Lookup join: records with the rows of a table that came with the job, or that a function finds.

The function is called once per batch, with the distinct keys that are not remembered. What it found
(or that it found nothing) is remembered until `cache_size` keys are; then everything is forgotten,
which costs less than keeping an order of use and needs no more memory than it was given.

Nothing is kept in checkpoints: what a function gives after a restore may differ from before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...api.specs.joins import LookupJoinSpec
from ...core.arrays import Int64s
from ...core.batch import Batch, ColumnBatch, to_columns
from ...core.errors import OperatorError, StromError, TypeMismatchError
from ...core.failure_text import text_of, users_place
from ...core.growing import GrowingList
from ...core.joined_columns import side_columns
from ...core.preload import preload
from ...core.row_kind import split_kinds
from ...state.backend import COLUMN_STATE
from ..base import Operator, Steps, emit_each
from ..closing import warn_of_close
from .layout import fitted
from .tables import KERNELS, TableJoin, TableRows

LOOKUPS = "numLookups"
"""Metric: keys a function was asked for."""


class LookupJoinOperator(Operator):
    """See the module."""

    def __init__(self, spec: LookupJoinSpec) -> None:
        self._spec = spec
        self._join = TableJoin(spec.how, spec.left_on.names, spec.right_on.names, spec.suffix)

    def open(self) -> None:
        preload(*KERNELS, *COLUMN_STATE)
        self._what = f"lookup_join '{self.ctx.name}'"
        table = self._spec.table
        self._cache: LookupCache | None = None
        if isinstance(table, pa.Table):
            self._rows = TableRows(
                side_columns(table.schema), self._spec.right_on.names, self._what
            )
            for batch in _batches(table):
                self._rows.add(batch)
        else:
            function = table() if isinstance(table, type) else table
            self._cache = LookupCache(self._spec, function, self._what)

    def process(self, batch: Batch, port: int = 0) -> Steps:
        records = to_columns(batch)
        try:
            if self._cache is None:
                self._rows.forget_unknown()
                results = self._join.join(records, self._rows)
            else:
                keys = self._join.keys(split_kinds(records.data)[0])
                now = self.ctx.clock.now_ms()
                slots, rows, asked = self._cache.find(keys, now)
                self.ctx.metrics.count(LOOKUPS, asked)
                if rows is None:  # no key to ask for, so that not even the columns are known
                    self._without_rows(records)
                    return
                results = self._join.join(records, rows, slots)
            yield from emit_each(self.out, results)
        except StromError as error:
            text = f"lookup_join: {text_of(error)}{users_place(error)}"
            raise OperatorError(self.ctx.name, self.ctx.subtask, text) from error

    def close(self) -> None:
        """A function may hold connections: its `close` is called, if it has one."""
        cache = getattr(self, "_cache", None)
        close = getattr(cache and cache.function, "close", None)
        if callable(close):
            try:
                close()
            except BaseException as error:
                warn_of_close(self.ctx.name, self.ctx.subtask, "its lookup function", error)

    def _without_rows(self, records: ColumnBatch) -> None:
        if self._spec.how == "anti":
            self.out.emit(records)
        elif self._spec.how == "left":
            raise TypeMismatchError(
                "the first records have no keys (nulls only), so the function was not called and "
                "its columns are not known: filter records without a key before the join"
            )


class LookupCache:
    """What a lookup function has found.

    Invariant: `_loaded` has an entry for each key in the index of `_rows`, the time it was asked
    for. Nothing is asked for twice; to ask again is to forget everything.
    """

    def __init__(self, spec: LookupJoinSpec, function: Any, what: str) -> None:
        self._keys = list(spec.right_on.names)
        self._size = spec.cache_size
        self._ttl_ms = spec.cache_ttl_ms
        self.function = function
        self._what = what
        self._rows: TableRows | None = None
        self._loaded = GrowingList(np.int64)

    def find(self, keys: pa.RecordBatch, now_ms: int) -> tuple[Int64s, TableRows | None, int]:
        """The keys' slots in the rows, which hold what was found for all of them, and how many keys
        were asked for."""
        if self._rows is not None and (not self._size or self._expired(now_ms)):
            self._forget()
        slots, new = self._new(keys)
        if self._size and self._loaded.length and self._loaded.length + len(new) > self._size:
            self._forget()
            slots, new = self._new(keys)
        if len(new):
            slots = self._ask(keys, new, now_ms)
        return slots, self._rows, len(new)

    def _new(self, keys: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """Slots, and the first row of each key that was not asked for."""
        index = self._rows or TableRows(keys.schema, self._keys, self._what)
        slots = index.slots(keys)
        unknown, first = np.unique(slots, return_index=True)
        return slots, np.sort(first[unknown >= self._loaded.length])

    def _ask(self, keys: pa.RecordBatch, new: Int64s, now_ms: int) -> Int64s:
        """Add what the function finds for the keys at these rows; the slots of all keys."""
        asked = ColumnBatch(keys).take(new).data
        found = _to_table(self.function(asked), self._keys)
        schema = side_columns(found.schema)
        if self._rows is None:
            self._rows = TableRows(schema, self._keys, self._what)
        slots = self._rows.slots(keys)
        known = self._loaded.length
        self._loaded.append(np.full(self._rows.known_keys() - known, now_ms))
        for batch in _batches(found):
            rows = fitted(batch, self._rows.arena.schema, "looked up")
            self._rows.add(self._wanted(rows, asked))
        return slots

    def _wanted(self, rows: pa.RecordBatch, asked: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the keys asked for; a function may give others as well."""
        index = TableRows(asked.schema, self._keys, self._what)
        count = index.slots(asked).max() + 1
        wanted = index.slots(rows.select(self._keys))
        chosen = (wanted >= 0) & (wanted < count)
        if chosen.all():
            return rows
        return ColumnBatch(rows).take(np.flatnonzero(chosen)).data

    def _expired(self, now_ms: int) -> bool:
        """Whether the oldest of what is remembered is too old."""
        if self._ttl_ms is None or not self._loaded.length:
            return False
        return int(self._loaded.array[0]) + self._ttl_ms <= now_ms

    def _forget(self) -> None:
        """Keep the columns only."""
        if self._rows is not None:
            self._rows = TableRows(self._rows.arena.schema, self._keys, self._what)
        self._loaded = GrowingList(np.int64)


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    schema = side_columns(table.schema)
    return [fitted(batch, schema, "table") for batch in table.to_batches()]


def _to_table(found: Any, keys: list[str]) -> pa.Table:
    """What a lookup function gave, as Arrow."""
    if isinstance(found, pa.RecordBatch):
        found = pa.Table.from_batches([found])
    elif hasattr(found, "to_arrow"):
        found = found.to_arrow()
    elif type(found).__module__.split(".")[0] == "pandas":
        found = pa.Table.from_pandas(found, preserve_index=False)
    if not isinstance(found, pa.Table):
        raise TypeMismatchError(
            f"the function gave {type(found).__name__}; it must give a pyarrow Table or "
            "RecordBatch, or a polars or pandas frame"
        )
    missing = [name for name in keys if name not in found.column_names]
    if missing:
        raise TypeMismatchError(
            f"the function gave columns {found.column_names}; the key columns {missing} must be "
            "among them"
        )
    return found

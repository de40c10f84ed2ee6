"""The keys of a table operator that keeps any number of records of each, with their time to live.

Every record of a key stamps it, also one that takes another away, so the stamps are state of their
own, beside the records.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ...core.arrays import Int64s
from ...state.backend import AccColumn
from ...state.ttl import Lifetime
from ..key_expiry import NEVER, KeyExpiry
from ..key_turns import Turns, TurnTaking
from .base import Records, TableOperator

STORED = "stored"
"""A number of kept records, only with a time to live: when a key's record was stored."""

_STAMP = "changed"


class ExpiringKeys:
    """Table "keys" of keys and stamps. Keys without records stay until they have expired."""

    def __init__(
        self,
        operator: TableOperator,
        keys: pa.Schema,
        life: Lifetime,
        forget: Callable[[Int64s], None],
        keep: Callable[[Int64s], None],
    ) -> None:
        """`forget`: called with slots whose keys are to be no more; `keep` when only some slots,
        ascending, stay, which are numbered from 0 then."""
        state = operator.ctx.keyed_state
        self._schema, self._forget, self._keep = keys, forget, keep
        self._stamp = life.column(_STAMP)
        self._table = state.table("keys", keys, [AccColumn(self._stamp, "int64", NEVER)]).table()
        self._expiry = KeyExpiry(life, state.time, operator.ctx.name, self._sweep)
        self._turns = TurnTaking(life.ms)

    def __len__(self) -> int:
        return len(self._table)

    def upsert(self, columns: list[pa.Array]) -> Int64s:
        """The slots of these keys, which are there from now on."""
        slots: Int64s = self._table.slots(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        return slots

    def take_turns(self, slots: Int64s, records: Records) -> Turns:
        """Stamp the keys of these records."""
        times = self._expiry.times.of(records.stamps, len(records))
        return self._turns.take(slots, times, self._table.column(self._stamp))

    def _sweep(self, records: int) -> None:
        """Forget some keys whose time is over."""
        stamps = self._table.column(self._stamp)[: len(self._table)]
        gone = self._expiry.some(stamps, records)
        self._forget(gone)
        self._table.release(gone)
        moved = self._table.tidy()
        if moved is not None:
            self._expiry.begin_again()
            self._keep(np.flatnonzero(moved >= 0))

"""Aggregates over all records of a key so far, after each record: accumulators and kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s
from ...core.errors import TypeMismatchError
from ...core.taking import valid_rows
from ...state.backend import AccColumn, KeyedStateBackend
from ...state.column_face import SlotTable
from ...state.ttl import Lifetime
from ...state.widening import REST
from ..columns import (
    NO_NULLS,
    Storage,
    from_numbers,
    is_whole,
    storage,
    to_numbers,
    whole_numbers,
)
from ..key_expiry import NEVER, KeyExpiry
from ..key_turns import TurnEntries, TurnTaking
from ..sums import overflow
from .base import Layout, Records
from .expiring_keys import STORED


class Running:
    """Table "running": per aggregate a value and whether there is one, a count and the same."""

    reached = 0
    """As of `FrameHistory`: no row is held."""

    def __init__(
        self,
        layout: Layout,
        state: KeyedStateBackend,
        aggregates: list[tuple[Aggregate, int]],
        life: Lifetime | None,
        operator: str,
    ) -> None:
        """`operator`: its name, for messages."""
        columns = []
        self._held: list[Storage] = []
        for index, (aggregate, at) in enumerate(aggregates):
            kind = None if at < 0 else layout.columns.types[at]
            held = _held(aggregate, kind)
            self._held.append(held)
            columns.append(AccColumn(f"a{index}_value", held))
            if aggregate.kind == "mean" and is_whole(kind):
                columns.append(AccColumn(f"a{index}{REST}", held))
            columns.append(AccColumn(f"a{index}_mark", "bool", False))
            columns.append(AccColumn(f"a{index}_count", "int64"))
            columns.append(AccColumn(f"a{index}_counted", "bool", False))
        self._columns = list(columns)
        self._expiry: KeyExpiry | None = None
        if life is not None:
            self._stamp = life.column(STORED)
            columns.append(AccColumn(self._stamp, "int64", NEVER))
            self._expiry = KeyExpiry(life, state.time, operator, self._forget_some)
            self._turns = TurnTaking(life.ms)
        self._state = state.table("running", layout.keys, columns, cold=True)
        if self._expiry is not None:
            self._state.expire(self._stamp, self._expiry.gone)

    def update(
        self,
        records: Records,
        aggregates: list[tuple[Aggregate, int]],
        stamps: Int64s | None,
    ) -> list[pa.Array]:
        """As `FrameHistory.update`."""
        table = self._state.table(0)
        slots = table.slots(records.keys)
        if self._expiry is None:
            return self._results(records, aggregates, slots, table)
        times = self._expiry.times.of(stamps, len(slots))
        turns = self._turns.take(slots, times, table.column(self._stamp))
        if len(turns.stale):
            for column in self._columns:
                table.column(column.name)[turns.stale] = column.initial
        if turns.of_rows is None:
            return self._results(records, aggregates, slots, table)
        held = TurnEntries(self._columns, table, slots, turns)
        results = self._results(records, aggregates, held.of_rows, held)
        held.put_back()
        return results

    def _results(
        self,
        records: Records,
        aggregates: list[tuple[Aggregate, int]],
        slots: Int64s,
        table: SlotTable | TurnEntries,
    ) -> list[pa.Array]:
        """`table`: what is held of the slots."""
        ones = pa.array(np.ones(len(slots), dtype=np.int64))
        return [
            self._run(index, aggregate, slots, ones if at < 0 else records.data.column(at), table)
            for index, (aggregate, at) in enumerate(aggregates)
        ]

    def prune(self, time: int) -> None:
        """Nothing grows old by itself."""

    def _forget_some(self, records: int) -> None:
        """Forget some keys whose time is over."""
        assert self._expiry is not None
        table = self._state.table(0)
        table.release(self._expiry.some(table.column(self._stamp)[: len(table)], records))
        if table.tidy() is not None:
            self._expiry.begin_again()

    def _run(
        self,
        index: int,
        aggregate: Aggregate,
        slots: Int64s,
        array: pa.Array,
        table: SlotTable | TurnEntries,
    ) -> pa.Array:
        from ..kernels import over, running, whole_sums

        value, mark, count, counted = (
            table.column(f"a{index}_{name}") for name in ("value", "mark", "count", "counted")
        )
        if aggregate.kind == "count":
            return pa.array(_counts(slots, array, count, counted))
        held = self._held[index]
        out, some = np.empty(len(slots), dtype=held), np.empty(len(slots), dtype=np.bool_)
        kind = array.type
        if aggregate.kind == "mean" and is_whole(kind):
            rest = table.column(f"a{index}{REST}")
            numbers, valid, bits = whole_numbers(array)
            whole_sums.running_whole_sum(slots, numbers, bits, valid, value, rest, mark, out, some)
            n = _counts(slots, array, count, counted)
            return from_numbers(out / np.maximum(n, 1), some, pa.float64())
        values, valid = to_numbers(array, held)
        match aggregate.kind:
            case "sum" | "mean":
                if running.running_sum(slots, values, valid, value, mark, out, some):
                    raise overflow(aggregate)
                kind = pa.int64() if held == "int64" else pa.float64()
                if aggregate.kind == "mean":
                    out = out / np.maximum(_counts(slots, array, count, counted), 1)
            case "min" | "max":
                largest = aggregate.kind == "max"
                running.running_extreme(slots, values, valid, value, mark, largest, out, some)
            case "first" | "last":
                last = aggregate.kind == "last"
                over.running_pick(slots, values, valid, value, mark, last, out, some)
            case _:
                raise AssertionError(f"over offers no {aggregate.kind}")
        return from_numbers(out, some, kind)


def _counts(slots: Int64s, array: pa.Array, counts: Int64s, counted: Any) -> Int64s:
    """How many values there were after each record."""
    from ..kernels import running

    valid = valid_rows(array)
    present = np.ones(len(slots), np.int64) if valid is None else valid.astype(np.int64)
    out, some = np.empty(len(slots), dtype=np.int64), np.empty(len(slots), dtype=np.bool_)
    running.running_sum(slots, present, NO_NULLS, counts, counted, out, some)
    return out


def _held(aggregate: Aggregate, kind: pa.DataType | None) -> Storage:
    if kind is None or aggregate.kind == "count":
        return "int64"
    held = storage(kind)
    if held is None:
        raise TypeMismatchError(
            f"{aggregate.describe()} over all records so far needs numbers or times, the column "
            f"has type {kind}; over a number of rows or a range it may have any"
        )
    return "float64" if aggregate.kind == "mean" else held

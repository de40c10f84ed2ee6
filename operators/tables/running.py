"""Aggregates over all records of a key so far, after each record: accumulators and kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, numpy_of
from ...core.errors import TypeMismatchError
from ...state.backend import AccColumn, KeyedStateBackend
from ..columns import NO_NULLS, Storage, from_numbers, storage, to_numbers
from ..row_folds.numbers import overflow
from .base import Layout, Records


class Running:
    """Table "running": per aggregate a value and whether there is one, a count and the same."""

    def __init__(
        self, layout: Layout, state: KeyedStateBackend, aggregates: list[tuple[Aggregate, int]]
    ) -> None:
        columns = []
        self._held: list[Storage] = []
        for index, (aggregate, at) in enumerate(aggregates):
            held = _held(aggregate, None if at < 0 else layout.columns.types[at])
            self._held.append(held)
            columns.append(AccColumn(f"a{index}_value", held))
            columns.append(AccColumn(f"a{index}_mark", "bool", False))
            columns.append(AccColumn(f"a{index}_count", "int64"))
            columns.append(AccColumn(f"a{index}_counted", "bool", False))
        self._state = state.table("running", layout.keys, columns)

    def update(self, records: Records, aggregates: list[tuple[Aggregate, int]]) -> list[pa.Array]:
        """As `FrameHistory.update`."""
        slots = self._state.table(0).slots(records.keys)
        ones = pa.array(np.ones(len(slots), dtype=np.int64))
        return [
            self._run(index, aggregate, slots, ones if at < 0 else records.data.column(at))
            for index, (aggregate, at) in enumerate(aggregates)
        ]

    def prune(self, time: int) -> None:
        """Nothing grows old."""

    def _run(self, index: int, aggregate: Aggregate, slots: Int64s, array: pa.Array) -> pa.Array:
        from ..kernels import over, running

        table = self._state.table(0)
        value, mark, count, counted = (
            table.column(f"a{index}_{name}") for name in ("value", "mark", "count", "counted")
        )
        if aggregate.kind == "count":
            return pa.array(_counts(slots, array, count, counted))
        held = self._held[index]
        values, valid = to_numbers(array, held)
        out, some = np.empty(len(slots), dtype=held), np.empty(len(slots), dtype=np.bool_)
        kind = array.type
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
            case _:
                last = aggregate.kind == "last"
                over.running_pick(slots, values, valid, value, mark, last, out, some)
        return from_numbers(out, some, kind)


def _counts(slots: Int64s, array: pa.Array, counts: Int64s, counted: Any) -> Int64s:
    """How many values there were after each record."""
    from ..kernels import running

    present = np.ones(len(slots), dtype=np.int64)
    if array.null_count:
        present = numpy_of(array.is_valid()).astype(np.int64)
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

"""Which part an aggregate over a column of some type has: an accumulator, or state of its own."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots
from ...state.backend import AccColumn, ColumnTable, KeyedStateBackend
from .accumulators import make_accumulator
from .base import Accumulator, Part, Read


class FlatPart(Part):
    """An accumulator as a part."""

    def __init__(self, accumulator: Accumulator) -> None:
        self.accumulator = accumulator
        self.aggregate = accumulator.aggregate
        self.combinable = accumulator.combinable

    def columns(self) -> list[AccColumn]:
        return self.accumulator.columns()

    def fold(
        self,
        namespace: int,
        table: ColumnTable,
        keys: pa.RecordBatch,
        slots: Slots,
        array: pa.Array,
        numbers: Int64s,
    ) -> None:
        self.accumulator.fold(table, slots, array, numbers)

    def merge(self, target: ColumnTable, slots: Slots, read: Read) -> None:
        self.accumulator.merge(target, slots, read)

    def result(
        self, table: ColumnTable, namespaces: Sequence[int], at: Slots | None = None
    ) -> pa.Array:
        return self.accumulator.result(table, at)


def make_part(
    aggregate: Aggregate,
    prefix: str,
    kind: pa.DataType,
    state: KeyedStateBackend,
    keys: pa.Schema,
) -> Part:
    """The part of an aggregate over input of type `kind`, for an operator whose keys are `keys`.

    Names of its state and columns begin with `prefix`. Raises TypeMismatchError when the
    aggregate makes no sense for the type."""
    accumulator = make_accumulator(aggregate, prefix, kind)
    if accumulator is not None:
        return FlatPart(accumulator)
    from ..values.loose_values import LooseValues
    from .distinct import DistinctCount
    from .lists import Best, Collected
    from .sketches import ApproximateCount

    match aggregate.kind:
        case "count_distinct":
            return DistinctCount(aggregate, prefix, kind, keys, state)
        case "approx_count_distinct":
            return ApproximateCount(aggregate, prefix, keys, state)
        case "collect":
            return Collected(aggregate, prefix, kind, keys, state)
        case "largest" | "smallest":
            return Best(aggregate, prefix, kind, keys, state)
        case _:
            return LooseValues(aggregate, prefix, kind, keys, state)

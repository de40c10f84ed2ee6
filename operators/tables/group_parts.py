"""Which aggregates of a running group aggregate are flat accumulators, and which need all values.

count, sum, mean, variance, first, ...   accumulator columns in the groups' table
count_distinct                           `DistinctValues`, shared by all of one expression, or
                                         `GroupValues` where values or groups may go
min, max                                 accumulators; `GroupValues` where values may be taken
                                         back, and where they are not numbers
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Bools, Int64s, numpy_of
from ...core.batch import ColumnBatch
from ...core.errors import TypeMismatchError
from ...state.backend import AccColumn, ColumnTable, KeyedStateBackend
from ..aggregates.accumulators import Accumulator, check_type, make_accumulator
from ..aggregates.inputs import AggregateInputs
from ..columns import NO_NULLS, fit, storage
from .distinct_values import DistinctValues
from .group_values import GroupValues

if TYPE_CHECKING:
    import polars as pl


@dataclass
class Shared:
    """Aggregates over the values of one expression. `source`: index of its plain column among the
    inputs; `conditions`: index of each view's condition column, None for all records."""

    source: int
    conditions: list[int | None] = field(default_factory=list)
    extremes: list[tuple[int, bool]] = field(default_factory=list)
    values: GroupValues | DistinctValues | None = None

    def view(self, condition: int | None) -> int:
        """The view of this condition, made if there is none."""
        if condition not in self.conditions:
            self.conditions.append(condition)
        return self.conditions.index(condition)


@dataclass(frozen=True)
class Result:
    """How one output column is read: from the record count, an accumulator, or shared values."""

    accumulator: Accumulator | None = None
    input: int = -1
    shared: Shared | None = None
    view: int = -1
    extreme: int = -1


class GroupParts:
    """All aggregates of one operator, bound to the types of its input."""

    def __init__(
        self, aggregates: Sequence[Aggregate], columns: pa.Schema, changelog: bool, lasting: bool
    ) -> None:
        """`changelog`: values may be taken back. `lasting`: no group ever goes."""
        self._inputs: list[Aggregate] = []
        plain, kinds = self._plan(aggregates, columns, changelog)
        self._evaluate = AggregateInputs(self._inputs)
        self._kinds = kinds
        self.results = [
            self._result(aggregate, i, shared, changelog)
            for i, (aggregate, shared) in enumerate(zip(aggregates, plain, strict=True))
        ]
        self.shared = [s for s in self._shared.values() if s.conditions]
        self._lasting = lasting

    def bind(self, state: KeyedStateBackend, keys: pa.Schema, table: ColumnTable) -> None:
        """Ask for the values of groups with these keys, which are in `table`: values "values0",
        "values1", ..., one per expression. Before records flow."""
        for i, one in enumerate(self.shared):
            name, kind, views = f"values{i}", self._kinds[one.source], len(one.conditions)
            if self._lasting and not one.extremes:
                one.values = DistinctValues(state.seen_values(name, keys, kind, views))
            else:
                counted = state.counted_values(name, keys, kind, views)
                one.values = GroupValues(counted, one.extremes)
            one.values.own(table)

    def keep(self, groups: Int64s) -> None:
        """Only these groups, ascending, stay; they are numbered from 0 now."""
        for shared in self.shared:
            assert shared.values is not None
            shared.values.keep(groups)

    def columns(self) -> list[AccColumn]:
        """Accumulator columns of the groups' table."""
        return [c for r in self.results if r.accumulator for c in r.accumulator.columns()]

    def inputs(self, data: pa.RecordBatch) -> list[pa.Array]:
        """What is folded, per record."""
        arrays = self._evaluate.of(ColumnBatch(data))
        return [
            fit(array, kind, aggregate.describe())
            for array, kind, aggregate in zip(arrays, self._kinds, self._inputs, strict=True)
        ]

    def fold(
        self, table: ColumnTable, slots: Int64s, arrays: list[pa.Array], numbers: Int64s, sign: int
    ) -> bool:
        """Add records, or with sign -1 take them back. Returns whether too much was taken."""
        for result in self.results:
            if result.accumulator is not None:
                step = result.accumulator.fold if sign > 0 else result.accumulator.retract
                step(table, slots, arrays[result.input], numbers)
        below = False
        for shared in self.shared:
            assert shared.values is not None
            shared.values.grow(len(table))
            masks = [NO_NULLS if c is None else _mask(arrays[c]) for c in shared.conditions]
            below |= shared.values.fold(slots, arrays[shared.source], masks, sign)
        return below

    def settle(self, slots: Int64s) -> None:
        for shared in self.shared:
            assert shared.values is not None
            shared.values.settle(slots)

    def read(self, table: ColumnTable, slots: Int64s, rows: Int64s) -> list[pa.Array]:
        """The results of these groups, which have `rows` records."""
        return [self._read(result, table, slots, rows) for result in self.results]

    def grow(self, groups: int) -> None:
        for shared in self.shared:
            assert shared.values is not None
            shared.values.grow(groups)

    def forget(self, slots: Int64s) -> None:
        """The values of these groups; the caller resets the accumulators."""
        for shared in self.shared:
            assert shared.values is not None
            shared.values.forget(slots)

    def _read(self, result: Result, table: ColumnTable, slots: Int64s, rows: Int64s) -> pa.Array:
        if result.accumulator is not None:
            return result.accumulator.result(table, slots)
        if result.shared is None:
            return pa.array(rows)
        values = result.shared.values
        assert values is not None
        if result.extreme >= 0:
            assert isinstance(values, GroupValues)
            return values.extreme(result.extreme, slots)
        return values.distinct(result.view, slots)

    def _plan(
        self, aggregates: Sequence[Aggregate], columns: pa.Schema, changelog: bool
    ) -> tuple[list[Shared | None], list[pa.DataType]]:
        """List the inputs to evaluate: per aggregate its own, or one per expression and condition
        of those that share values. Returns what each aggregate shares, and the inputs' types."""
        self._own: dict[int, int] = {}
        self._conditions: dict[int, int] = {}
        self._shared: dict[int, Shared] = {}
        plain: list[Shared | None] = []
        empty = ColumnBatch(pa.RecordBatch.from_pylist([], schema=columns))
        for index, aggregate in enumerate(aggregates):
            if not aggregate.takes_input:
                plain.append(None)
                continue
            (array,) = AggregateInputs([aggregate]).of(empty)
            check_type(aggregate, array.type)
            if self._needs_values(aggregate, array.type, changelog):
                plain.append(self._share(index, aggregate))
            else:
                self._own[index] = self._add(aggregate)
                plain.append(None)
        kinds = [array.type for array in AggregateInputs(self._inputs).of(empty)]
        return plain, kinds

    @staticmethod
    def _needs_values(aggregate: Aggregate, kind: pa.DataType, changelog: bool) -> bool:
        if aggregate.kind in ("min", "max"):
            return changelog or storage(kind) is None
        return aggregate.kind == "count_distinct"

    def _share(self, index: int, aggregate: Aggregate) -> Shared:
        source = self._add(Aggregate("last", aggregate.expression))
        shared = self._shared.setdefault(source, Shared(source))
        if aggregate.condition is not None:
            self._conditions[index] = self._add(Aggregate("count").where(aggregate.condition))
        return shared

    def _add(self, aggregate: Aggregate) -> int:
        for index, other in enumerate(self._inputs):
            if _same(other, aggregate):
                return index
        self._inputs.append(aggregate)
        return len(self._inputs) - 1

    def _result(
        self, aggregate: Aggregate, index: int, shared: Shared | None, changelog: bool
    ) -> Result:
        if shared is not None:
            view = shared.view(self._conditions.get(index))
            if aggregate.kind == "count_distinct":
                return Result(shared=shared, view=view)
            wanted = (view, aggregate.kind == "max")
            if wanted not in shared.extremes:
                shared.extremes.append(wanted)
            return Result(shared=shared, extreme=shared.extremes.index(wanted))
        if not aggregate.takes_input:
            return Result()
        own = self._own[index]
        made = make_accumulator(aggregate, f"a{index}", self._kinds[own], changelog)
        if made is None:
            why = "values are retracted" if changelog else f"values are {self._kinds[own]}"
            raise TypeMismatchError(
                f"{aggregate.describe()} cannot be kept up to date per group where {why}"
            )
        return Result(made, own)


def _same(left: Aggregate, right: Aggregate) -> bool:
    """Whether two aggregates have the same input."""
    return all(
        a is b if a is None or b is None else _same_expression(a, b)
        for a, b in (
            (left.expression, right.expression),
            (left.condition, right.condition),
            (left.by, right.by),
        )
    )


def _same_expression(left: str | pl.Expr, right: str | pl.Expr) -> bool:
    if isinstance(left, str) or isinstance(right, str):
        return isinstance(left, str) and isinstance(right, str) and left == right
    return bool(left.meta.eq(right))


def _mask(array: pa.Array) -> Bools:
    """Which records meet a condition: those where its column is not null."""
    if not array.null_count:
        return NO_NULLS
    mask: np.ndarray[tuple[int], np.dtype[np.bool_]] = numpy_of(array.is_valid())
    return mask

"""The aggregates of a running group aggregate: accumulators over the groups' table.

Those that read the values themselves (see `aggregates.shared`) share them by expression, in
storages that this folds into, once a batch: `KeyedGroupValues` where values may lie elsewhere than
in memory, else `DistinctValues`, or `GroupValues` where there are extremes, and where values or
groups may go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Bools, Int64s
from ...core.batch import ColumnBatch
from ...core.errors import TypeMismatchError
from ...core.value_types import empty_batch
from ...state.backend import AccColumn, KeyedStateBackend
from ...state.column_face import SlotTable
from ...state.value_store import MakeStores
from ..aggregates.base import Accumulator, Partials, Use
from ..aggregates.inputs import AggregateInputs, same_expression
from ..aggregates.registry import accumulator_class, make_accumulator
from ..aggregates.shared import SharedAccumulator, Views
from ..columns import NO_NULLS, fit, validity
from .distinct_values import DistinctValues
from .group_values import GroupValues
from .keyed_values import KeyedGroupValues
from .stored_values import StoredValues


@dataclass
class Shared:
    """The values of one expression. `source`: index of its plain column among the inputs."""

    source: int
    views: Views = field(default_factory=Views)
    stored: StoredValues | None = None


@dataclass(frozen=True)
class Seen:
    """Values of one expression, one a row, nulls are none. `masks`: per view, where it sees them
    (empty: everywhere)."""

    values: pa.Array
    masks: list[Bools]


class GroupParts:
    """All aggregates of one operator, bound to the types of its input."""

    def __init__(
        self, aggregates: Sequence[Aggregate], columns: pa.Schema, changelog: bool, lasting: bool
    ) -> None:
        """`changelog`: values may be taken back. `lasting`: no group ever goes."""
        self._use = Use.CHANGING if changelog else Use.GROUPS
        self._lasting = lasting
        self._inputs: list[Aggregate] = []
        self._shared: dict[int, Shared] = {}
        empty = ColumnBatch(empty_batch(columns))
        self._parts = [
            self._part(aggregate, f"a{index}", empty) for index, aggregate in enumerate(aggregates)
        ]
        self._evaluate = AggregateInputs(self._inputs)
        self._kinds = [array.type for array in self._evaluate.of(empty)]

    def columns(self) -> list[AccColumn]:
        """Accumulator columns of the groups' table."""
        return [c for part, _ in self._folded() for c in part.columns()]

    def values(self) -> MakeStores:
        """What makes the stores of those that hold codes."""
        made = [part.values() for part, _ in self._folded()]
        return {name: make for stores in made for name, make in stores.items()}

    def ask(self, state: KeyedStateBackend, keys: pa.Schema) -> bool:
        """Ask for the values of groups with these keys: values "values0", "values1", ..., one per
        expression. Returns whether groups may lie elsewhere than in memory: all that is known of
        them does."""
        found = []
        for i, one in enumerate(self._shared.values()):
            views = one.views
            args = f"values{i}", keys, self._kinds[one.source], len(views.conditions)
            keyed = state.keyed_values(*args, len(views.extremes))
            lasting = self._lasting and not views.extremes
            if keyed is not None:
                one.stored = KeyedGroupValues(keyed, views.extremes, lasting)
            elif lasting:
                one.stored = DistinctValues(state.seen_values(*args))
            else:
                one.stored = GroupValues(state.counted_values(*args), views.extremes)
            views.values = one.stored
            found.append(keyed is not None)
        return all(found)

    def own(self, table: SlotTable) -> None:
        """The groups' table, after `ask` and before records flow."""
        for stored in self._stored():
            stored.own(table)

    def keep(self, groups: Int64s) -> None:
        """Only these groups, ascending, stay; they are numbered from 0 now."""
        for stored in self._stored():
            stored.keep(groups)

    def inputs(self, data: pa.RecordBatch) -> list[pa.Array]:
        """What is folded, per record."""
        arrays = self._evaluate.of(ColumnBatch(data))
        return [
            fit(array, kind, aggregate.describe())
            for array, kind, aggregate in zip(arrays, self._kinds, self._inputs, strict=True)
        ]

    def fold(
        self, table: SlotTable, slots: Int64s, arrays: list[pa.Array], numbers: Int64s, sign: int
    ) -> bool:
        """Add records, or with sign -1 take them back. Returns whether too much was taken."""
        self.fold_numbers(table, slots, arrays, numbers, sign)
        below = False
        for seen, stored in zip(self.seen(arrays), self._stored(), strict=True):
            stored.grow(len(table))
            below |= stored.fold(slots, seen.values, seen.masks, sign)
        return below

    def fold_numbers(
        self, table: SlotTable, slots: Int64s, arrays: list[pa.Array], numbers: Int64s, sign: int
    ) -> None:
        """What `fold` does to the accumulators of the groups' table."""
        for part, at in self._folded():
            step = part.fold if sign > 0 else part.retract
            step(table, slots, arrays[at], numbers)

    def seen(self, arrays: list[pa.Array]) -> list[Seen]:
        """The values of each expression that are kept, of these records."""
        found = []
        for shared in self._shared.values():
            # Conditions are met where their columns are not null.
            conditions = shared.views.conditions
            masks = [NO_NULLS if c is None else validity(arrays[c]) for c in conditions]
            found.append(Seen(arrays[shared.source], masks))
        return found

    @property
    def combinable(self) -> bool:
        """Whether numbers, and values that count once, say all there is to say of the records."""
        numbers = all(part.combinable for part, _ in self._folded())
        return numbers and not any(shared.views.extremes for shared in self._shared.values())

    @property
    def kept(self) -> list[tuple[pa.DataType, int]]:
        """Of each expression whose values are kept: their type, and how many views see them."""
        views = ((one.source, len(one.views.conditions)) for one in self._shared.values())
        return [(self._kinds[source], count) for source, count in views]

    def merge(
        self, table: SlotTable, slots: Int64s, partials: Partials, seen: list[tuple[Int64s, Seen]]
    ) -> None:
        """Add what other parts, `combinable`, were given: their accumulators, one a slot; and per
        expression values and their slots."""
        for part, _ in self._folded():
            part.merge(table, slots, partials)
        for (kind, _), (owners, some), stored in zip(self.kept, seen, self._stored(), strict=True):
            stored.grow(len(table))
            stored.fold(owners, fit(some.values, kind, "what is counted once"), some.masks, 1)

    def settle(self, slots: Int64s) -> None:
        for stored in self._stored():
            stored.settle(slots)

    def read(self, table: SlotTable, slots: Int64s, rows: Int64s) -> list[pa.Array]:
        """The results of these groups, which have `rows` records."""
        return [
            pa.array(rows) if part is None else part[0].result(table, slots) for part in self._parts
        ]

    def recall(self, slots: Int64s) -> None:
        """These groups, distinct, are read and folded into next, until `tidy`."""
        for stored in self._stored():
            stored.recall(slots)

    def grow(self, groups: int) -> None:
        for stored in self._stored():
            stored.grow(groups)

    def forget(self, slots: Int64s) -> None:
        """The values of these groups; the caller resets the accumulators."""
        for stored in self._stored():
            stored.forget(slots)

    def forget_keys(self, keys: pa.RecordBatch) -> None:
        """The same of groups that the table has forgotten without having been asked for them."""
        for stored in self._stored():
            stored.forget_keys(keys)

    def tidy(self) -> None:
        """At the end of a batch."""
        for stored in self._stored():
            stored.tidy()

    def _folded(self) -> list[tuple[Accumulator, int]]:
        """Those that fold an input of their own, and which."""
        parts = [part for part in self._parts if part is not None]
        return [(part, at) for part, at in parts if not isinstance(part, SharedAccumulator)]

    def _stored(self) -> list[StoredValues]:
        return [one.stored for one in self._shared.values() if one.stored is not None]

    def _part(
        self, aggregate: Aggregate, prefix: str, empty: ColumnBatch
    ) -> tuple[Accumulator, int] | None:
        """Its accumulator and input, which is listed: its own, or one per expression and one per
        condition of those that share values. None for the number of records."""
        if not aggregate.takes_input:
            return None
        (array,) = AggregateInputs([aggregate]).of(empty)
        kind = array.type
        found = accumulator_class(aggregate, kind, self._use)
        if found is not None and issubclass(found, SharedAccumulator):
            source = self._add(Aggregate("last", aggregate.expression))
            views = self._shared.setdefault(source, Shared(source)).views
            condition = None
            if aggregate.condition is not None:
                condition = self._add(Aggregate("count").where(aggregate.condition))
            place = found.place_in(views, aggregate, condition)
            return found(aggregate, prefix, kind, self._use, views, place), source
        made = make_accumulator(aggregate, prefix, kind, self._use)
        if made is None:
            why = "values are retracted" if self._use is Use.CHANGING else f"values are {kind}"
            raise TypeMismatchError(
                f"{aggregate.describe()} cannot be kept up to date per group where {why}"
            )
        return made, self._add(aggregate)

    def _add(self, aggregate: Aggregate) -> int:
        for index, other in enumerate(self._inputs):
            if _same(other, aggregate):
                return index
        self._inputs.append(aggregate)
        return len(self._inputs) - 1


def _same(left: Aggregate, right: Aggregate) -> bool:
    """Whether two aggregates have the same input."""
    return all(
        a is b if a is None or b is None else same_expression(a, b)
        for a, b in (
            (left.expression, right.expression),
            (left.condition, right.condition),
            (left.by, right.by),
        )
    )

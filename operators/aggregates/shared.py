"""Aggregates of running groups that look at the same values: count_distinct, and extremes of values
that may be taken back or are not numbers.

The values of one expression are looked up and kept once, however many aggregates see them through
different conditions. So who drives the aggregates (`tables.group_parts`) folds the values into
their common storage, and each accumulator here only reads what is its own there.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots
from ...state.backend import AccColumn
from ...state.column_face import SlotTable
from .base import Accumulator, Source, Use


class SharedValues(Protocol):
    """The values of each group, which views see with counts of their own."""

    def distinct(self, view: int, groups: Int64s) -> pa.Array:
        """How many different values the view has seen of each of these groups."""
        ...

    def extreme(self, index: int, groups: Int64s) -> pa.Array:
        """The extreme of this number of each of these groups; null without values."""
        ...


@dataclass
class Views:
    """Who looks at the values of one expression. `conditions`: of the views, each the index of its
    condition's column among the inputs, None for all records; `extremes`: (view, largest)."""

    conditions: list[int | None] = field(default_factory=list)
    extremes: list[tuple[int, bool]] = field(default_factory=list)
    values: SharedValues | None = None
    """None until bound."""

    def view(self, condition: int | None) -> int:
        """The view of this condition, made if there is none."""
        if condition not in self.conditions:
            self.conditions.append(condition)
        return self.conditions.index(condition)

    def extreme(self, view: int, largest: bool) -> int:
        """The number of this extreme, made if there is none."""
        if (view, largest) not in self.extremes:
            self.extremes.append((view, largest))
        return self.extremes.index((view, largest))


@dataclass(frozen=True)
class SharedAccumulator(Accumulator):
    """`place`: its view or extreme among `views`."""

    views: Views
    place: int

    shares: ClassVar[bool] = True
    combinable: ClassVar[bool] = False
    retractable: ClassVar[bool] = True
    uses: ClassVar[frozenset[Use]] = frozenset((Use.GROUPS, Use.CHANGING))

    @classmethod
    def suits(cls, aggregate: Aggregate, kind: pa.DataType) -> bool:
        return True

    @classmethod
    @abstractmethod
    def place_in(cls, views: Views, aggregate: Aggregate, condition: int | None) -> int:
        """Where it is to look, from here on."""

    def columns(self) -> list[AccColumn]:
        return []

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        """The values are folded once, for all."""

    def retract(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        """And taken back once."""

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        raise AssertionError("values that are shared are merged once, by who folds them")

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        assert self.views.values is not None
        assert at is not None
        return self._read(self.views.values, at)

    @abstractmethod
    def _read(self, values: SharedValues, at: Slots) -> pa.Array: ...


class SharedDistinct(SharedAccumulator):
    """count_distinct."""

    @classmethod
    def place_in(cls, views: Views, aggregate: Aggregate, condition: int | None) -> int:
        return views.view(condition)

    def _read(self, values: SharedValues, at: Slots) -> pa.Array:
        return values.distinct(self.place, at)


class SharedExtreme(SharedAccumulator):
    """min and max."""

    @classmethod
    def place_in(cls, views: Views, aggregate: Aggregate, condition: int | None) -> int:
        return views.extreme(views.view(condition), aggregate.kind == "max")

    def _read(self, values: SharedValues, at: Slots) -> pa.Array:
        return values.extreme(self.place, at)

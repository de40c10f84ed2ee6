"""Which accumulators keep which aggregate: the one place that all who use aggregates ask.

Of a kind's accumulators the first is taken that keeps values of the type in tables of that use. A
new aggregate is a file with its accumulator and `register`; see CONTRIBUTING.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ...api.aggregate_kinds import AggregateKind, declare, kind_of
from ...api.aggregates import Aggregate, not_kept
from ...core.errors import GraphError, StateError, TypeMismatchError
from ..columns import require_order, storage
from .arg_extremes import ArgExtreme
from .base import Accumulator, Use
from .best import FlatBest
from .coded import CodedValues
from .distinct import ApproximateCount, DistinctCount
from .flat import Arrival, Count, CountedSum, Extreme, Finite, Mean, Sum
from .listed import ListedBest, ListedDistinct, ListedRegisters, ListedValues
from .shared import SharedDistinct, SharedExtreme
from .spread import Variance
from .whole_means import WholeMean

_ACCUMULATORS: dict[str, Sequence[type[Accumulator]]] = {
    "count": (Count,),
    "sum": (Sum, CountedSum),
    "mean": (WholeMean, Mean),
    "variance": (Variance,),
    "stddev": (Variance,),
    "min": (Extreme, SharedExtreme, CodedValues),
    "max": (Extreme, SharedExtreme, CodedValues),
    "first": (Arrival, CodedValues),
    "last": (Arrival, CodedValues),
    "arg_min": (ArgExtreme, CodedValues),
    "arg_max": (ArgExtreme, CodedValues),
    "largest": (FlatBest, ListedBest),
    "smallest": (FlatBest, ListedBest),
    "collect": (ListedValues,),
    "count_distinct": (DistinctCount, ListedDistinct, SharedDistinct),
    "approx_count_distinct": (ApproximateCount, ListedRegisters),
}


def register(kind: AggregateKind, accumulators: Sequence[type[Accumulator]]) -> None:
    """Make a new kind of aggregate known, and what keeps it; in every process that is to run it,
    so where its module is imported.

    GraphError if another one has the name, if it says `over`, or if it says that it combines and
    what keeps it in windows does not."""
    of_windows = [made for made in accumulators if Use.SLICES in made.uses]
    if kind.combines and not all(made.combinable for made in of_windows[:1]):
        sliced = of_windows[0].__name__
        raise GraphError(
            f"aggregate '{kind.name}' is declared with combines=True, but {sliced}, "
            "which keeps it in windows, is not combinable: leave out combines=True"
        )

    def suits(aggregate: Aggregate, values: pa.DataType) -> bool:
        return any(made.suits(aggregate, values) for made in accumulators)

    declare(kind, suits)
    _ACCUMULATORS[kind.name] = tuple(accumulators)


def accumulator_class(
    aggregate: Aggregate, kind: pa.DataType, use: Use
) -> type[Accumulator] | None:
    """What keeps an aggregate of values of this type in such tables; None if nothing does.

    Raises TypeMismatchError when the aggregate makes no sense for the type."""
    check_type(aggregate, kind)
    for made in _ACCUMULATORS.get(aggregate.kind, ()):
        taken_back = use is not Use.CHANGING or made.retractable
        if use in made.uses and taken_back and made.suits(aggregate, kind):
            return made
    return None


def make_accumulator(
    aggregate: Aggregate, prefix: str, kind: pa.DataType, use: Use
) -> Accumulator | None:
    """The accumulator of an aggregate over a column of this type, as `accumulator_class` says;
    names of its columns begin with `prefix`. Of those that share values, which are made with what
    they share, there is none to be had here: StateError."""
    found = accumulator_class(aggregate, kind, use)
    if found is None:
        return None
    if found.shares:
        raise StateError(
            f"{aggregate.describe()} of values of type {kind} shares them with other aggregates: "
            "make it with them, as GroupParts does"
        )
    made = found(aggregate, prefix, kind, use)
    if use is Use.CHANGING and kind_of(aggregate.kind).adds and pa.types.is_floating(kind):
        return Finite(aggregate, prefix, kind, use, made)
    return made


def window_accumulator(
    aggregate: Aggregate, prefix: str, kind: pa.DataType, use: Use
) -> Accumulator:
    """`make_accumulator` for windows, whose tables never change; TypeMismatchError if nothing keeps
    values of the type there."""
    made = make_accumulator(aggregate, prefix, kind, use)
    if made is None:
        raise TypeMismatchError(not_kept(aggregate, kind))
    return made


def check_type(aggregate: Aggregate, kind: pa.DataType) -> None:
    """TypeMismatchError when the aggregate makes no sense for input of this type."""
    if kind_of(aggregate.kind).adds:
        numeric = storage(kind) is not None and not pa.types.is_temporal(kind)
        if not numeric and not kind.equals(pa.uint64()):
            raise TypeMismatchError(
                f"{aggregate.describe()}: values of type {kind} cannot be added; cast the column "
                "to int64 or float64"
            )
    elif kind_of(aggregate.kind).values:
        kinds = [kind] if aggregate.by is None else [field.type for field in kind]
        if any(pa.types.is_null(k) for k in kinds):
            raise TypeMismatchError(
                f"{aggregate.describe()}: the first batch has only nulls there, so the type is "
                "unknown; declare a schema upstream"
            )
        if kind_of(aggregate.kind).ordered:
            require_order(kinds[-1], f"{aggregate.describe()}: the column")

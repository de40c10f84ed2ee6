"""Which accumulator an aggregate over a column of some type has. See `aggregates.base`."""

from __future__ import annotations

import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.errors import TypeMismatchError
from ..columns import storage
from .arg_extremes import BY, VALUE, ArgExtreme
from .base import Accumulator, Read
from .best import GREATEST_FLAT, FlatBest
from .flat import Arrival, Count, CountedSum, Extreme, Finite, Mean, Sum
from .spread import Variance

_CLASSES: dict[str, type[Accumulator]] = {
    "count": Count,
    "sum": Sum,
    "mean": Mean,
    "min": Extreme,
    "max": Extreme,
    "first": Arrival,
    "last": Arrival,
    "variance": Variance,
    "stddev": Variance,
    "arg_min": ArgExtreme,
    "arg_max": ArgExtreme,
    "largest": FlatBest,
    "smallest": FlatBest,
}

_ADDING = ("sum", "mean", "variance", "stddev")


def make_accumulator(
    aggregate: Aggregate, prefix: str, kind: pa.DataType, retract: bool = False
) -> Accumulator | None:
    """The accumulator of an aggregate over a column of this type; None if no fixed number of
    numbers per key is enough for it (`aggregates.parts` keeps those).

    With `retract`, one that can take values back, if there is. Raises TypeMismatchError when the
    aggregate makes no sense for the type."""
    check_type(aggregate, kind)
    found = _CLASSES.get(aggregate.kind)
    if found is None or (found is FlatBest and aggregate.number > GREATEST_FLAT):
        return None
    if aggregate.kind not in ("count", *_ADDING):
        held = [kind] if found is not ArgExtreme else [kind.field(VALUE).type, kind.field(BY).type]
        if any(storage(k) is None for k in held):
            return None
    if not retract:
        return found(aggregate, prefix, kind)
    if found is Sum:
        found = CountedSum
    if not found.retractable:
        return None
    made = found(aggregate, prefix, kind)
    if aggregate.kind in _ADDING and pa.types.is_floating(kind):
        return Finite(aggregate, prefix, kind, made)
    return made


def check_type(aggregate: Aggregate, kind: pa.DataType) -> None:
    """TypeMismatchError when the aggregate makes no sense for input of this type."""
    if aggregate.kind in _ADDING:
        numeric = storage(kind) is not None and not pa.types.is_temporal(kind)
        if not numeric and not kind.equals(pa.uint64()):
            raise TypeMismatchError(
                f"{aggregate.describe()}: values of type {kind} cannot be added; cast the column "
                "to int64 or float64"
            )
    elif aggregate.kind != "count":
        kinds = [kind] if aggregate.by is None else [field.type for field in kind]
        if any(pa.types.is_null(k) for k in kinds):
            raise TypeMismatchError(
                f"{aggregate.describe()}: the first batch has only nulls there, so the type is "
                "unknown; declare a schema upstream"
            )


__all__ = ["Accumulator", "Read", "check_type", "make_accumulator"]

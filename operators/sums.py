"""A rolling sum is of its field's type, other sums of integers are int64: what a sum beyond that
says."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ..api.aggregates import Aggregate
from ..core.errors import TypeMismatchError

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def overflow(aggregate: Aggregate) -> TypeMismatchError:
    """An integer sum left the range of int64."""
    return TypeMismatchError(
        f"{aggregate.describe()} exceeds the range of int64; sum a float64 column instead"
    )


def as_field(sums: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Rolling sums (int64 or float64) as a column of the type of their field; int64 where that is
    neither of integers nor of floats. TypeMismatchError if one does not fit."""
    if sums.type.equals(kind) or not is_number(kind):
        return sums
    try:
        narrow = sums.cast(kind)
    except pa.ArrowInvalid as error:
        raise out_of_range(name, str(kind)) from error
    if pa.types.is_floating(kind):
        fits = pc.or_(pc.is_finite(narrow), pc.invert(pc.is_finite(sums)))
        if not pc.all(fits, min_count=0).as_py():  # there may be nulls alone
            raise out_of_range(name, str(kind))
    return narrow


def is_number(kind: pa.DataType) -> bool:
    """Whether a sum of such values is kept as one."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def out_of_range(name: str, kind: str) -> TypeMismatchError:
    """A rolling sum left the range of its field's type."""
    return TypeMismatchError(
        f"sum of '{name}' exceeds the range of {kind}, the field's type: give the field a wider "
        "one ahead of the sum, such as int64 (Types.LONG()) or float64 (Types.DOUBLE())"
    )

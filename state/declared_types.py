"""The types that states are declared with: a value of another type is refused when it is written.

    BYTE, SHORT, INT, LONG     int (also numpy's) within the type's range; no bool
    FLOAT, DOUBLE              float or int (also numpy's); no bool
    BOOLEAN                    bool
    STRING, CHAR               str
    PRIMITIVE_ARRAY(BYTE)      bytes, bytearray
    BIG_INT, BIG_DEC           Decimal or int; no bool
    SQL_DATE                   date, but no datetime
    SQL_TIME                   time
    SQL_TIMESTAMP, INSTANT     datetime
    ROW, ROW_NAMED, TUPLE      tuple or list of as many values; dict, object, or Row, with these
                               names; each field None or a value that fits
    LIST, other arrays         list, tuple or numpy array; elements are not looked at
    MAP                        dict; its entries are not looked at
    PICKLED_BYTE_ARRAY, others everything

Arrow types and int, float, bool, str and bytes themselves mean what the types above mean. None is
no value of any type, and passes. Values are kept as they are: an int stays one in a DOUBLE state.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from ..core.errors import TypeMismatchError
from ..core.row import is_positional
from ..core.value_types import BigDecimal, BigInteger, is_tuple

Fits = Callable[[Any], bool]
"""Whether a value that is not None is of a type."""

_SHOWN = 80
"""Characters of a value that a message quotes."""

_PLAIN: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
    bytes: pa.binary(),
}


class DeclaredType:
    """The type of one state's values (`what` is "value") or of its map keys, for its every write.

    A state asks `fits` of each value but None, and calls `refuse` with what does not fit."""

    __slots__ = ("_declared", "_what", "fits")

    def __init__(self, what: str, declared: Any, fits: Fits) -> None:
        self._what = what
        self._declared = declared
        self.fits = fits

    def refuse(self, value: Any) -> NoReturn:
        text = repr(value)
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        name = getattr(self._declared, "__name__", self._declared)
        raise TypeMismatchError(
            f"{self._what} is declared as {name} and cannot be {shown} ({type(value).__name__}): "
            "write a value of that type, or declare another one"
        )


def declared_type(what: str, declared: Any) -> DeclaredType | None:
    """What a descriptor's type means; None where it excludes nothing. `what` begins messages."""
    arrow = arrow_type(declared)
    fits = None if arrow is None else fits_of(arrow)
    return None if fits is None else DeclaredType(what, declared, fits)


def arrow_type(declared: Any) -> pa.DataType | None:
    """The Arrow type of what a descriptor is given as a type; None if it has none."""
    kind = _PLAIN.get(declared) if isinstance(declared, type) else declared
    arrow = kind if isinstance(kind, pa.DataType) else getattr(kind, "arrow", None)
    return arrow if isinstance(arrow, pa.DataType) else None


def fits_of(kind: pa.DataType) -> Fits | None:
    """Whether a value is of an Arrow type; None for types of which everything is."""
    if pa.types.is_dictionary(kind):
        return fits_of(kind.value_type)
    if pa.types.is_integer(kind):
        return _whole(kind)
    if pa.types.is_floating(kind):
        return lambda value: type(value) is float or _is_number(value)
    if pa.types.is_decimal(kind):
        return lambda value: isinstance(value, Decimal) or _is_int(value)
    if isinstance(kind, (BigDecimal, BigInteger)):
        return lambda value: isinstance(value, Decimal) or _is_int(value)
    if pa.types.is_struct(kind):
        return _row(kind)
    if pa.types.is_date(kind):
        return lambda value: isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    for is_kind, classes in _INSTANCES:
        if is_kind(kind):
            return _instance(classes)
    return None


def _is_text(kind: pa.DataType) -> bool:
    views = kind == pa.string_view()
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or views)


def _is_bytes(kind: pa.DataType) -> bool:
    views = kind == pa.binary_view()
    fixed = pa.types.is_fixed_size_binary(kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or fixed or views)


def _is_list(kind: pa.DataType) -> bool:
    fixed = pa.types.is_fixed_size_list(kind)
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or fixed)


_INSTANCES: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...] = (
    (pa.types.is_boolean, (bool, np.bool_)),
    (_is_text, (str,)),
    (_is_bytes, (bytes, bytearray)),
    (pa.types.is_time, (dt.time,)),
    (pa.types.is_timestamp, (dt.datetime,)),
    (pa.types.is_duration, (dt.timedelta,)),
    (_is_list, (list, tuple, np.ndarray)),
    (pa.types.is_map, (Mapping,)),
)


def _instance(classes: tuple[type, ...]) -> Fits:
    return lambda value: isinstance(value, classes)


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) or _is_int(value)


def _whole(kind: pa.DataType) -> Fits:
    signed = pa.types.is_signed_integer(kind)
    least = -(1 << (kind.bit_width - 1)) if signed else 0
    greatest = (1 << (kind.bit_width - signed)) - 1

    def fits(value: Any) -> bool:
        if type(value) is int:
            return least <= value <= greatest  # type: ignore[no-any-return]
        return _is_int(value) and least <= int(value) <= greatest

    return fits


def _row(kind: pa.DataType) -> Fits:
    fields = [kind.field(i) for i in range(kind.num_fields)]
    names = tuple([field.name for field in fields])
    each = [fits_of(field.type) for field in fields]
    by_place = is_tuple(kind)

    def all_fit(values: Any) -> bool:
        pairs = zip(each, values, strict=True)
        return all(value is None or fits is None or fits(value) for fits, value in pairs)

    def fits(value: Any) -> bool:
        if isinstance(value, (tuple, list)):
            own = getattr(value, "_fields", names)
            if own != names and not by_place and not is_positional(own):
                if sorted(own) != sorted(names):
                    return False
                return all_fit([value[own.index(name)] for name in names])
            return len(value) == len(names) and all_fit(value)
        if isinstance(value, Mapping):
            return all(name in value for name in names) and all_fit([value[n] for n in names])
        known = bool(names) and all(hasattr(value, name) for name in names)
        return known and all_fit([getattr(value, name) for name in names])

    return fits

"""Arithmetic and comparisons on columns that are exactly Python's.

Integers of Python have no end: what leaves 64 bits is Beyond. A float of an integer beyond 2**53 is
rounded, which Python avoids where it compares and where it divides: Beyond, too. All operands are
normal columns or scalars of the same types.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..arrays import numpy_of
from .kinds import Beyond, Kind, given
from .program import Operation

Run = Callable[..., pa.Array]

_LEAST = -(2**63)
_EXACT = 2**53

NUMERIC = (Kind.BOOL, Kind.INT, Kind.FLOAT)


def arithmetic(symbol: str, left: Kind, right: Kind) -> Operation | None:
    """Of two numbers, or None."""
    if left not in NUMERIC or right not in NUMERIC:
        return None
    text = f"{{}} {symbol} {{}}"
    if symbol in _BITS:
        if Kind.FLOAT in (left, right):
            return None
        if left is right is Kind.BOOL:
            return Operation(text, pa.bool_(), _of(_BITS[symbol][0], _same))
        return Operation(text, pa.int64(), _of(_BITS[symbol][1], _as_int))
    if symbol == "/":
        return Operation(text, pa.float64(), _of(_divided, _as_float))
    if Kind.FLOAT in (left, right):
        run = _FLOATS.get(symbol)
        return None if run is None else Operation(text, pa.float64(), _of(run, _as_float))
    run = _INTS.get(symbol)
    return None if run is None else Operation(text, pa.int64(), _of(run, _as_int))


def ordering(symbol: str, left: Kind, right: Kind) -> Operation | None:
    """`<`, `<=`, `>`, `>=` of two numbers or two texts. None is an error to Python."""
    convert = _common(left, right)
    if convert is None:
        return None
    return Operation(f"{{}} {symbol} {{}}", pa.bool_(), _of(_ORDERS[symbol], convert))


def equality(symbol: str, left: Kind, right: Kind) -> Operation | None:
    """`==` and `!=` of two numbers or two texts, where None equals only None."""
    convert = _common(left, right)
    if convert is None:
        return None

    def equal(one: Any, other: Any) -> pa.Array:
        same = pc.equal(convert(one), convert(other))
        if same.null_count:
            same = same.fill_null(False)
            if isinstance(one, pa.Array) and isinstance(other, pa.Array):
                same = pc.or_(same, pc.and_(one.is_null(), other.is_null()))
        return same if symbol == "==" else pc.invert(same)

    return Operation(f"{{}} {symbol} {{}}", pa.bool_(), equal)


def negation(of: Kind) -> Operation:
    if of is Kind.FLOAT:
        return Operation("-{}", pa.float64(), _of(pc.negate, _same))
    return Operation("-{}", pa.int64(), _of(pc.negate_checked, _as_int))


def inversion(of: Kind) -> Operation | None:
    if of is Kind.FLOAT:
        return None
    return Operation("~{}", pa.int64(), _of(pc.bit_wise_not, _as_int))


def absolute(of: Kind) -> Operation:
    if of is Kind.FLOAT:
        return Operation("abs({})", pa.float64(), _of(pc.abs, _same))
    return Operation("abs({})", pa.int64(), _of(pc.abs_checked, _as_int))


def whole(of: Kind) -> Operation:
    """`int(...)`"""
    run = _of(_truncated, _same) if of is Kind.FLOAT else _of(lambda column: column, _as_int)
    return Operation("int({})", pa.int64(), run)


def floating(of: Kind) -> Operation:
    """`float(...)`"""
    return Operation("float({})", pa.float64(), _of(lambda column: column, _as_float))


def extreme(name: str, left: Kind, right: Kind) -> Operation | None:
    """`min(a, b)` or `max(a, b)` of two numbers of one kind: the first, unless the second is less,
    or greater."""
    if left is not right or left not in (Kind.INT, Kind.FLOAT):
        return None
    better = pc.less if name == "min" else pc.greater

    def choose(one: Any, other: Any) -> pa.Array:
        return pc.if_else(better(other, one), other, one)

    type_ = pa.int64() if left is Kind.INT else pa.float64()
    return Operation(f"{name}({{}}, {{}})", type_, _of(choose, _same))


def folded(symbol: str, left: Any, right: Any) -> Any:
    """What Python makes of two numbers, at once; raises what Python raises."""
    return _PYTHON[symbol](left, right)


# --- how operands are brought to one type -------------------------------------------------------


def _same(column: Any) -> Any:
    return column


def _as_int(column: Any) -> Any:
    return column if column.type == pa.int64() else column.cast(pa.int64())


def _as_float(column: Any) -> Any:
    """Exactly: Arrow refuses integers beyond 2**53."""
    if column.type == pa.float64():
        return column
    return _as_int(column).cast(pa.float64())


def _common(left: Kind, right: Kind) -> Callable[[Any], Any] | None:
    if left is right is Kind.TEXT:
        return _same
    if left not in NUMERIC or right not in NUMERIC:
        return None
    return _as_float if Kind.FLOAT in (left, right) else _as_int


def _of(run: Run, convert: Callable[[Any], Any]) -> Run:
    def of(*operands: Any) -> pa.Array:
        given(*operands)
        return run(*[convert(one) for one in operands])

    return of


# --- what Arrow does otherwise than Python ------------------------------------------------------


def _plain(column: Any) -> npt.NDArray[Any]:
    """As numpy has it; a scalar is an array of one."""
    if isinstance(column, pa.Scalar):
        return np.array([column.as_py()], "f8" if column.type == pa.float64() else "i8")
    return numpy_of(column)


def _divisor(column: Any) -> npt.NDArray[Any]:
    plain = _plain(column)
    if not plain.all():
        raise Beyond
    return plain


def _divided(left: Any, right: Any) -> pa.Array:
    with np.errstate(all="ignore"):
        return pa.array(_plain(left) / _divisor(right))


def _int_divided(run: Callable[..., npt.NDArray[Any]]) -> Run:
    def divide(left: Any, right: Any) -> pa.Array:
        above, below = _plain(left), _divisor(right)
        if (below == -1).any() and (above == _LEAST).any():
            raise Beyond
        return pa.array(run(above, below))

    return divide


def _float_remainder(left: Any, right: Any) -> pa.Array:
    """As CPython's float_rem: the sign is the divisor's, of zeros too."""
    above, below = _plain(left), _divisor(right)
    with np.errstate(all="ignore"):
        rest = np.fmod(above, below)
        moved = np.where((below < 0) != (rest < 0), rest + below, rest)
        return pa.array(np.where(rest != 0, moved, np.copysign(0.0, below)))


def _float_floored(left: Any, right: Any) -> pa.Array:
    """As CPython's _float_div_mod."""
    above, below = _plain(left), _divisor(right)
    with np.errstate(all="ignore"):
        rest = np.fmod(above, below)
        times = (above - rest) / below
        times = np.where((rest != 0) & ((below < 0) != (rest < 0)), times - 1.0, times)
        floor = np.floor(times)
        floor = np.where(times - floor > 0.5, floor + 1.0, floor)
        return pa.array(np.where(times != 0, floor, np.copysign(0.0, above / below)))


def _truncated(column: Any) -> pa.Array:
    """Arrow refuses what is no number or beyond 64 bits."""
    return pc.trunc(column).cast(pa.int64())


_INTS: dict[str, Run] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "//": _int_divided(np.floor_divide),
    "%": _int_divided(np.remainder),
}
_FLOATS: dict[str, Run] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "//": _float_floored,
    "%": _float_remainder,
}
_BITS: dict[str, tuple[Run, Run]] = {
    "&": (pc.and_, pc.bit_wise_and),
    "|": (pc.or_, pc.bit_wise_or),
    "^": (pc.xor, pc.bit_wise_xor),
}
_ORDERS: dict[str, Run] = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

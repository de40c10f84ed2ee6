"""What an operator, a method or a builtin does to values: a step that does it on columns.

`Emit` appends a step to the program and gives its value. What is not known to be the same raises
`Refused`, with a reason that completes "it ...".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from . import numbers, texts
from .kinds import NORMAL, Kind, given, tells_missing
from .program import Constant, Operation, Value, kind

Emit = Callable[[Operation, tuple[Value, ...]], Value]


class Refused(Exception):
    """The function is not read any further. until_open: what it reads may be there once it has been
    opened."""

    def __init__(self, why: str, until_open: bool = False) -> None:
        super().__init__(why)
        self.until_open = until_open


def binary(symbol: str, left: Value, right: Value, emit: Emit) -> Value:
    """`left <symbol> right`, of arithmetic."""
    symbol = symbol.removesuffix("=")
    if isinstance(left, Constant) and isinstance(right, Constant):
        return _folded(symbol, left, right)
    left, right = _fitting(left), _fitting(right)
    kinds = kind(left), kind(right)
    made = numbers.arithmetic(symbol, *kinds)
    if made is None and symbol == "+" and kinds == (Kind.TEXT, Kind.TEXT):
        made = texts.joined(2)
    return emit(_known(made, symbol, left, right), (left, right))


def compared(symbol: str, left: Value, right: Value, emit: Emit) -> Value:
    """`left <symbol> right`, of comparisons."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        return _folded(symbol, left, right)
    if symbol in ("==", "!="):
        for one, other in ((left, right), (right, left)):
            if kind(other) is Kind.NONE:
                return missing(one, symbol == "!=", emit)
    left, right = _fitting(left), _fitting(right)
    make = numbers.equality if symbol in ("==", "!=") else numbers.ordering
    made = make(symbol, kind(left), kind(right))
    return emit(_known(made, symbol, left, right), (left, right))


def missing(value: Value, negated: bool, emit: Emit) -> Value:
    """`value is None`, or `is not` if negated."""
    if isinstance(value, Constant) or not value.nullable:
        return Constant((isinstance(value, Constant) and value.value is None) is not negated)
    if not tells_missing(value.type):
        raise Refused(f"asks whether a value of type {value.type} is None")
    if negated:
        return emit(Operation("{} is not None", pa.bool_(), lambda one: one.is_valid()), (value,))
    return emit(Operation("{} is None", pa.bool_(), lambda one: one.is_null()), (value,))


def contained(item: Value, container: Value, negated: bool, emit: Emit) -> Value:
    """`item in container`, or `not in`: a text in a text, or a value among constants."""
    if isinstance(container, Constant) and type(container.value) in (tuple, frozenset):
        found = _among(item, list(container.value), emit)
    elif kind(container) is Kind.TEXT and isinstance(item, Constant) and type(item.value) is str:
        if isinstance(container, Constant):
            return Constant((item.value in container.value) is not negated)
        found = emit(texts.holding(item.value), (container,))
    else:
        raise Refused("asks whether something is 'in' what is no constant tuple, set or text")
    return inverted(found, emit) if negated else found


def inverted(value: Value, emit: Emit) -> Value:
    """`not value`"""
    test = truth(value, emit)
    if isinstance(test, Constant):
        return Constant(not test.value)
    return emit(Operation("not {}", pa.bool_(), pc.invert), (test,))


def truth(value: Value, emit: Emit) -> Value:
    """`bool(value)`: a column of bools without None, or a constant."""
    if isinstance(value, Constant):
        return Constant(bool(value.value))
    zeros: dict[Kind, Any] = {Kind.INT: 0, Kind.FLOAT: 0.0, Kind.TEXT: ""}
    match kind(value):
        case Kind.BOOL if not value.nullable:
            return value
        case Kind.BOOL:
            return emit(Operation("{}", pa.bool_(), lambda one: one.fill_null(False)), (value,))
        case Kind.NONE:
            return Constant(False)
        case Kind.INT | Kind.FLOAT | Kind.TEXT as one_of:
            zero = pa.scalar(zeros[one_of])

            def run(column: pa.Array) -> pa.Array:
                true = pc.not_equal(column, zero)
                return true.fill_null(False) if true.null_count else true

            return emit(Operation("{}", pa.bool_(), run), (value,))
    raise Refused(f"asks whether a value of type {value.type} is true")


def unary(symbol: str, value: Value, emit: Emit) -> Value:
    """`-value`, `+value` or `~value`."""
    if isinstance(value, Constant) and type(value.value) in (bool, int, float):
        number = value.value
        if symbol == "~" and type(number) is float:
            raise Refused("inverts a float")
        return Constant(
            {"-": lambda: -number, "+": lambda: +number, "~": lambda: ~number}[symbol]()
        )
    of = kind(value)
    made = None
    if of in numbers.NUMERIC:
        made = {"-": numbers.negation, "~": numbers.inversion, "+": _plus}[symbol](of)
    return emit(_known(made, symbol, value), (value,))


def _plus(of: Kind) -> Operation:
    made = numbers.floating(of) if of is Kind.FLOAT else numbers.whole(of)
    return Operation("+{}", made.type, made.run)


def builtin(name: str, values: Sequence[Value], emit: Emit) -> Value:
    """The call of a builtin function of this name."""
    constants = [value.value for value in values if isinstance(value, Constant)]
    if len(constants) == len(values):
        return _called(name, constants)
    made: Operation | None = None
    kinds = [kind(value) for value in values]
    match name, kinds:
        case "bool", [_]:
            return truth(values[0], emit)
        case "len", [Kind.TEXT]:
            made = texts.length()
        case "abs", [Kind.BOOL | Kind.INT | Kind.FLOAT as of]:
            made = numbers.absolute(of)
        case "int", [Kind.BOOL | Kind.INT | Kind.FLOAT as of]:
            made = numbers.whole(of)
        case "float", [Kind.BOOL | Kind.INT | Kind.FLOAT as of]:
            made = numbers.floating(of)
        case "str", [Kind.TEXT | Kind.INT]:
            return written(values[0], emit)
        case (("min" | "max"), [left, right]):
            made = numbers.extreme(name, left, right)
    if made is None:
        of_what = ", ".join(one.value for one in kinds)
        raise Refused(f"calls {name}({of_what}), which columns do not do")
    return emit(made, tuple(_fitting(value) for value in values))


def written(value: Value, emit: Emit) -> Value:
    """`str(value)`, or the value within an f-string."""
    if isinstance(value, Constant) and type(value.value) in (str, int):
        return Constant(str(value.value))
    match kind(value):
        case Kind.TEXT:
            return emit(Operation("str({})", pa.string(), _given), (value,))
        case Kind.INT:
            return emit(texts.written(), (value,))
    raise Refused(f"writes a value of type {value.type} as text")


def joined(values: Sequence[Value], emit: Emit) -> Value:
    """Texts of an f-string, one after the other."""
    if all(isinstance(value, Constant) for value in values):
        return Constant("".join(value.value for value in values if isinstance(value, Constant)))
    return emit(texts.joined(len(values)), tuple(values))


def method(owner: Value, name: str, arguments: Sequence[Value], emit: Emit) -> Value:
    """A method of a text, with constants as arguments."""
    if kind(owner) is Kind.TEXT and not isinstance(owner, Constant):
        constants = [one.value for one in arguments if isinstance(one, Constant)]
        known = len(constants) == len(arguments)
        made = texts.method(name, constants) if known else None
        if made is not None:
            return emit(made, (owner,))
    raise Refused(f"calls .{name}() of a {_told(owner)}, in a way that columns do not do")


def sliced(value: Value, start: Any, stop: Any, emit: Emit) -> Value:
    """`value[start:stop]` of a text."""
    plain = all(one is None or type(one) is int for one in (start, stop))
    made = texts.cut(start, stop) if plain and kind(value) is Kind.TEXT else None
    if made is None or isinstance(value, Constant):
        raise Refused(f"takes a slice of a {_told(value)}, in a way that columns do not do")
    return emit(made, (value,))


def field(value: Value, name: str | int, emit: Emit) -> Value:
    """A field of a struct, by a name that its record has as an attribute or item, or by place."""
    type_ = value.type
    places = range(type_.num_fields)
    at = name if isinstance(name, int) else type_.get_field_index(name)
    if isinstance(name, int) and -len(places) <= name < len(places):
        at = places[name]
    if at not in places:
        raise Refused(f"reads the field {name!r}, which {type_} does not have")
    shown = f"[{name}]" if isinstance(name, int) else f".{name}"
    text = "{}" + shown.replace("{", "{{").replace("}", "}}")

    def run(column: pa.Array) -> pa.Array:
        given(column)
        return pc.struct_field(column, [at])

    return emit(Operation(text, type_.field(at).type, run, nullable=True), (value,))


# --- inside -------------------------------------------------------------------------------------


def _given(column: pa.Array) -> pa.Array:
    given(column)
    return column


def _among(item: Value, constants: list[Any], emit: Emit) -> Value:
    kinds = {type(one) for one in constants}
    wanted = {Kind.TEXT: {str}, Kind.INT: {int}}.get(kind(item))
    if wanted is None or kinds != wanted or isinstance(item, Constant):
        raise Refused(
            f"asks whether a {_told(item)} is among constants that are not all of that kind"
        )
    for one in constants:
        _fitting(Constant(one))
    known = pa.array(sorted(set(constants)), NORMAL[kind(item)])
    shown = ", ".join(map(repr, constants)).replace("{", "{{").replace("}", "}}")
    made = Operation(f"{{}} in ({shown})", pa.bool_(), lambda one: pc.is_in(one, known))
    return emit(made, (item,))


_PYTHON = {one.__name__: one for one in (abs, bool, float, int, len, max, min, str)}


def _called(name: str, constants: list[Any]) -> Constant:
    try:
        found = _PYTHON[name](*constants)
    except Exception as error:
        raise Refused(f"calls {name}({', '.join(map(repr, constants))})") from error
    return Constant(found)


def _folded(symbol: str, left: Constant, right: Constant) -> Constant:
    """Of numbers, whose results are small."""
    if not all(type(one.value) in (bool, int, float) for one in (left, right)):
        raise Refused(f"computes {left.value!r} {symbol} {right.value!r} anew for each record")
    try:
        return Constant(numbers.folded(symbol, left.value, right.value))
    except (KeyError, ArithmeticError, TypeError) as error:
        raise Refused(f"computes {left.value!r} {symbol} {right.value!r}") from error


def _fitting(value: Value) -> Value:
    """Constants that columns can hold."""
    number = value.value if isinstance(value, Constant) else None
    if type(number) is int and not -(2**63) <= number < 2**63:
        raise Refused("computes with a constant that has more than 64 bits")
    return value


def _known(made: Operation | None, symbol: str, *values: Value) -> Operation:
    if made is None:
        told = " and ".join(_told(value) for value in values)
        raise Refused(f"computes '{symbol}' of {told}, which columns do not do")
    return made


def _told(value: Value) -> str:
    return "constant" if isinstance(value, Constant) else str(value.type)

"""What each instruction does to a course: the table that the interpreter's meaning is written in.

3.11 and 3.12 in one: names that only one of them has do no harm in the other.
"""

from __future__ import annotations

import sys
from dis import Instruction
from types import FunctionType
from typing import Any

from ..row import Row, has_attribute
from . import operations, outside
from .course import (
    Bound,
    Course,
    Cut,
    Handler,
    Item,
    Known,
    Null,
    Record,
    as_value,
    from_outside,
)
from .kinds import Kind
from .operations import Refused
from .program import Block, Constant, GiveUp, Group, Shape, kind
from .records import item_of, named_field, parts_of

# --- the stack ----------------------------------------------------------------------------------


def _nothing(course: Course, one: Instruction) -> None:
    pass


def _load_const(course: Course, one: Instruction) -> None:
    course.push(_constant(one.argval))


def _constant(value: Any) -> Item:
    if not outside.is_plain(value):
        raise Refused(f"has a constant of type {type(value).__name__}")
    return Constant(value)


def _load_fast(course: Course, one: Instruction) -> None:
    known = course.frame.local
    if one.argval not in known:
        raise Refused(f"reads {one.argval}, which may have no value yet")
    course.push(known[one.argval])


def _store_fast(course: Course, one: Instruction) -> None:
    course.frame.local[one.argval] = course.frame.pop()


def _load_global(course: Course, one: Instruction) -> None:
    assert one.arg is not None
    if one.arg & 1:
        course.push(Null())
    value = course.reader.outside.read(outside.global_of(course.frame.function, one.argval))
    course.push(from_outside(value, one.argval))


def _load_deref(course: Course, one: Instruction) -> None:
    function = course.frame.function
    at = function.__code__.co_freevars.index(one.argval)
    try:
        value = course.reader.outside.read(outside.cell_of(function, at))
    except ValueError as error:
        raise Refused(f"reads {one.argval}, which has no value yet") from error
    course.push(from_outside(value, one.argval))


def _push_null(course: Course, one: Instruction) -> None:
    course.push(Null())


def _pop_top(course: Course, one: Instruction) -> None:
    course.frame.pop()


def _copy(course: Course, one: Instruction) -> None:
    assert one.arg is not None
    course.push(course.frame.stack[-one.arg])


def _swap(course: Course, one: Instruction) -> None:
    assert one.arg is not None
    stack = course.frame.stack
    stack[-1], stack[-one.arg] = stack[-one.arg], stack[-1]


# --- operators ----------------------------------------------------------------------------------


def _binary_op(course: Course, one: Instruction) -> None:
    right, left = course.frame.value(), course.frame.value()
    course.push(operations.binary(one.argrepr, left, right, course.emit))


def _compare_op(course: Course, one: Instruction) -> None:
    right, left = course.frame.value(), course.frame.value()
    course.push(operations.compared(one.argval, left, right, course.emit))


def _is_op(course: Course, one: Instruction) -> None:
    right, left = course.frame.pop(), course.frame.pop()
    if isinstance(left, Constant) and left.value is None:
        left, right = right, left
    if not (isinstance(right, Constant) and right.value is None):
        raise Refused("asks with 'is' for something else than None")
    course.push(_is_none(course, left, bool(one.arg)))


def _is_none(course: Course, item: Item, negated: bool) -> Any:
    if isinstance(item, (Record, Group)):
        return Constant(negated)
    return operations.missing(as_value(item), negated, course.emit)


def _contains_op(course: Course, one: Instruction) -> None:
    container, item = course.frame.pop(), course.frame.value()
    if isinstance(container, Record):
        raise Refused("asks whether something is 'in' the record")
    course.push(operations.contained(item, as_value(container), bool(one.arg), course.emit))


def _unary_not(course: Course, one: Instruction) -> None:
    course.push(operations.inverted(course.frame.value(), course.emit))


def _unary(symbol: str) -> Handler:
    def handle(course: Course, one: Instruction) -> None:
        course.push(operations.unary(symbol, course.frame.value(), course.emit))

    return handle


def _intrinsic(course: Course, one: Instruction) -> None:
    """3.12 has `+value` among these."""
    if one.argrepr != "INTRINSIC_UNARY_POSITIVE":
        raise Refused("does what columns do not (call intrinsic)")
    _unary("+")(course, one)


def _binary_subscr(course: Course, one: Instruction) -> None:
    at, owner = course.frame.pop(), course.frame.pop()
    if isinstance(at, Cut):
        course.push(operations.sliced(as_value(owner), at.start, at.stop, course.emit))
        return
    course.push(item_of(owner, as_value(at), course.emit))


def _build_slice(course: Course, one: Instruction) -> None:
    if one.arg != 2:
        raise Refused("takes a slice with a step")
    stop, start = course.frame.value(), course.frame.value()
    course.push(_cut(start, stop))


def _binary_slice(course: Course, one: Instruction) -> None:
    stop, start, value = (course.frame.value() for _ in range(3))
    cut = _cut(start, stop)
    course.push(operations.sliced(value, cut.start, cut.stop, course.emit))


def _cut(start: Any, stop: Any) -> Cut:
    if not (isinstance(start, Constant) and isinstance(stop, Constant)):
        raise Refused("takes a slice whose ends are no constants")
    return Cut(start.value, stop.value)


# --- what is made -------------------------------------------------------------------------------


def _build_tuple(course: Course, one: Instruction) -> None:
    assert one.arg is not None
    parts = tuple(as_value(item) for item in course.frame.values(one.arg))
    course.push(Group(Shape.TUPLE, parts))


def _build_map(course: Course, one: Instruction) -> None:
    assert one.arg is not None
    items = course.frame.values(2 * one.arg)
    _push_dict(course, items[::2], items[1::2])


def _build_const_key_map(course: Course, one: Instruction) -> None:
    assert one.arg is not None
    keys = course.frame.pop()
    assert isinstance(keys, Constant)
    values = course.frame.values(one.arg)
    _push_dict(course, [Constant(key) for key in keys.value], values)


def _push_dict(course: Course, keys: list[Item], values: list[Item]) -> None:
    names = tuple(key.value for key in keys if isinstance(key, Constant) and type(key.value) is str)
    if len(set(names)) < len(keys):
        raise Refused("makes a dict whose keys are not constant texts, each once")
    course.push(Group(Shape.DICT, tuple(map(as_value, values)), names))


def _unpack_sequence(course: Course, one: Instruction) -> None:
    assert one.arg is not None
    parts = parts_of(course.frame.pop())
    if len(parts) != one.arg:
        raise Refused(f"takes {one.arg} fields from {len(parts)}")
    course.frame.stack.extend(reversed(parts))


def _format_value(course: Course, one: Instruction) -> None:
    conversion, spec = one.argval
    if spec or conversion not in (None, str):
        raise Refused("formats a value in an own way")
    course.push(operations.written(course.frame.value(), course.emit))


def _build_string(course: Course, one: Instruction) -> None:
    assert one.arg is not None
    values = [as_value(item) for item in course.frame.values(one.arg)]
    course.push(operations.joined(values, course.emit))


# --- attributes and calls -----------------------------------------------------------------------


_BITS = sys.version_info >= (3, 12)


def _load_attr(course: Course, one: Instruction) -> None:
    """3.12 says by a bit that a method is meant; 3.11 has `LOAD_METHOD`."""
    assert one.arg is not None
    is_method = one.opname == "LOAD_METHOD" or (_BITS and one.arg & 1)
    owner = course.frame.pop()
    found = _attribute(course, owner, one.argval)
    if is_method:
        course.push(Null())
    course.push(found)


def _attribute(course: Course, owner: Item, name: str) -> Item:
    match owner:
        case Record(is_tuple=False) if has_attribute(name):
            return named_field(owner, name, course.emit)
        case Record() | Group():
            raise Refused(f"reads .{name} of a tuple, or a method of a record")
        case Known(value=value):
            found = course.reader.outside.read(outside.attribute_of(value, name))
            return from_outside(found, f".{name}")
    value = as_value(owner)
    if kind(value) is Kind.TEXT:
        return Bound(value, name)
    if has_attribute(name):
        return named_field(value, name, course.emit)
    raise Refused(f"reads .{name} of a {value.type}")


def _kw_names(course: Course, one: Instruction) -> None:
    names = one.argval
    if not isinstance(names, tuple):  # a place among the constants, in some versions
        assert one.arg is not None
        names = course.frame.function.__code__.co_consts[one.arg]
    course.frame.names = names


def _call(course: Course, one: Instruction) -> Block | None:
    assert one.arg is not None
    frame = course.frame
    arguments, names, frame.names = frame.values(one.arg), frame.names, ()
    called, before = frame.pop(), frame.pop()
    if not isinstance(before, Null):
        raise Refused("calls a value")
    match called:
        case Bound(owner=owner, name=name) if not names:
            values = [as_value(item) for item in arguments]
            course.push(operations.method(owner, name, values, course.emit))
            return None
        case Known(value=value):
            return _call_known(course, value, arguments, names)
    raise Refused("calls a value")


def _call_known(
    course: Course, called: Any, arguments: list[Item], names: tuple[str, ...]
) -> Block | None:
    if called is Row and len(names) == len(arguments) and names:
        pairs = dict(zip(names, map(as_value, arguments), strict=True))
        fields = type(Row(**dict.fromkeys(pairs)))._fields
        course.push(Group(Shape.ROW, tuple(pairs[name] for name in fields), fields))
        return None
    if isinstance(called, type) and issubclass(called, BaseException):
        return Block(tuple(course.steps), GiveUp())
    if names:
        raise Refused(f"calls {_name(called)} with names")
    if type(called) is FunctionType:
        course.enter(called, arguments)
        return None
    name = _BUILTINS.get(id(called))
    if name is None:
        raise Refused(f"calls {_name(called)}")
    if name == "len" and isinstance(arguments[0], (Record, Group)):
        course.push(Constant(len(parts_of(arguments[0]))))
        return None
    values = [as_value(item) for item in arguments]
    course.push(operations.builtin(name, values, course.emit))
    return None


def _name(called: Any) -> str:
    return str(getattr(called, "__name__", type(called).__name__))


_BUILTINS = {id(one): one.__name__ for one in (abs, bool, float, int, len, max, min, str)}


# --- where it goes ------------------------------------------------------------------------------


def _jump_forward(course: Course, one: Instruction) -> None:
    course.frame.jump(one.argval)


def _jump_if(when: bool, keep: bool = False) -> Handler:
    def handle(course: Course, one: Instruction) -> Block | None:
        item = course.frame.pop()
        if isinstance(item, (Record, Group)):
            raise Refused("asks whether a tuple or record is true")
        return course.branch(as_value(item), one.argval, when, keep)

    return handle


def _jump_if_none(when: bool) -> Handler:
    def handle(course: Course, one: Instruction) -> Block | None:
        item = course.frame.pop()
        test = _is_none(course, item, False)
        return course.branch(test, one.argval, when)

    return handle


def _return_value(course: Course, one: Instruction) -> Block | None:
    return course.reader.returned(course, course.frame.pop())


def _return_const(course: Course, one: Instruction) -> Block | None:
    return course.reader.returned(course, _constant(one.argval))


def _give_up(course: Course, one: Instruction) -> Block:
    return Block(tuple(course.steps), GiveUp())


def _loops(course: Course, one: Instruction) -> None:
    raise Refused("loops")


_NOTHING = ("RESUME", "NOP", "CACHE", "PRECALL", "COPY_FREE_VARS", "EXTENDED_ARG")

_LOOPS = (
    *("GET_ITER", "FOR_ITER", "JUMP_BACKWARD"),
    *("POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_TRUE"),
    *("POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE"),
)

HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(_NOTHING, _nothing),
    **dict.fromkeys(_LOOPS, _loops),
    "LOAD_CONST": _load_const,
    "LOAD_FAST": _load_fast,
    "LOAD_FAST_CHECK": _load_fast,
    "STORE_FAST": _store_fast,
    "LOAD_GLOBAL": _load_global,
    "LOAD_DEREF": _load_deref,
    "PUSH_NULL": _push_null,
    "POP_TOP": _pop_top,
    "COPY": _copy,
    "SWAP": _swap,
    "BINARY_OP": _binary_op,
    "COMPARE_OP": _compare_op,
    "IS_OP": _is_op,
    "CONTAINS_OP": _contains_op,
    "UNARY_NOT": _unary_not,
    "UNARY_NEGATIVE": _unary("-"),
    "UNARY_POSITIVE": _unary("+"),
    "CALL_INTRINSIC_1": _intrinsic,
    "UNARY_INVERT": _unary("~"),
    "BINARY_SUBSCR": _binary_subscr,
    "BUILD_SLICE": _build_slice,
    "BINARY_SLICE": _binary_slice,
    "BUILD_TUPLE": _build_tuple,
    "BUILD_MAP": _build_map,
    "BUILD_CONST_KEY_MAP": _build_const_key_map,
    "UNPACK_SEQUENCE": _unpack_sequence,
    "FORMAT_VALUE": _format_value,
    "BUILD_STRING": _build_string,
    "LOAD_ATTR": _load_attr,
    "LOAD_METHOD": _load_attr,
    "KW_NAMES": _kw_names,
    "CALL": _call,
    "JUMP_FORWARD": _jump_forward,
    "POP_JUMP_IF_FALSE": _jump_if(False),
    "POP_JUMP_IF_TRUE": _jump_if(True),
    "POP_JUMP_FORWARD_IF_FALSE": _jump_if(False),
    "POP_JUMP_FORWARD_IF_TRUE": _jump_if(True),
    "JUMP_IF_FALSE_OR_POP": _jump_if(False, keep=True),
    "JUMP_IF_TRUE_OR_POP": _jump_if(True, keep=True),
    "POP_JUMP_IF_NONE": _jump_if_none(True),
    "POP_JUMP_IF_NOT_NONE": _jump_if_none(False),
    "POP_JUMP_FORWARD_IF_NONE": _jump_if_none(True),
    "POP_JUMP_FORWARD_IF_NOT_NONE": _jump_if_none(False),
    "RETURN_VALUE": _return_value,
    "RETURN_CONST": _return_const,
    "LOAD_ASSERTION_ERROR": _give_up,
    "RAISE_VARARGS": _give_up,
}
"""What is not here is refused."""

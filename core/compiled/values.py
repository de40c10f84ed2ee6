"""Operators, tests and slices, and what is made: constants, tuples, dicts, texts."""

from __future__ import annotations

from dis import Instruction
from typing import Any

from . import operations, outside
from .course import Course, Cut, Handler, Item, Record, as_value
from .operations import Refused
from .program import Constant, Group, Shape, Value
from .records import item_of, parts_of

# --- operators ----------------------------------------------------------------------------------


def _binary_op(course: Course, one: Instruction) -> None:
    if one.argrepr == "[]":  # 3.14 has it among the operators
        _binary_subscr(course, one)
        return
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
    course.push(is_none(course, left, bool(one.arg)))


def is_none(course: Course, item: Item, negated: bool) -> Any:
    if isinstance(item, (Record, Group)):
        return Constant(negated)
    return operations.missing(as_value(item), negated, course.emit)


def _contains_op(course: Course, one: Instruction) -> None:
    container, item = course.frame.pop(), course.frame.value()
    if isinstance(container, Record):
        raise Refused("asks whether something is 'in' the record")
    course.push(operations.contained(item, as_value(container), bool(one.arg), course.emit))


def _to_bool(course: Course, one: Instruction) -> None:
    """What 3.13 says of its own before it jumps, or negates; the others do it in these."""
    course.push(operations.truth(tested(course.frame.pop()), course.emit))


def tested(item: Item) -> Value:
    if isinstance(item, (Record, Group)):
        raise Refused("asks whether a tuple or record is true")
    return as_value(item)


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


def constant(value: Any) -> Item:
    if not outside.is_plain(value):
        raise Refused(f"has a constant of type {type(value).__name__}")
    return Constant(value)


def _load_const(course: Course, one: Instruction) -> None:
    value = one.argval
    if type(value) is slice:  # 3.14 has those of constants among its constants
        if value.step is not None:
            raise Refused("takes a slice with a step")
        course.push(_cut(constant(value.start), constant(value.stop)))
        return
    course.push(constant(value))


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


def _convert_value(course: Course, one: Instruction) -> None:
    """3.13 has `!s`, `!r` and `!a` apart from the format."""
    if one.argval is not str:
        raise Refused("formats a value in an own way")
    course.push(operations.written(course.frame.value(), course.emit))


def _format_simple(course: Course, one: Instruction) -> None:
    course.push(operations.written(course.frame.value(), course.emit))


def _format_with_spec(course: Course, one: Instruction) -> None:
    raise Refused("formats a value in an own way")


def _build_string(course: Course, one: Instruction) -> None:
    assert one.arg is not None
    values = [as_value(item) for item in course.frame.values(one.arg)]
    course.push(operations.joined(values, course.emit))


HANDLERS: dict[str, Handler] = {
    "LOAD_CONST": _load_const,
    "LOAD_SMALL_INT": _load_const,
    "BINARY_OP": _binary_op,
    "COMPARE_OP": _compare_op,
    "IS_OP": _is_op,
    "CONTAINS_OP": _contains_op,
    "TO_BOOL": _to_bool,
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
    "CONVERT_VALUE": _convert_value,
    "FORMAT_SIMPLE": _format_simple,
    "FORMAT_WITH_SPEC": _format_with_spec,
    "BUILD_STRING": _build_string,
}

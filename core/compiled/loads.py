"""What is read by name (locals, globals, cells, attributes), moved on the stack, and called."""

from __future__ import annotations

import sys
from dis import Instruction
from types import FunctionType
from typing import Any

from ..row import Row, has_attribute
from . import operations, outside
from .course import Bound, Course, Handler, Item, Known, Null, Record, as_value, from_outside
from .kinds import Kind
from .operations import Refused
from .program import Block, Constant, GiveUp, Group, Shape, kind
from .records import named_field, parts_of

# --- locals, globals, and the stack -------------------------------------------------------------


def _load_fast(course: Course, one: Instruction) -> None:
    _load_local(course, one.argval)


def _store_fast(course: Course, one: Instruction) -> None:
    course.frame.local[one.argval] = course.frame.pop()


def _load_local(course: Course, name: str) -> None:
    known = course.frame.local
    if name not in known:
        raise Refused(f"reads {name}, which may have no value yet")
    course.push(known[name])


def _load_fast_twice(course: Course, one: Instruction) -> None:
    """3.13 has two in one, with both names."""
    for name in one.argval:
        _load_local(course, name)


def _store_and_load_fast(course: Course, one: Instruction) -> None:
    stored, loaded = one.argval
    course.frame.local[stored] = course.frame.pop()
    _load_local(course, loaded)


def _store_fast_twice(course: Course, one: Instruction) -> None:
    for name in one.argval:
        course.frame.local[name] = course.frame.pop()


def _load_global(course: Course, one: Instruction) -> None:
    assert one.arg is not None
    value = course.reader.outside.read(outside.global_of(course.frame.function, one.argval))
    _push_read(course, from_outside(value, one.argval), is_called=bool(one.arg & 1))


_NULL_ABOVE = sys.version_info >= (3, 13)


def _push_read(course: Course, item: Item, *, is_called: bool) -> None:
    """What is going to be called has a place for `self` beside it: below, and since 3.13 above."""
    items = [item]
    if is_called:
        items.insert(1 if _NULL_ABOVE else 0, Null())
    course.frame.stack.extend(items)


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


# --- attributes and calls -----------------------------------------------------------------------


_BITS = sys.version_info >= (3, 12)


def _load_attr(course: Course, one: Instruction) -> None:
    """3.12 says by a bit that a method is meant; 3.11 has `LOAD_METHOD`."""
    assert one.arg is not None
    is_method = one.opname == "LOAD_METHOD" or (_BITS and one.arg & 1)
    owner = course.frame.pop()
    _push_read(course, _attribute(course, owner, one.argval), is_called=bool(is_method))


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


def _call_kw(course: Course, one: Instruction) -> Block | None:
    """3.13 has the names on the stack."""
    names = course.frame.pop()
    assert isinstance(names, Constant)
    course.frame.names = names.value
    return _call(course, one)


def _call(course: Course, one: Instruction) -> Block | None:
    assert one.arg is not None
    frame = course.frame
    arguments, names, frame.names = frame.values(one.arg), frame.names, ()
    called, myself = frame.pop(), frame.pop()
    if _NULL_ABOVE:
        called, myself = myself, called
    if not isinstance(myself, Null):
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


HANDLERS: dict[str, Handler] = {
    "LOAD_FAST": _load_fast,
    "LOAD_FAST_BORROW": _load_fast,
    "LOAD_FAST_CHECK": _load_fast,
    "LOAD_FAST_LOAD_FAST": _load_fast_twice,
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": _load_fast_twice,
    "STORE_FAST": _store_fast,
    "STORE_FAST_LOAD_FAST": _store_and_load_fast,
    "STORE_FAST_STORE_FAST": _store_fast_twice,
    "LOAD_GLOBAL": _load_global,
    "LOAD_DEREF": _load_deref,
    "PUSH_NULL": _push_null,
    "POP_TOP": _pop_top,
    "COPY": _copy,
    "SWAP": _swap,
    "LOAD_ATTR": _load_attr,
    "LOAD_METHOD": _load_attr,
    "KW_NAMES": _kw_names,
    "CALL": _call,
    "CALL_KW": _call_kw,
}

"""A function that is followed as the interpreter would, with values of `program` on the stack.

At a branch whose way depends on the record both ways are followed, each to its own return. A call
of a plain Python function is followed into it.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FunctionType
from typing import Any, TypeAlias

from . import outside
from .operations import Refused, truth
from .outside import Outside, Unknown
from .program import (
    Block,
    Branch,
    Column,
    Constant,
    Group,
    Operation,
    Return,
    Shape,
    Step,
    Value,
)

_STEPS, _INSTRUCTIONS, _DEPTH = 200, 4_000, 8
"""A program may have so many steps, come of so many instructions, and of calls so deep."""


@dataclass(frozen=True)
class Record:
    """What the function is called with: a Row of these columns, or a tuple."""

    columns: tuple[Column, ...]
    is_tuple: bool


@dataclass(frozen=True)
class Known:
    """A function, class, module or instance: what may be asked for attributes, or called."""

    value: Any


@dataclass(frozen=True)
class Bound:
    """A method of a text."""

    owner: Value
    name: str


class Null:
    """What the interpreter puts where there is no `self`."""


@dataclass(frozen=True)
class Cut:
    """A slice of constants."""

    start: Any
    stop: Any


Item: TypeAlias = Value | Group | Record | Known | Bound | Null | Cut
"""What may be on the stack."""


@dataclass
class Frame:
    """A call that is being followed. `at`: the next instruction."""

    function: FunctionType
    code: list[dis.Instruction]
    local: dict[str, Item]
    stack: list[Item] = field(default_factory=list)
    at: int = 0
    names: tuple[str, ...] = ()
    """Of the keyword arguments of the next call."""

    def copy(self) -> Frame:
        return Frame(
            self.function, self.code, dict(self.local), list(self.stack), self.at, self.names
        )

    def jump(self, offset: int) -> None:
        """Forward: what jumps back is a loop."""
        there = next(n for n, one in enumerate(self.code) if one.offset >= offset)
        if there < self.at:
            raise Refused("loops")
        self.at = there

    def pop(self) -> Item:
        return self.stack.pop()

    def value(self) -> Value:
        """What is on top, as one value of each record."""
        return as_value(self.pop())

    def values(self, count: int) -> list[Item]:
        """The `count` on top, the lowest first."""
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken


@dataclass
class Course:
    """One way through the function: the frames of its calls, and its steps since the branch."""

    reader: Reader
    frames: list[Frame]
    steps: list[Step] = field(default_factory=list)

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def copy(self) -> Course:
        return Course(self.reader, [frame.copy() for frame in self.frames])

    def emit(self, operation: Operation, operands: tuple[Value, ...]) -> Value:
        step = Step(operation, operands)
        self.steps.append(step)
        self.reader.count_step()
        return step

    def push(self, item: Item) -> None:
        self.frame.stack.append(item)

    def branch(self, value: Value, offset: int, when: bool, keep: bool = False) -> Block | None:
        """Go to `offset` if the truth of the value is `when`, with the value on the stack if it is
        to be kept. None: there is only one way, which is taken."""
        test = truth(value, self.emit)
        if isinstance(test, Constant):
            if test.value is when:
                self.take_jump(value, offset, keep)
            return None
        return self.fork(test, value, offset, when, keep)

    def fork(self, test: Value, value: Value, offset: int, when: bool, keep: bool = False) -> Block:
        jumped, stayed = self.copy(), self.copy()
        jumped.take_jump(value, offset, keep)
        if test is value:
            jumped.learn(value, when)
            stayed.learn(value, not when)
        blocks = self.reader.follow(jumped), self.reader.follow(stayed)
        then, other = blocks if when else blocks[::-1]
        return Block(tuple(self.steps), Branch(test, value, then, other))

    def learn(self, value: Value, truth: bool) -> None:
        """The value is this constant from here on."""
        for frame in self.frames:
            frame.stack = [Constant(truth) if one is value else one for one in frame.stack]
            for name, one in frame.local.items():
                if one is value:
                    frame.local[name] = Constant(truth)

    def take_jump(self, value: Value, offset: int, keep: bool) -> None:
        if keep:
            self.push(value)
        self.frame.jump(offset)

    def enter(self, function: FunctionType, arguments: list[Item]) -> None:
        if len(self.frames) > _DEPTH:
            raise Refused("calls too deep")
        self.frames.append(self.reader.frame(function, arguments))


Handler: TypeAlias = Callable[[Course, dis.Instruction], Block | None]


class Reader:
    """Of one function. `outside`: what was read beside the record."""

    def __init__(self, handlers: Mapping[str, Handler], truths: bool) -> None:
        self.outside = Outside([])
        self._handlers = handlers
        self._truths = truths
        self._steps = 0
        self._instructions = 0

    def frame(self, function: FunctionType, arguments: list[Item]) -> Frame:
        """At the beginning of a call. Refused if it could not be called with these."""
        for read in outside.code_of(function):
            self.outside.read(read)
        code = function.__code__
        check_code(code)
        names = code.co_varnames[: code.co_argcount]
        local = dict(zip(names, arguments, strict=False))
        defaults = function.__defaults__ or ()
        for name, value in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            local.setdefault(name, from_outside(value, name))
        if len(arguments) > len(names) or len(local) < len(names):
            raise Refused("cannot be called with one record")
        return Frame(function, list(dis.get_instructions(code)), local)

    def follow(self, course: Course) -> Block:
        """To the returns of this course."""
        while True:
            frame = course.frame
            one = frame.code[frame.at]
            frame.at += 1
            self._instructions += 1
            if self._instructions > _INSTRUCTIONS:
                raise Refused("is too long")
            handle = self._handlers.get(one.opname)
            if handle is None:
                raise Refused(f"does what columns do not ({one.opname.lower().replace('_', ' ')})")
            try:
                block = handle(course, one)
            except Unknown as error:
                raise Refused(str(error), error.until_open) from error
            if block is not None:
                return block

    def count_step(self) -> None:
        self._steps += 1
        if self._steps > _STEPS:
            raise Refused("has too many ways through it")

    def returned(self, course: Course, item: Item) -> Block | None:
        """The end of a call: of the function itself, or of one within it."""
        if len(course.frames) > 1:
            course.frames.pop()
            course.push(item)
            return None
        if self._truths:
            group = Group(Shape.ONE, (self._truth(course, item),))
        elif isinstance(item, Group):
            group = item
        elif isinstance(item, Constant) and type(item.value) is tuple:
            group = Group(Shape.TUPLE, tuple(map(Constant, item.value)))
        elif isinstance(item, Record):
            raise Refused("returns the record itself")
        else:
            group = Group(Shape.ONE, (as_value(item),))
        return Block(tuple(course.steps), Return(group))

    def _truth(self, course: Course, item: Item) -> Value:
        match item:
            case Group(parts=parts):
                return Constant(bool(parts))
            case Record(columns=columns):
                return Constant(bool(columns))
        return truth(as_value(item), course.emit)


def check_code(code: CodeType) -> None:
    """Refused for what is not a plain function that runs to its end."""
    if code.co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR):
        raise Refused("is a generator or coroutine")
    if code.co_flags & (CO_VARARGS | CO_VARKEYWORDS) or code.co_kwonlyargcount:
        raise Refused("takes more than arguments by position")
    if code.co_exceptiontable:
        raise Refused("has a 'try', 'with' or comprehension")
    if code.co_cellvars:
        raise Refused("has a function within it")


def from_outside(value: Any, name: str) -> Item:
    """A value that was read beside the record."""
    if outside.is_plain(value):
        return Constant(value)
    if outside.is_callable(value):
        return Known(value)
    raise Refused(f"reads {name}, a {type(value).__name__}, which may change")


def as_value(item: Item) -> Value:
    match item:
        case Record():
            raise Refused("uses the record as a whole")
        case Group():
            raise Refused("uses a tuple as one value")
        case Known(value=value):
            raise Refused(f"uses a {type(value).__name__} as a value")
        case Bound() | Null() | Cut():
            raise Refused("uses a method as a value")
        case _:
            return item

"""What a function does, as data: steps on columns, branches, and what is returned.

    Block      steps in their order, then an end
    Branch     by a column of bools, the records go on in one of two blocks
    Return     one value, or several that make a tuple, a Row or a dict
    GiveUp     a record that gets here makes its batch go by rows: the function raises, say

A value is told by identity: two steps that compute the same are two values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa

from .kinds import NORMAL, Kind, cast_of, kind_of


class Typed:
    """Base of values that are columns."""

    type: pa.DataType

    @cached_property
    def cast(self) -> pa.DataType | None:
        """The type that operations take it as; None: as it is."""
        return cast_of(self.type)


@dataclass(frozen=True, eq=False)
class Column(Typed):
    """A field of the record."""

    place: int
    name: str
    type: pa.DataType
    nullable = True


@dataclass(frozen=True, eq=False)
class Constant:
    """A value that cannot change, the same for all records."""

    value: Any

    nullable = False

    @property
    def type(self) -> pa.DataType:
        return NORMAL.get(_CONSTANTS.get(type(self.value), Kind.OTHER), pa.null())

    @cached_property
    def scalar(self) -> pa.Scalar:
        """As operations take it."""
        return pa.scalar(self.value, self.type)


_CONSTANTS: dict[type, Kind] = {
    type(None): Kind.NONE,
    bool: Kind.BOOL,
    int: Kind.INT,
    float: Kind.FLOAT,
}
_CONSTANTS[str] = Kind.TEXT


@dataclass(frozen=True)
class Operation:
    """`run` makes a column of `type` from columns, or scalars in the place of constants; it raises
    Beyond, or what Arrow raises, where Python would give anything else. `text`: for people, a
    format of the operands. `nullable`: whether there can be a None in the result."""

    text: str
    type: pa.DataType
    run: Callable[..., pa.Array]
    nullable: bool = False


@dataclass(frozen=True, eq=False)
class Step(Typed):
    """An operation on values that were there before it."""

    operation: Operation
    operands: tuple[Value, ...]

    @cached_property
    def type(self) -> pa.DataType:
        return self.operation.type

    @property
    def nullable(self) -> bool:
        return self.operation.nullable


Value: TypeAlias = Column | Constant | Step


class Shape(Enum):
    """What several values make."""

    ONE = "one"
    TUPLE = "tuple"
    ROW = "Row"
    DICT = "dict"


@dataclass(frozen=True, eq=False)
class Group:
    """`names`: of the fields of a Row or dict, in order."""

    shape: Shape
    parts: tuple[Value, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Return:
    value: Group


@dataclass(frozen=True, eq=False)
class Branch:
    """`test` is a column of bools without None, the truth of `value`."""

    test: Value
    value: Value
    then: Block
    other: Block


@dataclass(frozen=True, eq=False)
class GiveUp:
    pass


@dataclass(frozen=True, eq=False)
class Block:
    steps: tuple[Step, ...]
    end: Return | Branch | GiveUp


def kind(value: Value) -> Kind:
    """What the value is to Python, None aside."""
    if isinstance(value, Constant):
        return _CONSTANTS.get(type(value.value), Kind.OTHER)
    return kind_of(value.type)


def returns(block: Block) -> bool:
    """Whether some record can get through."""
    match block.end:
        case Branch(then=then, other=other):
            return returns(then) or returns(other)
        case end:
            return isinstance(end, Return)


# --- for people ---------------------------------------------------------------------------------


def text_of(block: Block) -> str:
    """The program as an expression."""
    match block.end:
        case Return(value=value):
            return _group_text(value)
        case GiveUp():
            return "(by rows)"
        case Branch(value=value, then=then, other=other):
            if _gives(other, value, False):
                return f"{_part(value)} and {text_of(then)}"
            if _gives(then, value, True):
                return f"{_part(value)} or {text_of(other)}"
            return f"{text_of(then)} if {_text(value)} else {text_of(other)}"


def _gives(block: Block, value: Value, truth: bool) -> bool:
    """Whether it only returns the value, whose truth is known."""
    end = block.end
    if not (isinstance(end, Return) and end.value.shape is Shape.ONE):
        return False
    (part,) = end.value.parts
    return part is value or (
        isinstance(part, Constant) and part.value is truth and kind(value) is Kind.BOOL
    )


def _group_text(group: Group) -> str:
    parts = [_text(part) for part in group.parts]
    match group.shape:
        case Shape.ONE:
            return parts[0]
        case Shape.TUPLE:
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        case Shape.ROW:
            pairs = zip(group.names, parts, strict=True)
            return f"Row({', '.join(f'{name}={part}' for name, part in pairs)})"
        case Shape.DICT:
            pairs = zip(group.names, parts, strict=True)
            return f"{{{', '.join(f'{name!r}: {part}' for name, part in pairs)}}}"


def _text(value: Value) -> str:
    match value:
        case Column(name=name):
            return name
        case Constant(value=constant):
            return repr(constant)
        case Step(operation=operation, operands=operands):
            return operation.text.format(*map(_part, operands))


def _part(value: Value) -> str:
    text = _text(value)
    infix = isinstance(value, Step) and "{} " in value.operation.text
    return f"({text})" if infix else text

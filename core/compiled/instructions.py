"""What each instruction does to a course: the table that the interpreter's meaning is written in.

3.11 to 3.14 in one: names that only some of them have do no harm in the others. `loads` and
`values` have what works on the stack; here is where it goes next.
"""

from __future__ import annotations

from dis import Instruction

from . import loads, values
from .course import Course, Handler
from .operations import Refused
from .program import Block, GiveUp


def _nothing(course: Course, one: Instruction) -> None:
    pass


def _jump_forward(course: Course, one: Instruction) -> None:
    course.frame.jump(one.argval)


def _jump_if(when: bool, keep: bool = False) -> Handler:
    def handle(course: Course, one: Instruction) -> Block | None:
        return course.branch(values.tested(course.frame.pop()), one.argval, when, keep)

    return handle


def _jump_if_none(when: bool) -> Handler:
    def handle(course: Course, one: Instruction) -> Block | None:
        item = course.frame.pop()
        test = values.is_none(course, item, False)
        return course.branch(test, one.argval, when)

    return handle


def _return_value(course: Course, one: Instruction) -> Block | None:
    return course.reader.returned(course, course.frame.pop())


def _return_const(course: Course, one: Instruction) -> Block | None:
    return course.reader.returned(course, values.constant(one.argval))


def _give_up(course: Course, one: Instruction) -> Block:
    return Block(tuple(course.steps), GiveUp())


def _load_common(course: Course, one: Instruction) -> Block:
    """Classes of errors, and builtins that take what is looped over."""
    if not one.argrepr.endswith("Error"):
        raise Refused("loops")
    return _give_up(course, one)


def _loops(course: Course, one: Instruction) -> None:
    raise Refused("loops")


_NOTHING = ("RESUME", "NOP", "CACHE", "PRECALL", "COPY_FREE_VARS", "EXTENDED_ARG", "NOT_TAKEN")

_LOOPS = (
    *("GET_ITER", "FOR_ITER", "JUMP_BACKWARD"),
    *("POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_TRUE"),
    *("POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE"),
)

HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(_NOTHING, _nothing),
    **dict.fromkeys(_LOOPS, _loops),
    **loads.HANDLERS,
    **values.HANDLERS,
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
    "LOAD_COMMON_CONSTANT": _load_common,
    "RAISE_VARARGS": _give_up,
}
"""What is not here is refused."""

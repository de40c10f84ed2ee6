"""From a function to the program of what it does, by way of its bytecode.

Instructions that are not in the table (`instructions`) are refused, and so is every version of
Python that the table was not written for.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

import pyarrow as pa

from .course import Course, Item, Known, Reader, Record, check_code
from .instructions import HANDLERS
from .operations import Refused
from .outside import Outside
from .program import Block, Column, returns

VERSIONS = ((3, 11), (3, 12), (3, 13), (3, 14))

NOT_UNDERSTOOD = "is not understood"
"""Of what these modules do not expect."""


def check(function: Any) -> None:
    """Refused for what is not read, whatever its records are."""
    if sys.version_info[:2] not in VERSIONS:
        raise Refused("runs on a Python whose bytecode is not known here")
    called = function.__func__ if type(function) is MethodType else function
    if type(called) is not FunctionType:
        raise Refused(f"is a {type(called).__name__}, and no Python function")
    check_code(called.__code__)


@dataclass(frozen=True)
class Reading:
    """The program of a function, and what else it depends on."""

    block: Block
    outside: Outside


def read(function: Any, schema: pa.Schema, is_tuple: bool, *, truths: bool = False) -> Reading:
    """What the function does with records of these columns, each a tuple or a Row. truths: only
    whether its results are true counts. Refused, with a reason, unless all of it is understood."""
    try:
        return _read(function, schema, is_tuple, truths)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"{NOT_UNDERSTOOD} ({type(error).__name__}: {error})") from error


def _read(function: Any, schema: pa.Schema, is_tuple: bool, truths: bool) -> Reading:
    check(function)
    if len(set(schema.names)) < len(schema.names):
        raise Refused("gets records with two fields of one name")
    reader = Reader(HANDLERS, truths)
    columns = [Column(at, one.name, one.type) for at, one in enumerate(schema)]
    arguments: list[Item] = [Record(tuple(columns), is_tuple)]
    if type(function) is MethodType:
        arguments.insert(0, Known(function.__self__))
        function = function.__func__
    course = Course(reader, [reader.frame(function, arguments)])
    block = reader.follow(course)
    if not returns(block):
        raise Refused("returns for no record")
    return Reading(block, reader.outside)

"""Pickles of what a program defines: functions and classes by value, as cloudpickle makes them,
with the files that their code is in.

cloudpickle leaves the file out from 3.1.3 on (all code is in `<dynamic-code>` then), so that equal
code has equal pickles. Errors and logs of a job are to say where a function stands, and show its
line.

Bytecode is of one minor version of Python, and another that runs it crashes. So it is read with
what wrote it, and by another becomes code that says so when it is called: of a class that a
program has declared itself, only the one in the pickle is like that, which nobody uses.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, Final

import cloudpickle

PYTHON: Final = str(sys.implementation.cache_tag)
"""Whose bytecode is this one's."""

_NOWHERE: Final = "<dynamic-code>"
_TABLE: Final = cloudpickle.Pickler.dispatch_table
"""How cloudpickle reduces values, by type."""

_reduce_code = _TABLE[CodeType]


def _code_with_its_file(code: CodeType) -> tuple[Any, ...]:
    made, arguments, *more = _reduce_code(code)
    named = tuple(code.co_filename if one == _NOWHERE else one for one in arguments)
    return (code_of, (PYTHON, code.co_qualname, code.co_freevars, made, named), *more)


def code_of(
    python: str, name: str, free: tuple[str, ...], made: Callable[..., CodeType], arguments: Any
) -> CodeType:
    """What `made` makes, if this Python wrote it; else code with as many `free` variables that
    raises SerializationError. Called by pickles."""
    if python == PYTHON:
        return made(*arguments)
    advice = (
        f"the code of '{name}' was stored by value by {python}, and this is {PYTHON}: run it with "
        "that one, or have it in a module that both import"
    )

    def refuse(*given: Any, **named: Any) -> Any:
        from strom.core.errors import SerializationError

        raise SerializationError("")

    code = refuse.__code__
    said = tuple(advice if one == "" else one for one in code.co_consts)
    return code.replace(co_consts=said, co_freevars=free, co_name=name.rpartition(".")[2])


class CodePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle's, which see."""

    def dump(self, obj: Any) -> None:
        with _files_kept():
            super().dump(obj)


_lock = threading.Lock()
_depth = 0


@contextmanager
def _files_kept() -> Iterator[None]:
    """Values may call cloudpickle themselves while they are pickled, as polars' expressions do for
    functions within: its own table says so meanwhile. What other threads pickle then has the files,
    too, which does no harm."""
    global _depth
    with _lock:
        _depth += 1
        _TABLE[CodeType] = _code_with_its_file
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _TABLE[CodeType] = _reduce_code


def dumps(value: Any) -> bytes:
    """The pickle of `value`, which `pickle.loads` reads where strom is installed. Raises what
    the value's own pickling raises, and PicklingError and TypeError for what has none."""
    file = io.BytesIO()
    CodePickler(file, protocol=5).dump(value)
    return file.getvalue()

"""Pickles of what a program defines: functions and classes by value, as cloudpickle makes them,
with the files that their code is in.

cloudpickle leaves the file out from 3.1.3 on (all code is in `<dynamic-code>` then), so that equal
code has equal pickles. Errors and logs of a job are to say where a function stands, and show its
line.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, Final

import cloudpickle

_NOWHERE: Final = "<dynamic-code>"
_TABLE: Final = cloudpickle.Pickler.dispatch_table
"""How cloudpickle reduces values, by type."""

_reduce_code = _TABLE[CodeType]


def _code_with_its_file(code: CodeType) -> tuple[Any, ...]:
    made, arguments, *more = _reduce_code(code)
    named = (code.co_filename if one == _NOWHERE else one for one in arguments)
    return (made, tuple(named), *more)


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
    """The pickle of `value`, which `pickle.loads` reads where cloudpickle is installed. Raises what
    the value's own pickling raises, and PicklingError and TypeError for what has none."""
    file = io.BytesIO()
    CodePickler(file, protocol=5).dump(value)
    return file.getvalue()

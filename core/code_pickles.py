"""Pickles of what a program defines: functions and classes by value, as cloudpickle makes them,
with the files that their code is in.

cloudpickle leaves the file out from 3.1.3 on (all code is in `<dynamic-code>` then), so that equal
code has equal pickles. Errors and logs of a job are to say where a function stands, and show its
line.
"""

from __future__ import annotations

import io
from collections import ChainMap
from types import CodeType
from typing import Any, ClassVar, Final

import cloudpickle

_NOWHERE: Final = "<dynamic-code>"
_PLAIN: Final = cloudpickle.Pickler.dispatch_table
"""How cloudpickle reduces values, by type."""


def _code_with_its_file(code: CodeType) -> tuple[Any, ...]:
    made, arguments, *more = _PLAIN[CodeType](code)
    named = (code.co_filename if one == _NOWHERE else one for one in arguments)
    return (made, tuple(named), *more)


class CodePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle's, which see."""

    dispatch_table: ClassVar[Any] = ChainMap({CodeType: _code_with_its_file}, _PLAIN)


def dumps(value: Any) -> bytes:
    """The pickle of `value`, which `pickle.loads` reads where cloudpickle is installed. Raises what
    the value's own pickling raises, and PicklingError and TypeError for what has none."""
    file = io.BytesIO()
    CodePickler(file, protocol=5).dump(value)
    return file.getvalue()

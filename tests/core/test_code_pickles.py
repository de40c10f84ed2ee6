"""Code that travels by value says where it stands, as it does at home."""

from __future__ import annotations

import pickle
import traceback
from types import CodeType
from typing import Any

import cloudpickle
import polars as pl
import pytest
from strom.core import code_pickles
from strom.core.code_pickles import dumps
from strom.core.errors import SerializationError


def by_value(source: str, file: str) -> dict[str, Any]:
    """What a program in this file defines."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, file, "exec"), names)
    return names


def files_of(error: BaseException) -> list[str]:
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)][1:]


def test_functions_in_functions_and_methods_keep_their_files() -> None:
    source = """
def outer(n):
    return [inner(i) for i in range(n)]
inner = lambda i: 1 // (i - 1)
class Counter:
    def count(self, n):
        return outer(n)
"""
    names = by_value(source, "somewhere/program.py")
    for value in (names["outer"], names["Counter"]().count):
        travelled = pickle.loads(dumps(value))
        assert travelled(1) == [-1]
        with pytest.raises(ZeroDivisionError) as raised:
            travelled(2)
        assert set(files_of(raised.value)) == {"somewhere/program.py"}


def without_file(code: Any) -> tuple[Any, ...]:
    """As of a version that leaves it out, whichever is installed."""
    made, arguments, *more = PLAIN(code)
    hidden = ("<dynamic-code>" if a == code.co_filename else a for a in arguments)
    return (made, tuple(hidden), *more)


PLAIN = code_pickles._reduce_code


def test_a_version_that_leaves_the_file_out(monkeypatch: Any) -> None:
    monkeypatch.setattr(code_pickles, "_reduce_code", without_file)
    monkeypatch.setitem(cloudpickle.Pickler.dispatch_table, CodeType, without_file)
    function = by_value("def f():\n    return 7", "far/away.py")["f"]
    travelled = pickle.loads(dumps(function))
    assert (travelled(), travelled.__code__.co_filename) == (7, "far/away.py")
    # Other pickles are as they were.
    assert pickle.loads(cloudpickle.dumps(function)).__code__.co_filename == "<dynamic-code>"


def test_functions_within_expressions_of_polars(monkeypatch: Any) -> None:
    """polars calls cloudpickle for them."""
    monkeypatch.setattr(code_pickles, "_reduce_code", without_file)
    monkeypatch.setitem(cloudpickle.Pickler.dispatch_table, CodeType, without_file)
    function = by_value("def f(n):\n    return len(str(n))", "far/away.py")["f"]
    expression = pl.col("n").map_elements(function, return_dtype=pl.Int64)
    data = dumps(expression)
    assert b"far/away.py" in data
    assert pl.DataFrame({"n": [1]}).select(pickle.loads(data)).item() == 1


def test_what_a_program_names_is_read_as_before() -> None:
    value = {"a": [1, 2.5, None], "b": (pickle.dumps, dict)}
    assert pickle.loads(dumps(value)) == value


def test_code_of_another_python_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would crash the process. What there is beside it is read: a class may be declared by who
    reads it."""
    source = """
def outer(n, *, by=2):
    return lambda m: n + m + by
class Counter:
    start = 3
    def count(self):
        return super().__repr__()
"""
    names = by_value(source, "program.py")
    counter = names["Counter"]()
    counter.n = 5
    monkeypatch.setattr(code_pickles, "PYTHON", "cpython-309")
    stored = dumps([names["outer"], names["outer"](1), counter])
    monkeypatch.undo()
    outer, inner, read = pickle.loads(stored)
    assert (read.n, read.start) == (5, 3)
    for call, name in (
        (lambda: outer(1, by=3), "'outer'"),
        (lambda: inner(2), "'outer.<locals>.<lambda>'"),
        (read.count, "'Counter.count'"),
    ):
        with pytest.raises(SerializationError) as raised:
            call()
        assert f"the code of {name} was stored by value by cpython-309" in str(raised.value)

"""Functions that are not read, and why; and columns that Python could not read."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from strom import Row
from strom.core.compiled import reading
from strom.core.compiled.kinds import Beyond, readable_check
from strom.core.compiled.operations import Refused
from strom.core.compiled.program import text_of
from strom.core.compiled.reading import read
from strom.core.value_types import Pickled, tuple_records, tuple_struct

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("u", pa.uint64()),
        ("ts", pa.timestamp("us")),
        ("p", tuple_struct([pa.int64()])),
    ]
)

TOTALS: list[int] = []
LIMIT = 10
FACTOR = np.float64(2)


def loops(row: Any) -> Any:
    total = 0
    while total < row.n:
        total += 1
    return total


def sums(row: Any) -> Any:
    return sum([2 * one for one in (row.n, 1)])


def tries(row: Any) -> Any:
    try:
        return 1 // row.n
    except ZeroDivisionError:
        return 0


def counts(row: Any) -> Any:
    global LIMIT
    LIMIT += 1
    return row.n


def changes(row: Any) -> Any:
    row["n"] = 1
    return row.n


def keeps(row: Any) -> Any:
    keeps.last = row.n  # type: ignore[attr-defined]
    return row.n


def yields(row: Any) -> Any:
    yield row.n


def maybe_unbound(row: Any) -> Any:
    if row.n:
        value = 1
    return value


def calls_itself(row: Any) -> Any:
    return calls_itself(row)


def takes_two(row: Any, other: Any) -> Any:
    return row.n


def takes_any(*rows: Any) -> Any:
    return rows[0].n


def inner(row: Any) -> Any:
    return (lambda: row.n)()


def raises(row: Any) -> Any:
    raise ValueError(row.s)


class Counter:
    def __init__(self) -> None:
        self.n = 0

    def map(self, row: Any) -> Any:
        self.n += 1
        return row.n

    def helped(self, row: Any) -> Any:
        return self.half(row.n)

    def half(self, n: int) -> int:
        return n // 2

    def missing(self, row: Any) -> Any:
        return row.n + self.later  # type: ignore[attr-defined]

    @property
    def now(self) -> float:
        return time.time()

    def clocked(self, row: Any) -> Any:
        return self.now

    def __call__(self, row: Any) -> Any:
        return row.n


class Proxy:
    def __getattr__(self, name: str) -> int:
        return 1

    def map(self, row: Any) -> Any:
        return row.n + self.anything


class Spying:
    n = 1

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)

    def map(self, row: Any) -> Any:
        return row.n + self.n


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (loops, "loops"),
    (sums, "has a constant of type code|comprehension"),
    (tries, "has a 'try', 'with' or comprehension"),
    (counts, r"does what columns do not \(store global\)"),
    (changes, r"does what columns do not \(store subscr\)"),
    (keeps, "reads keeps|store attr"),
    (yields, "is a generator"),
    (maybe_unbound, "reads value, which may have no value yet"),
    (calls_itself, "calls too deep"),
    (takes_two, "cannot be called with one record"),
    (takes_any, "takes more than arguments by position"),
    (inner, "has a function within it"),
    (raises, "returns for no record"),
    (Counter().map, "store attr"),
    (Counter().helped, "reads .half, which is a function of Counter"),
    (Counter().missing, "reads .later, which there is not"),
    (Counter().clocked, "reads .now, which is a property of Counter"),
    (Counter(), "is a Counter, and no Python function"),
    (Proxy().map, "reads .anything, which there is not"),
    (Spying().map, "reads .n of a Spying"),
    (functools.partial(takes_two, other=1), "is a partial"),
    (abs, "is a builtin_function_or_method"),
    (Row, "is a type"),
    (lambda row: TOTALS.append(row.n), "reads TOTALS, a list, which may change"),
    (lambda row: row.n * FACTOR, "reads FACTOR, a float64, which may change"),
    (lambda row: time.time(), "calls time"),
    (lambda row: print(row.n), "calls print"),
    (lambda row: not_there(row.n), "reads not_there, which there is not"),  # type: ignore[name-defined]  # noqa: F821
    (lambda row: math.floor(row.n), "calls floor"),
    (lambda row: round(row.n), "calls round"),
    (lambda row: row.n**2, r"computes '\*\*'"),
    (lambda row: row.n << 2, "computes '<<'"),
    (lambda row: row.s % row.n, "computes '%' of string and int64"),
    (lambda row: row.s * 2, r"computes '\*' of string and constant"),
    (lambda row: row.n == row.s, "computes '==' of int64 and string"),
    (lambda row: row.n + 2**63, "has more than 64 bits"),
    (lambda row: row.u + 1, r"computes '\+' of uint64 and constant"),
    (lambda row: row.ts > 3, "computes '>' of timestamp"),
    (lambda row: row.missing, "reads 'missing', which its records do not have"),
    (lambda row: row.count(1), r"reads 'count'|reads .count"),
    (lambda row: row["missing"], "reads 'missing', which its records do not have"),
    (lambda row: row[5], "reads field 5 of 5"),
    (lambda row: row[row.n], "takes an item that is not named by a constant"),
    (lambda row: row[1:], "uses the record as a whole"),
    (lambda row: row == (1, 2), "uses the record as a whole"),
    (lambda row: row, "returns the record itself"),
    (lambda row: (row.n, (row.s, 1)), "uses a tuple as one value"),
    (lambda row: [row.n], "build list"),
    (lambda row: {row.n: 1}, "keys are not constant texts"),
    (lambda row: row.n is True, "asks with 'is' for something else than None"),
    (lambda row: row.n in (1, None), "not all of that kind"),
    (lambda row: row.n in (1, 1.0), "not all of that kind"),
    (lambda row: row.s in "abc", "asks whether something is 'in'"),
    (lambda row: "n" in row, "is 'in' the record"),
    (lambda row: row.s.title(), r"calls .title\(\)"),
    (lambda row: row.s.upper, "uses a method as a value"),
    (lambda row: row.s.startswith(row.s), r"calls .startswith\(\)"),
    (lambda row: row.s.replace("", "x"), r"calls .replace\(\)"),
    (lambda row: row.s[-1:], "takes a slice"),
    (lambda row: row.s[::2], "takes a slice with a step"),
    (lambda row: row.s[0], "takes item 0 of a string"),
    (lambda row: f"{row.n:5d}", "formats a value in an own way"),
    (lambda row: f"{row.n!r}", "formats a value in an own way"),
    (lambda row: str(row.ts), r"calls str\(other\)"),
    (lambda row: bool(row.ts), "asks whether a value of type timestamp"),
    (lambda row: row.p.f0, "reads 'f0' of a struct"),
    (lambda row: row.p[3], "reads the field 3"),
    (lambda row: Row(row.n), "calls Row"),
    (lambda row: sorted((row.n,), reverse=True), "calls sorted with names|uses a tuple"),
    (lambda row: row.n if row else 1, "asks whether a tuple or record is true"),
    (lambda row: "\ud800" + row.s, "has a constant of type str"),
]


@pytest.mark.parametrize(("function", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_why(function: Any, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        read(function, SCHEMA, False)


def test_tuples_have_no_names() -> None:
    schema = tuple_records(pa.schema([("f0", pa.int64())]))
    assert text_of(read(lambda row: row[0], schema, True).block) == "f0"
    for function in (lambda row: row.f0, lambda row: row["f0"]):
        with pytest.raises(Refused):
            read(function, schema, True)


def test_no_two_fields_of_one_name() -> None:
    schema = pa.schema([("a", pa.int64()), ("a", pa.int64())])
    with pytest.raises(Refused, match="two fields of one name"):
        read(lambda row: row[0], schema, False)


def test_other_versions_of_python_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "VERSIONS", ((3, 99),))
    with pytest.raises(Refused, match="bytecode"):
        read(lambda row: row.n, SCHEMA, False)


def test_what_is_not_expected_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(course: Any, one: Any) -> Any:
        raise IndexError("pop from empty list")

    monkeypatch.setitem(reading.HANDLERS, "RETURN_VALUE", breaks)
    with pytest.raises(Refused, match=r"is not understood \(IndexError: pop from empty list\)"):
        read(lambda row: row.n, SCHEMA, False)


def texts(*data: bytes) -> pa.Array:
    ends = np.cumsum([0, *map(len, data)]).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(pa.string(), len(data), buffers)


@pytest.mark.parametrize(
    "column",
    [
        texts(b"a", b"\xff"),
        pa.StructArray.from_arrays([texts(b"\xc3")], ["text"]),
        pa.array([2**60], pa.timestamp("us")),
        pa.array([-(2**60), None], pa.timestamp("s")),
        pa.array([10**7], pa.date32()),
        pa.array([2**62], pa.duration("s")),
        pa.ExtensionArray.from_storage(Pickled(), pa.array([b"no pickle"], pa.large_binary())),
        pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())),
    ],
)
def test_columns_that_python_cannot_read_make_a_batch_go_by_rows(column: pa.Array) -> None:
    """Where it raises, although the function does not look at them."""
    check = readable_check(column.type)
    assert check is not None
    with pytest.raises(Beyond):
        check(column)


@pytest.mark.parametrize(
    "column",
    [
        texts(b"a", "ß".encode()),
        pa.array([0, None, 10**15], pa.timestamp("us")),
        pa.array([None], pa.date32()),
        pa.array([1_000], pa.timestamp("ns")),
        pa.array([1], pa.timestamp("ms", "Europe/Berlin")),
        pa.array([[1, None], None], pa.list_(pa.int64())),
        pa.nulls(2),
    ],
)
def test_columns_that_python_reads(column: pa.Array) -> None:
    check = readable_check(column.type)
    if check is not None:
        check(column)

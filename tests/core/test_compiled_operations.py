"""Each operation on each value that is likely to go wrong, one record at a time: it gives what
Python gives, or says that it cannot; and where all is tame it can."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from strom.core.batch import ColumnBatch
from strom.core.compiled import results
from strom.core.compiled.kinds import Beyond
from strom.core.compiled.operations import Refused
from strom.core.compiled.reading import Reading, read
from strom.core.compiled.running import run

INTS = (0, 1, -1, 2, -3, 7, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 0.5, -7.25, 3.0, 1e308, -1e308, 5e-324, 2.0**53, 2.0**63, -(2.0**63), 0.1)
FLOATS += (math.inf, -math.inf, math.nan)
BOOLS = (False, True)
TEXTS = (
    "",
    "a",
    "A",
    "k1",
    " k1 ",
    "\x1ca\x85",
    "ß",
    "İ",
    "é\u2003",
    "😀a😀",
    "ak1k1",
    "\x00",
    "Σ",
)
KINDS = {"i": (pa.int64(), INTS), "x": (pa.float64(), FLOATS), "b": (pa.bool_(), BOOLS)}

ARITHMETIC = ("+", "-", "*", "/", "//", "%", "&", "|", "^")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=", "and", "or")


def prepared(source: str, types: list[pa.DataType]) -> tuple[Any, pa.Schema, Reading | None]:
    function = eval(f"lambda r: {source}", {})
    schema = pa.schema([(f"f{at}", kind) for at, kind in enumerate(types)])
    try:
        return function, schema, read(function, schema, False)
    except Refused:
        return function, schema, None


def check(
    function: Any, schema: pa.Schema, reading: Reading | None, values: tuple[Any, ...]
) -> bool | None:
    """Whether columns can do it; None if Python cannot either."""
    assert reading is not None
    arrays = [pa.array([value], kind) for value, kind in zip(values, schema.types, strict=True)]
    data = pa.RecordBatch.from_arrays(arrays, schema=schema)
    try:
        wanted = [function(row) for row in ColumnBatch(data).rows()]
    except Exception:
        wanted = None
    try:
        found = results.objects(run(reading.block, data), 1)
    except (Beyond, pa.ArrowException):
        return None if wanted is None else False
    assert wanted is not None, f"{values}: {found}, where Python raises"
    assert repr(found) == repr(wanted), values
    assert type(found[0]) is type(wanted[0])
    return True


@pytest.mark.parametrize("symbol", [*ARITHMETIC, *COMPARISONS])
def test_operators(symbol: str) -> None:
    done = 0
    for (left, lefts), (right, rights) in product(KINDS.values(), repeat=2):
        made = prepared(f"r.f0 {symbol} r.f1", [left, right])
        if made[2] is None:
            assert symbol in "&|^"
            assert pa.float64() in (left, right)
            continue
        for pair in product((*lefts, None), (*rights, None)):
            done += check(*made, pair) is True
    assert done > 20


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "//", "%", "<", "=="])
def test_operators_with_constants(symbol: str) -> None:
    for kind, values in KINDS.values():
        for constant in (*INTS, *FLOATS[:-3], True):
            for source in (f"r.f0 {symbol} ({constant!r})", f"({constant!r}) {symbol} r.f0"):
                made = prepared(source, [kind])
                for value in (*values, None):
                    check(*made, (value,))


@pytest.mark.parametrize(
    "source",
    [
        *("-r.f0", "+r.f0", "abs(r.f0)", "int(r.f0)", "float(r.f0)", "bool(r.f0)", "not r.f0"),
        *("r.f0 is None", "r.f0 is not None", "r.f0 == None", "r.f0 != None", "r.f0"),
        *("1 < r.f0 <= 7", "5 if r.f0 else None", "r.f0 and 'x'", "min(r.f0, r.f0)"),
    ],
)
def test_one_number(source: str) -> None:
    done = 0
    for kind, values in KINDS.values():
        made = prepared(source, [kind])
        if made[2] is None:
            assert source.startswith("min")
            continue
        done += sum(check(*made, (value,)) is True for value in (*values, None))
    assert done > 8


@pytest.mark.parametrize("name", ["min", "max"])
def test_the_lesser_and_the_greater(name: str) -> None:
    for kind, values in (KINDS["i"], KINDS["x"]):
        made = prepared(f"{name}(r.f0, r.f1)", [kind, kind])
        assert all(check(*made, pair) for pair in product(values, repeat=2))


@pytest.mark.parametrize(
    "source",
    [
        *(f"r.f0.{name}()" for name in ("upper", "lower", "strip", "lstrip", "rstrip")),
        *("r.f0.strip('k ')", "r.f0.lstrip('ß1k')", "r.f0.rstrip('')", "r.f0.startswith('')"),
        *("r.f0.startswith('k')", "r.f0.endswith('ß')", "r.f0.endswith('')", "len(r.f0)"),
        *("r.f0.replace('k1', 'é')", "r.f0.replace('k', '')", "'' in r.f0", "'k1' not in r.f0"),
        *("r.f0[:1]", "r.f0[1:]", "r.f0[1:2]", "r.f0[2:1]", "r.f0[:]", "r.f0[0:0]", "r.f0[5:]"),
        *("r.f0 in ('a', 'k1')", "r.f0 in ('',)", "r.f0 + '!'", "'{' + r.f0", "f'<{r.f0}>'"),
        *("str(r.f0)", "r.f0 and 1", "r.f0 or 'none'", "r.f0 == 'ß'", "r.f0 != 'a'", "r.f0 < 'k'"),
    ],
)
def test_one_text(source: str) -> None:
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        made = prepared(source, [kind])
        done = sum(check(*made, (text,)) is True for text in (*TEXTS, None))
        assert done >= (6 if "strip()" in source or "er()" in source else len(TEXTS))


@pytest.mark.parametrize("symbol", ["+", "<", "<=", ">", ">=", "==", "!="])
def test_two_texts(symbol: str) -> None:
    made = prepared(f"r.f0 {symbol} r.f1", [pa.string(), pa.large_string()])
    assert all(check(*made, pair) for pair in product(TEXTS, repeat=2))
    for text in (*TEXTS, None):
        check(*made, (text, None))
        check(*made, (None, text))


@pytest.mark.parametrize("source", ["str(r.f0)", "f'{r.f0}.'", "r.f0 in (1, 7)", "~r.f0"])
def test_whole_numbers(source: str) -> None:
    for kind in (pa.int64(), pa.int8(), pa.uint32()):
        made = prepared(source, [kind])
        least, most = {8: (-128, 127), 32: (0, 2**32 - 1)}.get(kind.bit_width, (INTS[-1], INTS[-2]))
        assert all(check(*made, (value,)) for value in (least, most, 0, 1, 7))


def test_fields_of_structs() -> None:
    kind = pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))])
    for source in ("r.f0.a + 1", "r.f0['b'].c", "r.f0[0]", "(r.f0.b.c, r.f0[-2])", "r.f0"):
        made = prepared(source, [kind])
        assert check(*made, ({"a": 1, "b": {"c": "x"}},))
        check(*made, ({"a": None, "b": None},))
        check(*made, (None,))


def test_words_of_a_dictionary_may_be_none() -> None:
    """Where the column itself has no nulls."""
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    for source in ("r.f0 is None", "r.f0 == 'a'", "r.f0 or 'none'", "r.f0"):
        function, schema, reading = prepared(source, [words.type])
        data = pa.RecordBatch.from_arrays([words], schema=schema)
        assert reading is not None
        found = results.objects(run(reading.block, data), 2)
        assert found == [function(row) for row in ColumnBatch(data).rows()]
    assert prepared("r.f0.upper()", [words.type])[2] is not None
    numbers = pa.dictionary(pa.int32(), pa.int64())
    assert prepared("r.f0 is None", [numbers])[2] is None
    assert prepared("r.f0", [numbers])[2] is not None

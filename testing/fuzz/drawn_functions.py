"""Random functions of a record, as a user writes them, and random columns to call them on.

The functions are drawn as text: arithmetic, comparisons, texts, conditions, local variables and
calls of another function, over the fields of `FIELDS`. Many raise for some record; which of them
columns can do is not looked at here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

from ...core.row import Row

FIELDS = pa.schema(
    [
        ("i", pa.int64()),
        ("j", pa.int32()),
        ("x", pa.float64()),
        ("y", pa.float32()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("t", pa.large_string()),
    ]
)

_INTS = ("0", "1", "-1", "2", "7", "1000", "-3", "LIMIT")
_WILD = ("2**31", "9007199254740993", "4611686018427387904", "-9223372036854775808")
_FLOATS = ("0.5", "-0.0", "2.0", "1e308", "-7.25", "RATE")
_TEXTS = ("''", "'a'", "'k1'", "'ß'", "' b'", "PREFIX")


@dataclass(frozen=True)
class Drawn:
    """A function and the text it was made from."""

    source: str
    function: Callable[[Any], Any]

    def __repr__(self) -> str:
        return self.source


def draw_function(rng: Random, *, predicate: bool = False, tuples: bool = False) -> Drawn:
    """tuples: the record is a tuple, whose fields have only places."""
    writer = _Writer(rng, tuples)
    make = writer.condition if predicate else writer.result
    if rng.random() < 0.6:
        source = f"lambda r: {make(rng.randint(1, 3))}"
        function = eval(source, _known())
        return Drawn(source, function)
    lines = ["def function(r):", f"    v = {writer.number(2)}"]
    writer.locals = ("v",)
    if rng.random() < 0.3:
        lines.append(f"    assert {writer.condition(1)}")
    for _ in range(rng.randint(0, 2)):
        lines += [f"    if {writer.condition(2)}:", f"        return {make(1)}"]
    lines.append(f"    return {make(2)}")
    source = "\n".join(lines)
    known = _known()
    exec(source, known)
    return Drawn(source, known["function"])


def draw_columns(rng: Random, count: int) -> pa.RecordBatch:
    """Of `FIELDS`. Mostly tame: of values with which columns can do all; some without end."""
    wild = rng.random() < 0.3
    missing = rng.choice([0.0, 0.0, 0.0, 0.1])
    columns = [
        pa.array(
            [
                None if rng.random() < missing else _value(rng, field.name, wild)
                for _ in range(count)
            ],
            field.type,
        )
        for field in FIELDS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=FIELDS)


def _value(rng: Random, name: str, wild: bool) -> Any:
    match name:
        case "i":
            if wild:
                return rng.choice([0, 2**63 - 1, -(2**63), 2**53 + 1, -1, rng.randint(-9, 9)])
            return rng.randint(-20, 200)
        case "j":
            return rng.choice([2**31 - 1, -(2**31)]) if wild else rng.randint(1, 9)
        case "x" | "y":
            if wild:
                many = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 0.1, 1e300, -5e-324]
                return rng.choice(many if name == "x" else many[:5])
            return rng.choice([rng.uniform(-100, 100), float(rng.randint(-9, 9))])
        case "b":
            return rng.random() < 0.5
    texts = ["", "a", "k1", "k12", " b ", "Xy\t", "a,b", "k1k1", "\x1cq"]
    return rng.choice([*texts, "ß", "İx", "é ", "\u2003z", "😀a"] if wild else texts)


def _known() -> dict[str, Any]:
    known: dict[str, Any] = {"Row": Row, "LIMIT": 40, "RATE": 1.5, "PREFIX": "k"}
    exec("def helper(n, by=3):\n    return n * by if n > 0 else n - by", known)
    return known


class _Writer:
    """Expressions, as deep as it is asked for. `locals`: names of local numbers."""

    def __init__(self, rng: Random, tuples: bool) -> None:
        self._rng = rng
        self._tuples = tuples
        self.locals: tuple[str, ...] = ()

    def field(self, *names: str) -> str:
        name = self._rng.choice(names)
        place = FIELDS.names.index(name)
        forms = [f"r[{place}]", f"r[{place - len(FIELDS)}]"]
        if not self._tuples:
            forms += [f"r.{name}", f"r.{name}", f"r['{name}']"]
        return self._rng.choice(forms)

    def number(self, depth: int) -> str:
        rng = self._rng
        if depth <= 0 or rng.random() < 0.2:
            leaf = rng.random()
            if leaf < 0.6:
                return self.field("i", "i", "j", "x", "y", "b")
            if leaf < 0.7 and self.locals:
                return rng.choice(self.locals)
            return rng.choice([*_INTS, *_INTS, *_FLOATS, *_WILD])
        one, other = self.number(depth - 1), self.number(depth - 1)
        symbol = rng.choice(["+", "-", "*", "/", "//", "%", "+", "-", "*", "&", "|", "^"])
        return rng.choice(
            [
                f"({one} {symbol} {other})",
                f"({one} {symbol} {other})",
                f"({one} {symbol} {other})",
                f"(-{one})",
                f"(~{self.field('i', 'j', 'b')})",
                f"abs({one})",
                f"{rng.choice(['min', 'max'])}({one}, {other})",
                f"{rng.choice(['int', 'float', 'abs'])}({one})",
                f"helper({one})",
                f"len({self.text(depth - 1)})",
                f"({one} if {self.condition(depth - 1)} else {other})",
                f"({one} {rng.choice(['and', 'or'])} {other})",
            ]
        )

    def condition(self, depth: int) -> str:
        rng = self._rng
        if depth <= 0:
            return rng.choice(
                [
                    self.field("b"),
                    f"{self.field('i', 'x', 's')} is {rng.choice(['', 'not '])}None",
                    f"{self.field('i', 'j', 'x')} < {rng.choice(_INTS)}",
                    f"{self.field('i', 'j', 'x')} == {rng.choice(_INTS)}",
                ]
            )
        less = depth - 1
        order = rng.choice(["<", "<=", ">", ">=", "==", "!="])
        return rng.choice(
            [
                f"({self.number(less)} {order} {self.number(less)})",
                f"({self.number(less)} < {self.number(less)} <= {self.number(less)})",
                f"({self.text(less)} {order} {self.text(less)})",
                f"({self.condition(less)} {rng.choice(['and', 'or'])} {self.condition(less)})",
                f"(not {self.condition(less)})",
                f"({self.field('i', 'j')} {rng.choice(['', 'not '])}in (1, 2, 7))",
                f"({self.text(less)} in ('a', 'k1'))",
                f"({rng.choice(_TEXTS[:5])} in {self.text(less)})",
                f"{self.text(less)}.{rng.choice(['startswith', 'endswith'])}({rng.choice(_TEXTS)})",
                f"bool({self.number(less)})",
                f"({self.field('i', 's', 'x')} {rng.choice(['==', '!='])} None)",
            ]
        )

    def text(self, depth: int) -> str:
        rng = self._rng
        if depth <= 0 or rng.random() < 0.3:
            return self.field("s", "t") if rng.random() < 0.8 else rng.choice(_TEXTS)
        one = self.text(depth - 1)
        ends = rng.choice(["1:", ":2", "1:3", "3:1", ":"])
        return rng.choice(
            [
                f"{one}.{rng.choice(['upper', 'lower', 'strip', 'lstrip', 'rstrip'])}()",
                f"{one}.strip('a ')",
                f"{one}.replace('k1', {rng.choice(_TEXTS)})",
                f"{one}[{ends}]",
                f"({one} + {self.text(depth - 1)})",
                f"str({self.field('i', 'j')})",
                f"f'{{{self.field('i').replace(chr(39), chr(34))}}}-x'",
                f"({one} if {self.condition(depth - 1)} else {self.text(depth - 1)})",
            ]
        )

    def result(self, depth: int) -> str:
        rng = self._rng
        parts = [self.part(depth - 1) for _ in range(rng.randint(1, 3))]
        return rng.choice(
            [
                self.part(depth),
                self.part(depth),
                f"({', '.join(parts)},)",
                f"({', '.join(parts)},)",
                f"Row({', '.join(f'f{at}={part}' for at, part in enumerate(parts))})",
                "{" + ", ".join(f"'f{at}': {part}" for at, part in enumerate(parts)) + "}",
                f"({parts[0]} if {self.condition(depth - 1)} else None)",
            ]
        )

    def part(self, depth: int) -> str:
        choice = self._rng.random()
        if choice < 0.2:
            return self.field(*FIELDS.names)
        if choice < 0.6:
            return self.number(depth)
        return self.text(depth) if choice < 0.8 else self.condition(depth)

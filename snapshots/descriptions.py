"""What a pickle says, as plain data and as text for people; see `pickles`, which reads it.

Plain values are themselves; what a class or function would have been called for is a `Thing` that
says so. Descriptions share what the pickle shares, so a few bytes can describe more than a
machine's memory holds (a list of ten lists that are one, ten levels deep): whoever walks one has a
`Budget`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

MOST_DEPTH: Final = 40
"""Levels of containers that are looked into."""

MOST_TEXT: Final = 1000
"""Characters of a value's text."""


class UnreadableError(Exception):
    """The pickle is damaged, or says what no value of state would."""


@dataclass
class Mapped:
    """A dict, as its items."""

    items: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass
class Elements:
    """A set or frozenset."""

    name: str
    items: list[Any] = field(default_factory=list)

    def __repr__(self) -> str:
        """Of equal sets the same."""
        return f"{self.name}({sorted(map(repr, self.items))})"


@dataclass
class Thing:
    """What a class or function (`name`, with its module) would be called for, with `args`; `fields`
    are those of an object, or of a row."""

    name: str
    args: tuple[Any, ...] = ()
    fields: list[tuple[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Name:
    """A class, function or constant that the pickle names."""

    name: str


class Budget:
    """How many values may still be looked at."""

    def __init__(self, values: int) -> None:
        self.left = values

    def take(self, values: int = 1) -> None:
        self.left -= values
        if self.left < 0:
            raise UnreadableError("it describes far more values than it has bytes")


def text(value: Any, most: int = MOST_TEXT) -> str:
    """A description as a person reads it, cut to about `most` characters."""
    found: list[str] = []
    length = 0
    for piece in _pieces(value, 0):
        found.append(piece)
        length += len(piece)
        if length > most:
            return "".join(found)[:most] + "..."
    return "".join(found)


def _pieces(value: Any, depth: int) -> Iterator[str]:
    if depth > MOST_DEPTH:
        yield "..."
        return
    match value:
        case Name(name):
            yield name
        case Mapped(items):
            yield from _listed("{", ([key, ": ", item] for key, item in items), "}", depth)
        case Elements(name, items):
            yield from _listed(f"{name}(", ([item] for item in items), ")", depth)
        case Thing(name, args, fields):
            parts = [*([arg] for arg in args), *([f"{n}=", v] for n, v in fields)]
            yield from _listed(f"{name}(", parts, ")", depth, labelled=True)
        case list():
            yield from _listed("[", ([item] for item in value), "]", depth)
        case tuple():
            yield from _listed("(", ([item] for item in value), ",)"[len(value) != 1 :], depth)
        case str() | bytes() if len(value) > MOST_TEXT:
            yield repr(value[:MOST_TEXT])
        case int() if value.bit_length() > 4 * MOST_TEXT:
            yield hex(value)[:MOST_TEXT]
        case _:
            yield repr(value)


def _listed(start: str, parts: Any, end: str, depth: int, labelled: bool = False) -> Iterator[str]:
    yield start
    for at, part in enumerate(parts):
        if at:
            yield ", "
        if labelled and len(part) == 2:
            yield part[0]
            yield from _pieces(part[1], depth + 1)
            continue
        for place, item in enumerate(part):
            if len(part) == 3 and place == 1:
                yield item
            else:
                yield from _pieces(item, depth + 1)
    yield end

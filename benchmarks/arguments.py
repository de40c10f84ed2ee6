"""What the command line's arguments may be: each raises what argparse shows as the user's error."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from math import isfinite
from typing import TypeVar

from strom import ConfigurationError, MemorySize
from strom.core.state_config import backend_named

Name = TypeVar("Name", bound=str)


def count(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text)
    if not 1 <= number < 1 << 63:
        raise argparse.ArgumentTypeError(f"must be at least 1 (and below 2**63), is {text}")
    return number


def counts(text: str) -> list[int]:
    """Several of them, with commas."""
    return [count(part) for part in text.split(",")]


def positive(text: str) -> float:
    """A finite number above 0."""
    number = float(text)
    if not (isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"must be a positive number, is {text}")
    return number


def shares(text: str) -> list[float]:
    """Parts of a whole, above 0 and up to 1, with commas."""
    found = [positive(part) for part in text.split(",")]
    if any(share > 1 for share in found):
        raise argparse.ArgumentTypeError(f"must be parts of 1, is {text}")
    return found


def milliseconds(text: str) -> int:
    """A whole number of at least 0."""
    return 0 if int(text) == 0 else count(text)


def size(text: str) -> int:
    """Bytes, written as `5gb`."""
    try:
        return MemorySize.parse(text).bytes_size
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def backends(text: str) -> list[str]:
    """Several of them, with commas."""
    try:
        return [backend_named(part) for part in text.split(",")]
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def names_of(said: str, what: str, known: Collection[Name], **sets: Collection[Name]) -> list[Name]:
    """The names, with commas between, that an option gives; or those of one of `sets`. Ends the
    program if one is not known, or none is given; `what` they are called then.

    >>> names_of("b,c", "letter", ["a", "b", "c"]), names_of("all", "letter", "ab", all="ab")
    (['b', 'c'], ['a', 'b'])
    """
    if said in sets:
        return list(sets[said])
    given = [name for name in said.split(",") if name]
    found = [name for one in given for name in known if name == one]
    unknown = [one for one in given if one not in known]
    if unknown or not found:
        raise SystemExit(f"no {what} {unknown}: there are {', '.join([*sets, *known])}")
    return found

"""What the command line's arguments may be: each raises what argparse shows as the user's error."""

from __future__ import annotations

import argparse
from math import isfinite

from strom import ConfigurationError, MemorySize
from strom.core.state_config import backend_named


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

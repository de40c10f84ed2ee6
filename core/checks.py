"""Checks of settings: a nonsensical one is an error where it is made, not in a running job."""

from __future__ import annotations

import codecs
import math
from datetime import timedelta

from .errors import ConfigurationError


def check_count(name: str, value: object, least: int, most: int | None = None) -> None:
    """`value` must be an int in least..most (None: no limit)."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigurationError(f"{name} must be an int, is {value!r}")
    if value < least or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"in {least}..{most}"
        raise ConfigurationError(f"{name} must be {limits}, is {value}")


def check_number(name: str, value: object, least: float) -> None:
    """`value` must be a finite number of at least `least`."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise ConfigurationError(f"{name} must be a finite number, is {value!r}")
    if value < least:
        raise ConfigurationError(f"{name} must be at least {least}, is {value}")


def check_duration(name: str, value: object, positive: bool = False) -> None:
    """`value` must be a timedelta that is not negative, or even positive."""
    if not isinstance(value, timedelta):
        raise ConfigurationError(f"{name} must be a timedelta, is {value!r}")
    if value < timedelta(0) or (positive and not value):
        raise ConfigurationError(
            f"{name} must {'be positive' if positive else 'not be negative'}, is {value}"
        )


def check_kind(name: str, value: object, *kinds: type) -> None:
    """`value` must be an instance of one of `kinds`; True and False are no numbers."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise ConfigurationError(f"{name} must be {names}, is {value!r}")


def known_charset(name: str) -> str:
    """As Python calls it ("utf-8"). ConfigurationError if there is no such encoding."""
    try:
        return codecs.lookup(name).name
    except (LookupError, TypeError) as error:
        raise ConfigurationError(f"there is no charset {name!r}: {error}") from error

"""Durations as users write them: `timedelta`, a number of milliseconds, or a PyFlink `Time`."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from ..core.errors import ConfigurationError

Interval = timedelta | int | float

_MILLISECOND = timedelta(milliseconds=1)


def to_timedelta(value: Any, what: str, *, minimum: timedelta | None = timedelta(0)) -> timedelta:
    """`value` as a timedelta of at least `minimum` (None: it may be negative, as an offset may).

    Besides timedeltas and milliseconds it takes objects with PyFlink's `Time.to_milliseconds()`.
    Raises ConfigurationError naming `what`.
    """
    duration = _read(value, what)
    if minimum is not None and duration < minimum:
        raise ConfigurationError(f"{what} must be at least {minimum}, is {duration}")
    return duration


def to_ms(value: timedelta) -> int:
    """Whole milliseconds, rounded down."""
    return value // _MILLISECOND


def to_millis(value: Any, what: str) -> int:
    """Any duration a user may write as whole milliseconds; it may be negative."""
    return to_ms(to_timedelta(value, what, minimum=None))


def _read(value: Any, what: str) -> timedelta:
    if isinstance(value, timedelta):
        return value
    convert = getattr(value, "to_milliseconds", None)
    number = convert() if callable(convert) else value
    if (
        isinstance(number, bool)
        or not isinstance(number, (int, float))
        or not math.isfinite(number)
    ):
        raise ConfigurationError(f"{what} must be a timedelta or milliseconds, is {value!r}")
    return timedelta(milliseconds=number)

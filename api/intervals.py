"""Durations: `timedelta`, or milliseconds as a number for PyFlink's sake."""

from __future__ import annotations

from datetime import timedelta

from ..core.errors import ConfigurationError

Interval = timedelta | int | float


def to_timedelta(value: object, what: str, *, minimum: timedelta = timedelta(0)) -> timedelta:
    """`value` (a timedelta, or milliseconds) as a timedelta of at least `minimum`.

    Raises ConfigurationError naming `what`.
    """
    if isinstance(value, bool) or not isinstance(value, (timedelta, int, float)):
        raise ConfigurationError(f"{what} must be a timedelta or milliseconds, is {value!r}")
    duration = value if isinstance(value, timedelta) else timedelta(milliseconds=value)
    if duration < minimum:
        raise ConfigurationError(f"{what} must be at least {minimum}, is {duration}")
    return duration


def to_ms(value: timedelta) -> int:
    """Whole milliseconds, rounded down."""
    return value // timedelta(milliseconds=1)

"""Durations: `timedelta`, a number of milliseconds, or PyFlink's `Time` and `Duration`, which are
factories of timedeltas here."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from ...core.errors import ConfigurationError

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


class Time:
    """`Time.seconds(5)`: a timedelta of five seconds.

    >>> Time.minutes(1) == Duration.of_seconds(60) == timedelta(milliseconds=60_000)
    True
    """

    @staticmethod
    def milliseconds(milliseconds: int) -> timedelta:
        return timedelta(milliseconds=milliseconds)

    @staticmethod
    def seconds(seconds: int) -> timedelta:
        return timedelta(seconds=seconds)

    @staticmethod
    def minutes(minutes: int) -> timedelta:
        return timedelta(minutes=minutes)

    @staticmethod
    def hours(hours: int) -> timedelta:
        return timedelta(hours=hours)

    @staticmethod
    def days(days: int) -> timedelta:
        return timedelta(days=days)


class Duration:
    """`Duration.of_seconds(5)`: a timedelta of five seconds."""

    @staticmethod
    def of_millis(millis: int) -> timedelta:
        return timedelta(milliseconds=millis)

    @staticmethod
    def of_seconds(seconds: int) -> timedelta:
        return timedelta(seconds=seconds)

    @staticmethod
    def of_minutes(minutes: int) -> timedelta:
        return timedelta(minutes=minutes)

    @staticmethod
    def of_hours(hours: int) -> timedelta:
        return timedelta(hours=hours)

    @staticmethod
    def of_days(days: int) -> timedelta:
        return timedelta(days=days)

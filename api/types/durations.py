"""Durations: `timedelta`, a number of milliseconds, or PyFlink's `Time` and `Duration`, which are
factories of timedeltas here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ...core.errors import ConfigurationError, TypeMismatchError

Interval = timedelta | int | float

_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime.fromtimestamp(0, UTC)


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


class Span(timedelta):
    """What `Time` and `Duration` make: a timedelta that is asked as PyFlink's `Time` is."""

    def to_milliseconds(self) -> int:
        """Whole milliseconds."""
        return to_ms(self)


class Time:
    """`Time.seconds(5)` or `Time(5000)`: a timedelta of five seconds.

    >>> Time.minutes(1) == Duration.of_seconds(60) == Time(60_000) == timedelta(minutes=1)
    True
    >>> Time.seconds(5).to_milliseconds()
    5000
    """

    def __new__(cls, milliseconds: int) -> Span:  # type: ignore[misc]
        return Span(milliseconds=milliseconds)

    def __init__(self, milliseconds: int) -> None:
        """What is made is a `Span`."""

    to_milliseconds = Span.to_milliseconds

    @staticmethod
    def milliseconds(milliseconds: int) -> Span:
        return Span(milliseconds=milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Span:
        return Span(seconds=seconds)

    @staticmethod
    def minutes(minutes: int) -> Span:
        return Span(minutes=minutes)

    @staticmethod
    def hours(hours: int) -> Span:
        return Span(hours=hours)

    @staticmethod
    def days(days: int) -> Span:
        return Span(days=days)


class Duration:
    """`Duration.of_seconds(5)`: a timedelta of five seconds."""

    @staticmethod
    def of_nanos(nanos: int) -> Span:
        """Rounded down to microseconds, the least that a timedelta holds."""
        return Span(microseconds=nanos // 1000)

    @staticmethod
    def of_millis(millis: int) -> Span:
        return Span(milliseconds=millis)

    @staticmethod
    def of_seconds(seconds: int) -> Span:
        return Span(seconds=seconds)

    @staticmethod
    def of_minutes(minutes: int) -> Span:
        return Span(minutes=minutes)

    @staticmethod
    def of_hours(hours: int) -> Span:
        return Span(hours=hours)

    @staticmethod
    def of_days(days: int) -> Span:
        return Span(days=days)


@dataclass(frozen=True, order=True)
class Instant:
    """A moment: seconds since the epoch (negative before it), and 0..999,999,999 nanoseconds.

    >>> Instant.of_epoch_milli(-1)
    Instant(seconds=-1, nanos=999000000)
    >>> Instant.of_epoch_milli(1_500).to_epoch_milli()
    1500
    """

    seconds: int
    nanos: int

    def __post_init__(self) -> None:
        if not 0 <= self.nanos < 1_000_000_000:
            raise ConfigurationError(f"nanos must be in 0..999999999, is {self.nanos}")

    def to_epoch_milli(self) -> int:
        """Milliseconds since the epoch, rounded down."""
        return self.seconds * 1000 + self.nanos // 1_000_000

    def to_datetime(self) -> datetime:
        """The same in UTC. TypeMismatchError for parts of a microsecond, which it has no place for.

        >>> Instant(0, 1_000).to_datetime().isoformat()
        '1970-01-01T00:00:00.000001+00:00'
        """
        micros, rest = divmod(self.nanos, 1000)
        if rest:
            raise TypeMismatchError(f"{self!r} is finer than a microsecond, and would be truncated")
        return _EPOCH + timedelta(seconds=self.seconds, microseconds=micros)

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        seconds, millis = divmod(epoch_milli, 1000)
        return Instant(seconds, millis * 1_000_000)

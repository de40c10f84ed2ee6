"""Durations as users write them: timedeltas, milliseconds, or PyFlink `Time`s."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ..core.errors import ConfigurationError

_MILLISECOND = timedelta(milliseconds=1)


def to_millis(duration: Any, what: str) -> int:
    """Whole milliseconds of a timedelta, a number of milliseconds, or an object with PyFlink's
    `Time.to_milliseconds()`. Raises ConfigurationError naming `what` for anything else."""
    if isinstance(duration, timedelta):
        return duration // _MILLISECOND
    if isinstance(duration, int) and not isinstance(duration, bool):
        return duration
    convert = getattr(duration, "to_milliseconds", None)
    if callable(convert):
        return int(convert())
    raise ConfigurationError(f"{what} must be a timedelta or milliseconds (int), got {duration!r}")

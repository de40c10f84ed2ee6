"""Which lines somebody wants to see."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ..core.errors import ConfigurationError
from ..core.logging_config import LoggingConfig, number_of
from .records import Entry


@dataclass(frozen=True)
class LogFilter:
    """All that is said has to hold. operator: a name, an id, or the name of a chain that it is in.
    subtask: from 0. level: this one and above. since, until: UTC as in `time` of a line, the first
    within, the second without. text: part of the message or the error, in any case."""

    operator: str | None = None
    subtask: int | None = None
    attempt: int | None = None
    level: str | None = None
    since: str | None = None
    until: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        if self.level is not None:
            object.__setattr__(self, "level", LoggingConfig(level=self.level).level)

    def takes(self, entry: Entry) -> bool:
        """Whether a line is wanted."""
        return (
            self._by(entry)
            and (self.since is None or entry["time"] >= self.since)
            and (self.until is None or entry["time"] < self.until)
            and (self.level is None or _loud(entry, number_of(self.level)))
            and (self.text is None or self._says(entry, self.text.lower()))
        )

    def _by(self, entry: Entry) -> bool:
        named = (entry.get("operator"), entry.get("operator_id"), entry.get("task"))
        return (
            (self.operator is None or self.operator in named)
            and (self.subtask is None or entry.get("subtask") == self.subtask)
            and (self.attempt is None or entry.get("attempt") == self.attempt)
        )

    @staticmethod
    def _says(entry: Entry, text: str) -> bool:
        return text in entry["message"].lower() or text in entry.get("error", "").lower()


def _loud(entry: Entry, least: int) -> bool:
    try:
        return number_of(entry["level"]) >= least
    except KeyError:  # a level that the program made: it was loud enough to be written
        return True


def moment(text: str, now: datetime) -> str:
    """A time as lines have it, of one that a person gives: ISO 8601 (UTC where it has no zone), or
    so long ago, as in `90s`, `15m`, `2h`, `1d`. ConfigurationError for anything else."""
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    try:
        if text and text[-1] in units and text[:-1].replace(".", "", 1).isdigit():
            found = now - timedelta(**{units[text[-1]]: float(text[:-1])})
        else:
            found = datetime.fromisoformat(text)
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"a time is ISO 8601, as 2030-01-31T12:00, or so long ago, as 15m: '{text}' is neither "
            f"({error})"
        ) from None
    return found.isoformat(timespec="microseconds")[:-6] + "Z"

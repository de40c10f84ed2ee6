"""Into which folder below a sink's path records go."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ...core.errors import ConfigurationError

_TOKEN = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|.", re.DOTALL)

_PYTHON = {
    "yyyy": "%Y",
    "uuuu": "%Y",
    "yy": "%y",
    "uu": "%y",
    "MM": "%m",
    "dd": "%d",
    "DDD": "%j",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}
"""Java's pattern letters -> strftime's."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BucketAssigner(ABC):
    """Chooses the folder by the time at which a batch of records is written."""

    @abstractmethod
    def folder(self, now_ms: int) -> str:
        """Empty, or a path relative to the sink's that ends with a slash."""

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """All files lie in the sink's folder itself."""
        return BasePath()

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> BucketAssigner:
        """By processing time. format_str: Java's pattern of yyyy, yy, MM, dd, DDD, HH, mm, ss and
        text ('quoted' if it has letters). timezone_id: such as Europe/Berlin; None: that of the
        machine on which the subtask runs.

        >>> BucketAssigner.date_time_bucket_assigner("yyyy/MM/dd--HH", "UTC").folder(0)
        '1970/01/01--00/'
        """
        if timezone_id is not None:
            try:
                ZoneInfo(timezone_id)
            except (ZoneInfoNotFoundError, ValueError) as error:
                raise ConfigurationError(f"there is no time zone '{timezone_id}'") from error
        return DateTime(_pattern(format_str), timezone_id)


@dataclass(frozen=True)
class BasePath(BucketAssigner):
    def folder(self, now_ms: int) -> str:
        return ""


@dataclass(frozen=True)
class DateTime(BucketAssigner):
    """pattern: strftime's."""

    pattern: str
    zone: str | None

    def folder(self, now_ms: int) -> str:
        zone = None if self.zone is None else ZoneInfo(self.zone)
        at = _EPOCH + timedelta(milliseconds=now_ms)
        return at.astimezone(zone).strftime(self.pattern) + "/"


def _pattern(java: str) -> str:
    """Java's pattern as strftime's."""
    parts = []
    for match in _TOKEN.finditer(java):
        text = match[0]
        if text[0] == "'" and len(text) > 1:
            text = "'" if text == "''" else text[1:-1].replace("''", "'")
        elif match[1] or text in "[]{}#'":
            if text not in _PYTHON:
                raise ConfigurationError(
                    f"the bucket pattern '{java}' has '{text}', which is not supported: there are "
                    f"{', '.join(_PYTHON)} and 'quoted text'"
                )
            parts.append(_PYTHON[text])
            continue
        parts.append(text.replace("%", "%%"))
    made = "".join(parts).strip("/")
    hidden = [part for part in made.split("/") if not part or part.startswith((".", "_"))]
    if hidden:
        raise ConfigurationError(
            f"the bucket pattern '{java}' makes folders that are empty or hidden: their names must "
            "not begin with a dot or underscore"
        )
    return made

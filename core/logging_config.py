"""What a job's logs are told: levels, and how much of them is kept."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from .checks import check_count, check_duration, check_kind
from .errors import ConfigurationError

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True)
class LoggingConfig:
    """level: from which on lines are logged, in the processes of a job on Ray.
    levels: the same for single packages, by the names of their loggers.
    rate_limit: so many lines a second that one place of the code says in one subtask are kept;
        errors always are. 0: all.
    directory: where the files are, on every machine; None: below the system's folder for temporary
        files. On the local host there are files only with this.
    max_file_size: bytes of one file. max_files: so many of each process, the last ones.
    retention: how long files of jobs that are over stay."""

    level: str = "INFO"
    levels: dict[str, str] = field(default_factory=dict, hash=False)
    rate_limit: int = 100
    directory: str | None = None
    max_file_size: int = 10 << 20
    max_files: int = 3
    retention: timedelta = timedelta(days=7)

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", _level("logging level", self.level))
        check_kind("logging levels", self.levels, dict)
        levels = {name: _level(f"level of '{name}'", one) for name, one in self.levels.items()}
        object.__setattr__(self, "levels", levels)
        check_count("logging rate_limit", self.rate_limit, 0)
        check_kind("logging directory", self.directory, str, type(None))
        check_count("logging max_file_size", self.max_file_size, 4096)
        check_count("logging max_files", self.max_files, 1)
        check_duration("logging retention", self.retention)


def _level(what: str, given: object) -> str:
    check_kind(what, given, str)
    name = str(given).strip().upper()
    name = {"WARN": "WARNING", "FATAL": "CRITICAL", "TRACE": "DEBUG"}.get(name, name)
    if name not in LEVELS:
        known = ", ".join(LEVELS)
        raise ConfigurationError(f"{what} must be one of {known}, is {given!r}")
    return name


def number_of(level: str) -> int:
    """As `logging` has it."""
    return logging.getLevelNamesMapping()[level]

"""Options of logs and traces."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from .memory import MemorySize
from .registry import Apply, known
from .settings import Settings
from .values import DURATION, INTEGER, MAP, MEMORY, STRING


def _change(settings: Settings, **changes: Any) -> None:
    settings.change(logging=replace(settings.base.logging, **changes))


def _trace(settings: Settings, **changes: Any) -> None:
    settings.change(traces=replace(settings.base.traces, **changes))


def _logging(name: str) -> Apply:
    return lambda settings, value: _change(settings, **{name: value})


LOGGING: Final = (
    known(
        "strom.logging.level",
        STRING,
        "INFO",
        _logging("level"),
        "from which on lines are logged in processes of the job: `DEBUG`, `INFO`, `WARNING`, "
        "`ERROR` or `CRITICAL`",
    ),
    known(
        "strom.logging.levels",
        MAP,
        None,
        _logging("levels"),
        "the same for single packages: `strom.logging.levels.<package>`",
    ),
    known(
        "strom.logging.rate-limit",
        INTEGER,
        100,
        _logging("rate_limit"),
        "lines a second of one place in one subtask that are kept; errors always are; 0: all",
    ),
    known(
        "strom.logging.dir",
        STRING,
        None,
        _logging("directory"),
        "folder of the files on each machine; else below the system's temporary folder, and on "
        "the local host nowhere",
    ),
    known(
        "strom.logging.max-file-size",
        MEMORY,
        MemorySize(10 << 20),
        lambda settings, value: _change(settings, max_file_size=value.bytes_size),
        "of a file of a process",
    ),
    known(
        "strom.logging.max-files",
        INTEGER,
        3,
        _logging("max_files"),
        "of a process: the last ones",
    ),
    known(
        "strom.logging.retention",
        DURATION,
        timedelta(days=7),
        _logging("retention"),
        "how long files of jobs that are over stay",
    ),
)

TRACES: Final = (
    known(
        "strom.traces.otlp.endpoint",
        STRING,
        None,
        lambda settings, value: _trace(settings, otlp_endpoint=value),
        "URL that traces are posted to, as `http://127.0.0.1:4318/v1/traces`; else there are none",
    ),
    known(
        "strom.traces.otlp.headers",
        MAP,
        None,
        lambda settings, value: _trace(settings, otlp_headers=value),
        "what is sent with them: `strom.traces.otlp.headers.<name>`",
    ),
)

"""A line as plain data: what is written, read, filtered and shown.

    time        UTC, ISO 8601 with microseconds: as text in the order of time
    level       DEBUG .. CRITICAL; of what was printed INFO (stdout) or WARNING (stderr)
    logger      its name; of what was printed `stdout` or `stderr`
    message     without secrets, of bounded length
    job_id, job_name, task, operator, operator_id, subtask (from 0), attempt
    process     `task` or `coordinator`, on Ray; `program` on the local host
    pid, node
    place       file:line in function
    error       the traceback, the user's frames first
    extra       what the program gave with it
    suppressed  so many lines of the same place were left out

What is not known is left out.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from ..core.failure_text import TEXT_LIMIT, cut, traced
from ..core.redaction import HIDDEN, is_secret, redacted
from ..core.texts import all_encodable
from .scope import LogScope

Entry = dict[str, Any]

SURROGATE: Final = "\\ud"
"""What stands in JSON for what is not in the first plane of Unicode."""

MESSAGE_LIMIT: Final = 16_000
"""The most characters of a message."""

MOST_EXTRA: Final = 32
EXTRA_LIMIT: Final = 1_000

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; all else is the program's."""

NODE: Final = os.uname().nodename


def entry_of(record: logging.LogRecord, scope: LogScope, process: str) -> Entry:
    """Of a record of `logging`."""
    entry = _entry(record.created, record.levelname, record.name, said_by(record), scope, process)
    entry["place"] = f"{record.pathname}:{record.lineno} in {record.funcName}"
    if record.exc_info and record.exc_info[1] is not None:
        entry["error"] = redacted(traced(record.exc_info[1]))
    elif record.exc_text:
        entry["error"] = redacted(record.exc_text, TEXT_LIMIT)
    extra = dict(_extra(record))
    if extra:
        entry["extra"] = extra
    return entry


def printed(
    when: float,
    stream: str,
    text: str,
    place: tuple[str, int, str],
    scope: LogScope,
    process: str,
) -> Entry:
    """Of a line that was printed at `place`: file, line, function."""
    level = "INFO" if stream == "stdout" else "WARNING"
    entry = _entry(when, level, stream, text, scope, process)
    entry["place"] = "{}:{} in {}".format(*place)
    return entry


def left_out(first: Entry, count: int, now: float) -> Entry:
    """That so many more lines were suppressed, of which `first` was the first."""
    return first | {
        "time": _time(now),
        "message": f"... {count} more suppressed, the first: {cut(first['message'], 200)}",
        "suppressed": count,
    }


def encoded(entry: Entry) -> bytes:
    """As a line of a file."""
    line = json.dumps(entry, separators=(",", ":"))
    if SURROGATE in line:  # halves of pairs, which nobody could pass on, may be among them
        line = json.dumps(all_encodable(entry), separators=(",", ":"))
    return line.encode("ascii") + b"\n"


def said_by(record: logging.LogRecord) -> str:
    """The message; what cannot be made one is shown as it was given."""
    try:
        return record.getMessage()
    except Exception as error:
        return f"{record.msg!r} % {cut(repr(record.args))} ({type(error).__name__}: {error})"


def _entry(
    when: float, level: str, logger: str, message: str, scope: LogScope, process: str
) -> Entry:
    entry: Entry = {
        "time": _time(when),
        "level": level,
        "logger": logger,
        "message": redacted(message, MESSAGE_LIMIT),
    }
    entry |= {name: value for name, value in asdict(scope).items() if value is not None}
    return entry | {"process": process, "pid": os.getpid(), "node": NODE}


def _extra(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    found = [(str(k), v) for k, v in vars(record).items() if k not in _OWN and k[:1] != "_"]
    for name, value in found[:MOST_EXTRA]:
        if is_secret(name):
            yield name, HIDDEN
        elif value is None or isinstance(value, (bool, int, float)):
            yield name, value
        else:
            yield name, redacted(_text(value), EXTRA_LIMIT)


def _text(value: Any) -> str:
    try:
        return value if isinstance(value, str) else repr(value)
    except Exception as error:
        return f"(cannot be shown: {type(error).__name__})"


def _time(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="microseconds")[:-6] + "Z"

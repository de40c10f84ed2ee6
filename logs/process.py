"""The logs of the jobs that a process works for: opened by its host, written as lines are said.

What `logging` records comes through a handler of the root logger; what is printed through stand-ins
for stdout and stderr. Each line goes to the job that it was said for (`scope`); lines of no job are
left to whoever else listens. Nothing here fails a job, or waits for long.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, Final

from ..core.errors import ConfigurationError
from ..core.failure_text import described
from ..core.logging_config import LoggingConfig, number_of
from .capture import CapturedStream
from .files import LogFiles, LogFolder, sweep
from .limits import WINDOW_S, RateLimit
from .records import Entry, encoded, entry_of, left_out, printed
from .scope import LogScope, current_scope, set_process_scope

LOUD: Final = logging.WARNING
"""From this level on a line that no other handler has goes to stderr, too."""


class JobLog:
    """One job's in this process. All under the lock of `_Process`."""

    def __init__(self, config: LoggingConfig, job: LogScope, role: str) -> None:
        self._folder = LogFolder(job.job_id, config.directory)
        self.config = config
        self.job = job
        self.role = role
        self._files = LogFiles(
            self._folder.path, role, config.max_file_size, config.max_files, self._folder.keep
        )
        self._limits = RateLimit(config.rate_limit)
        self._broken = False

    def take(self, place: Hashable, make: Callable[[], Entry], always: bool) -> bool:
        """Write what `make` makes, unless its place says too much; whether it was."""
        now = time.monotonic()
        if (left := self._limits.turned(place, now)) is not None:
            self._tell(*left)
        if not always and not self._limits.admits(place, now, make):
            return False
        self._write(make())
        return True

    def tell_suppressed(self, now: float | None) -> bool:
        """Write how many lines were left out (`now` None: all there are); whether more will be."""
        for left in self._limits.suppressed(now):
            self._tell(*left)
        return self._limits.pending

    @property
    def pending(self) -> bool:
        """Whether lines were left out of which nothing was written yet."""
        return self._limits.pending

    def _tell(self, count: int, first: Entry) -> None:
        self._write(left_out(first, count, time.time()))

    def close(self) -> None:
        self.tell_suppressed(None)
        self._files.close()
        self._folder.close()

    def _write(self, entry: Entry) -> None:
        try:
            self._files.write(encoded(entry))
            self._broken = False
        except (OSError, ConfigurationError) as error:
            if not self._broken:
                self._broken = True
                _complain(f"lines of job {self.job.job_id} are lost: {error}")


class _Handler(logging.Handler):
    """Of the root logger."""

    def __init__(self, process: _Process) -> None:
        super().__init__()
        self._process = process

    def emit(self, record: logging.LogRecord) -> None:
        self._process.on_record(record)


class _Process:
    """Invariant: handler and streams stand while `_logs` has any."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._logs: dict[str, JobLog] = {}
        self._handler = _Handler(self)
        self._streams: list[tuple[str, CapturedStream]] = []
        self._levels: dict[str, int] = {}
        """What loggers had before."""
        self._inside = threading.local()
        self._teller: threading.Thread | None = None
        self._woken = threading.Event()

    def open(self, log: JobLog) -> None:
        with self._lock:
            if not self._logs:
                self._stand()
            self._logs[log.job.job_id] = log
            self._set_levels(log.config)

    def close(self, log: JobLog) -> None:
        with self._lock:
            if self._logs.get(log.job.job_id) is log:
                for _, stream in self._streams:
                    stream.close_lines()
                del self._logs[log.job.job_id]
                if not self._logs:
                    self._fall()
            log.close()
            self._woken.set()

    def flush(self) -> None:
        """Write what was counted only, and lines without an end."""
        with self._lock:
            for _, stream in self._streams:
                stream.close_lines()
            for log in self._logs.values():
                log.tell_suppressed(None)

    # --- forks ------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """No other thread is inside while the process forks: what the child has is whole."""
        self._lock.acquire()

    def after_fork(self) -> None:
        self._lock.release()

    def in_child(self) -> None:
        """It has this thread alone."""
        self._lock = threading.RLock()
        self._woken = threading.Event()
        self._teller = None

    # --- what is said -----------------------------------------------------------------------

    def on_record(self, record: logging.LogRecord) -> None:
        """Called by `logging`, on the thread that said it."""
        if getattr(self._inside, "yes", False):  # it is said while a line is made
            return
        self._inside.yes = True
        try:
            kept = self._record(record)
        except Exception as error:
            kept = True
            _complain(f"a line is lost: {described(error)}")
        finally:
            self._inside.yes = False
        if kept and record.levelno >= LOUD and not _others(record, self._handler):
            _show(record)

    def on_line(self, stream: str, line: str, frame: FrameType) -> None:
        """Called by the streams, on the thread that printed. Quick: there are functions that print
        each record."""
        if getattr(self._inside, "yes", False):
            return
        self._inside.yes = True
        try:
            self._line(stream, line, frame)
        except Exception as error:
            _complain(f"a line is lost: {described(error)}")
        finally:
            self._inside.yes = False

    def _record(self, record: logging.LogRecord) -> bool:
        """Whether it is kept, or nobody's."""
        scope = current_scope()
        log = None if scope is None else self._logs.get(scope.job_id)
        if log is None or scope is None:
            return True
        place = (id(scope), record.name, record.pathname, record.lineno)
        make = partial(entry_of, record, scope, log.role)
        with self._lock:
            kept = log.take(place, make, record.levelno >= logging.ERROR)
            self._watch(log)
        return kept

    def _line(self, stream: str, line: str, frame: FrameType) -> None:
        scope = current_scope()
        log = None if scope is None else self._logs.get(scope.job_id)
        if log is None or scope is None:
            return
        code, number = frame.f_code, frame.f_lineno

        def make() -> Entry:
            shown = (code.co_filename, number, code.co_name)
            return printed(time.time(), stream, line, shown, scope, log.role)

        with self._lock:
            log.take((id(scope), stream, id(code), number), make, False)
            self._watch(log)

    # --- lines that were left out -------------------------------------------------------------

    def _watch(self, log: JobLog) -> None:
        """Have it told that lines were left out, also if no line comes any more."""
        if self._teller is None and log.pending:
            self._woken.clear()
            self._teller = threading.Thread(target=self._tell, name="strom-logs", daemon=True)
            self._teller.start()

    def _tell(self) -> None:
        while True:
            over = self._woken.wait(WINDOW_S)
            with self._lock:
                now = time.monotonic()
                more = [log for log in self._logs.values() if log.tell_suppressed(now)]
                if not more or (over and not self._logs):
                    self._teller = None
                    return

    # --- the process's loggers and streams ----------------------------------------------------

    def _stand(self) -> None:
        logging.getLogger().addHandler(self._handler)
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is not None:
                captured = CapturedStream(name, stream, self.on_line)
                setattr(sys, name, captured)
                self._streams.append((name, captured))

    def _fall(self) -> None:
        logging.getLogger().removeHandler(self._handler)
        for name, captured in self._streams:
            if getattr(sys, name) is captured:  # else somebody stands before it
                setattr(sys, name, captured.captured)
        self._streams.clear()
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)
        self._levels.clear()

    def _set_levels(self, config: LoggingConfig) -> None:
        for name, level in {"": config.level, **config.levels}.items():
            logger = logging.getLogger(name)
            self._levels.setdefault(name, logger.level)
            logger.setLevel(number_of(level))


_process: Final = _Process()

os.register_at_fork(
    before=_process.before_fork,
    after_in_parent=_process.after_fork,
    after_in_child=_process.in_child,
)


def open_log(config: LoggingConfig, job: LogScope, role: str, alone: bool) -> JobLog | None:
    """Begin to write what this process says for a job. `alone`: it works for no other, so that all
    of its threads speak for this one. None, with a word on stderr, if there can be no files. Takes
    as long as a file system does to make a folder; what old jobs have left is removed beside it."""
    if alone:
        set_process_scope(job)
    try:
        log = JobLog(config, job, role)
    except (OSError, ConfigurationError) as error:
        _complain(f"job {job.job_id} keeps no log on this machine: {error}")
        return None
    _process.open(log)
    threading.Thread(
        target=sweep,
        args=(config.directory, config.retention),
        name="strom-logs-sweep",
        daemon=True,
    ).start()
    return log


def close_log(log: JobLog | None) -> None:
    """The job is over here."""
    if log is not None:
        _process.close(log)


def flush_logs() -> None:
    """Write all that is known, such as how many lines were left out so far."""
    _process.flush()


def _others(record: logging.LogRecord, mine: logging.Handler) -> bool:
    """Whether another handler gets the record."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if any(handler is not mine for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _show(record: logging.LogRecord) -> None:
    """On stderr, as Python does where nobody handles a record."""
    with suppress(Exception):
        if logging.lastResort is not None:
            logging.lastResort.handle(record)


def _complain(text: str) -> None:
    """Where it is not a line of a job's own."""
    with suppress(Exception):
        stream: Any = sys.stderr
        stream = stream.captured if isinstance(stream, CapturedStream) else stream
        stream.write(f"strom: {text}\n")

"""Runs of uploaded programs: processes beside the server, whose jobs outlive them.

A program is told by its environment to run on this cluster, detached. The ids of its jobs are taken
from the lines that it prints of them. A run is over when its program is, whatever that has left
behind: what the rest of its process group prints from then on is nobody's.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...api.configuration.submitted import names_of
from ...api.jobs.host import SUBMITTED_BY
from ...core.child_output import followed
from ...core.errors import ConfigurationError
from ...core.redaction import redacted
from ..catalogs.catalog import Refused, Unavailable
from .uploads import Program

MOST_RUNNING: Final = 16
MOST_KEPT: Final = 200
MOST_LINES: Final = 400
JOB_LINE: Final = re.compile(rb"^strom: job '.*' has the id ([0-9a-f]{16}) ")
"""What `RayHost.submit` prints once a job has started."""

_DROPPED: Final = re.compile(r"STROM_REST_|RAY_(?!ADDRESS|AUTH|TMPDIR|USAGE)")
"""Variables of the server's own: tokens, and what Ray tells its workers."""


class NoSuchRun(ConfigurationError):
    """Nobody asked for it, or long ago."""


@dataclass(frozen=True)
class Run:
    """How a program is to be run. `module`: of a wheel or zip, instead of its `__main__.py`;
    `options`: of the configuration, which count unless the program says otherwise."""

    program: Program
    path: Path
    arguments: Sequence[str] = ()
    module: str | None = None
    options: Mapping[str, str] | None = None

    def command(self) -> list[str]:
        if self.module is not None:
            return [sys.executable, "-m", self.module, *self.arguments]
        return [sys.executable, str(self.path), *self.arguments]

    def environment(self, address: str | None) -> dict[str, str]:
        """`address`: of the cluster."""
        found = {k: v for k, v in os.environ.items() if not _DROPPED.match(k)}
        options = {
            "strom.attached": "false",
            "strom.wait": "false",
            **(self.options or {}),
        }
        if self.path.suffix != ".py":
            options["python.files"] = str(self.path)
            found["PYTHONPATH"] = os.pathsep.join(
                one for one in (str(self.path), found.get("PYTHONPATH")) if one
            )
        for name, value in options.items():
            key = name.upper().replace("-", "_").replace(".", "__")
            found[f"STROM_CONF__{key}"] = value
        found |= names_of(options)
        found["PYTHONUNBUFFERED"] = "1"
        found[SUBMITTED_BY] = "the REST API"
        if address is not None:
            found["RAY_ADDRESS"] = address
        return found


class Running:
    """One run, while it is on and afterwards."""

    def __init__(self, run: Run, address: str | None) -> None:
        self.id = secrets.token_hex(16)
        self.program = run.program
        self.began_ms = time.time_ns() // 1_000_000
        self.jobs: list[str] = []
        self._lines: deque[bytes] = deque(maxlen=MOST_LINES)
        self._lines_heard = 0
        self._shown = (0, "")
        """The output as it was after so many lines."""
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            run.command(),
            env=run.environment(address),
            cwd=run.path.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.exit_code: int | None = None
        self._deserted = False
        """Nobody of its process group is left, whose number may be another's by now."""
        threading.Thread(target=self._follow, name="strom-rest-run", daemon=True).start()

    def _follow(self) -> None:
        """Until the program is over, though a child of its own may hold the pipe for ever."""
        assert self._process.stdout is not None
        code = followed(self._process, self._process.stdout, self._heard, self._over)
        with self._news:
            self.exit_code = code
            self._news.notify_all()

    def _over(self) -> None:
        with self._news:
            self._deserted = not _signalled(self._process.pid, 0)

    def _heard(self, lines: Sequence[bytes]) -> None:
        with self._news:
            self._lines_heard += len(lines)
            for line in lines:
                self._lines.append(line)
                found = JOB_LINE.match(line)
                if found is not None:
                    self.jobs.append(found[1].decode())
                    self._news.notify_all()

    def wait(self, seconds: float) -> None:
        """Until it has started a job, or is over."""
        with self._news:
            self._news.wait_for(lambda: self.jobs or self.exit_code is not None, seconds)

    @property
    def output(self) -> str:
        """The end of what it printed, looked through for secrets only if there is more of it: a
        secret may have several lines."""
        with self._news:
            lines, heard = list(self._lines), self._lines_heard
            if self._shown[0] == heard:
                return self._shown[1]
        text = redacted(b"".join(lines).decode("utf-8", "replace"))
        with self._news:
            self._shown = max(self._shown, (heard, text))
        return text

    def kill(self) -> None:
        """The program, and what it has left behind; jobs that have started go on."""
        with self._news:
            if not self._deserted:
                _signalled(self._process.pid, signal.SIGKILL)
                self._deserted = self.exit_code is not None


def _signalled(group: int, number: int) -> bool:
    """Whether there is such a group of processes. It is sent the signal."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


class ProgramRuns:
    """From any thread."""

    def __init__(self, address: str | None) -> None:
        """`address`: of the Ray cluster."""
        self._address = address
        self._runs: OrderedDict[str, Running] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, run: Run) -> Running:
        """Unavailable if too many are on."""
        with self._lock:
            on = sum(one.exit_code is None for one in self._runs.values())
            if on >= MOST_RUNNING:
                raise Unavailable(f"{MOST_RUNNING} programs run: ask again later")
            for name, one in list(self._runs.items()):
                if len(self._runs) >= MOST_KEPT and one.exit_code is not None:
                    del self._runs[name]
            made = Running(run, self._address)
            self._runs[made.id] = made
            return made

    def get(self, program_id: str, run_id: str) -> Running:
        with self._lock:
            found = self._runs.get(run_id)
        if found is None or found.program.id != program_id:
            raise NoSuchRun("there is no such run of this program, or it was long ago")
        return found

    def check_none(self, program_id: str) -> None:
        """Refused while the program runs."""
        with self._lock:
            for one in self._runs.values():
                if one.program.id == program_id and one.exit_code is None:
                    raise Refused(f"the program runs (run {one.id}): end that first")

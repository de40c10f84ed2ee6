"""Questions that are asked in a process of their own, which may hang or die of them.

A library for another processor ends its process by a signal, and a connection may hang where no
thread can be told to stop. So a probe (`probes`) is a Python of its own: its question comes as JSON
on stdin (never on the command line, where others could read it), its answer as the last line of
stdout.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any, Protocol

from ..core.errors import ResourceError

LEFT_S = 5
"""How much longer a probe lives by itself, if whoever asked is gone."""

_MOST = 1000
"""Characters of what a probe that died had said last."""


class Ask(Protocol):
    """How checks ask a probe. ProbeError if there is no answer."""

    def __call__(self, probe: str, question: Any = None, limit_s: float = 10.0) -> Any: ...


class ProbeError(ResourceError):
    """A probe died, or did not answer in time; the message says which, and its last words."""


def ask(probe: str, question: Any = None, limit_s: float = 10.0) -> Any:
    """What the probe of that name answers."""
    last = str(int(limit_s) + LEFT_S)
    command = [sys.executable, "-P", "-m", f"{__package__}.probes", probe, last]
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, said = child.communicate(json.dumps(question), limit_s)
    except subprocess.TimeoutExpired:
        raise ProbeError(f"no answer within {limit_s:g} s") from None
    finally:
        _end(child)
    if child.returncode == 0:
        return json.loads(out.strip().splitlines()[-1])
    raise ProbeError(died(child.returncode, said))


def died(code: int, said: str) -> str:
    """How a process ended, in words.

    >>> died(-4, "")
    'its process was ended by SIGILL'
    >>> died(1, "Traceback ...\\nImportError: no such library")
    'ImportError: no such library'
    """
    lines = [line for line in said.strip().splitlines() if line.strip()]
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"its process was ended by {name}"
    return lines[-1][:_MOST] if lines else f"its process ended with exit code {code}"


def _end(child: subprocess.Popen[str]) -> None:
    """The probe and what it started; not an error if nothing runs any more."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()

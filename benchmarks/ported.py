"""The same programs in PyFlink and here: `ported_programs`, and for PyFlink a copy of it in which
`strom` is replaced by `pyflink`.

PyFlink lives in an environment of its own, whose interpreter `$STROM_PYFLINK` names.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FILES = ("ported_programs.py", "ported_runner.py")
PROGRAMS = ("word_count", "keyed_process", "window_aggregate")

MODES: dict[str, dict[str, str]] = {
    "local": {},
    "process": {"_python_worker_execution_mode": "process"},
    "process+cache": {
        "_python_worker_execution_mode": "process",
        "python.state.cache-size": "1000000",
    },
    "thread": {"python.execution-mode": "thread"},
}
"""How PyFlink runs Python functions: as it does in a program that is not sent to a cluster, in
threads of that program beside the JVM; in processes beside the JVM, as on a cluster, and these with
a cache that holds the state of all keys (default: 1,000); and in the JVM's threads. Names with a
`_` ahead are variables of its environment."""


class NoPyFlink(Exception):
    """There is no PyFlink to run; the message says what to do."""


def interpreter() -> str:
    """Of the environment with PyFlink. Raises NoPyFlink."""
    found = os.environ.get("STROM_PYFLINK")
    if not found:
        raise NoPyFlink(
            "PyFlink cannot be run: set STROM_PYFLINK to the python of an environment of its own, "
            "made by `python -m venv DIR` and `DIR/bin/pip install apache-flink`"
        )
    if not Path(found).exists():
        raise NoPyFlink(f"PyFlink cannot be run: STROM_PYFLINK is {found}, which is not there")
    return found


def ported(text: str) -> str:
    """A program for PyFlink, of one written with its names."""
    return re.sub(r"\bstrom\b", "pyflink", text)


def port(files: Sequence[Path], folder: Path) -> None:
    """Write the files into the folder, for PyFlink."""
    for path in files:
        (folder / path.name).write_text(ported(path.read_text("utf-8")), "utf-8")


def run_pyflink(
    arguments: Sequence[str], cwd: Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS` in PyFlink's environment. Raises NoPyFlink."""
    python = interpreter()
    asked = [python, "-c", "import os, sys; print(os.pathsep.join(p for p in sys.path if p))"]
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    found = subprocess.run(asked, capture_output=True, text=True, check=True, env=bare)
    env = {
        **bare,
        **(variables or {}),
        # Workers are started with whatever `python` is.
        "PATH": os.pathsep.join([str(Path(python).parent), bare.get("PATH", "")]),
        # The interpreter within the JVM does not know of the environment.
        "PYTHONPATH": os.pathsep.join([str(cwd), found.stdout.strip()]),
    }
    return subprocess.run(
        [python, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=env,
    )


def measure(
    programs: Sequence[str], modes: Sequence[str], seconds: float, parallelism: int, host: str
) -> Iterator[dict[str, Any]]:
    """A line per program: PyFlink in each mode, then strom. `ratio` is to PyFlink's fastest mode.
    Raises NoPyFlink before anything runs."""
    interpreter()
    for program in programs:
        asked = [program, str(parallelism), str(seconds)]
        theirs = {mode: _pyflink(asked, MODES[mode]) for mode in modes}
        ours = _strom(asked, host)
        line = {"name": "pyflink", "program": program, "parallelism": parallelism, "host": host}
        failed = [one["error"] for one in (ours, *theirs.values()) if "error" in one]
        if failed:
            yield {**line, "error": failed[0]}
            continue
        rates = {mode: one["events_per_s"] for mode, one in theirs.items()}
        rate = ours["events_per_s"]
        yield {
            **line,
            "strom_events_per_s": rate,
            "pyflink_events_per_s": rates,
            "ratio": round(rate / max(rates.values()), 1),
            "ratios": {mode: round(rate / one, 1) for mode, one in rates.items()},
            "strom_jobs": ours["jobs"],
            "pyflink_jobs": {mode: one["jobs"] for mode, one in theirs.items()},
        }


def _pyflink(asked: Sequence[str], mode: dict[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="strom-pyflink-") as name:
        folder = Path(name)
        port([HERE / file for file in FILES], folder)
        variables = {name: value for name, value in mode.items() if name.startswith("_")}
        options = [f"{name}={mode[name]}" for name in mode if name not in variables]
        return _line(run_pyflink([FILES[1], "pyflink", *asked, *options], folder, variables))


def _strom(asked: Sequence[str], host: str) -> dict[str, Any]:
    runner = f"{__package__}.{Path(FILES[1]).stem}"
    command = [sys.executable, "-m", runner, "strom", *asked, f"strom.host={host}"]
    return _line(subprocess.run(command, capture_output=True, text=True, check=False))


def _line(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON line that it printed, or `error`."""
    lines = [text for text in done.stdout.splitlines() if text.startswith("{")]
    if done.returncode or not lines:
        return {"error": f"ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}"}
    found: dict[str, Any] = json.loads(lines[-1])
    return found

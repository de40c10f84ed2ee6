"""Runs a program up to its first job, and writes down what that is instead of running it.

    python -m strom.cli.planning PLACE [--module] PROGRAM [ARGUMENTS]

A process of `strom plan`. Whatever host the program names, its jobs come here.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any, NoReturn

from ..api.jobs.host import open_host, send_all_jobs_to
from ..engine.graph.explain import describe
from ..engine.graph.model import JobGraph


class Planning:
    """A host that runs nothing: the program ends where it would run a job, as by `sys.exit`."""

    def __init__(self, place: Path) -> None:
        """`place`: a file that is not there, for the description of the first job, as JSON."""
        self._place = place
        self._local = open_host("local")

    def open_cache(self) -> Any:
        """For the records of cached streams, of which there will be none."""
        return self._local.open_cache()  # type: ignore[attr-defined]

    def submit(self, graph: JobGraph, job_name: str) -> NoReturn:
        if not self._place.exists():
            self._place.write_text(json.dumps(describe(graph)))
        raise SystemExit(0)


def main(place: str, *words: str) -> None:
    """As `python PROGRAM` or `python -m PROGRAM` would, with the arguments that it would have."""
    send_all_jobs_to(Planning(Path(place)))
    if words[0] == "--module":
        sys.argv = list(words[1:])
        sys.path[0] = ""
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(words)
        sys.path[0] = str(Path(words[0]).absolute().parent)
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])

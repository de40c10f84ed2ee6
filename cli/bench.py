"""`strom bench`: the benchmarks that come with strom."""

from __future__ import annotations

import sys
from typing import Final

import typer

from . import children

PROGRAM: Final = "from strom.benchmarks.cli import main; main('strom bench')"
"""The benchmarks are above the command line, which imports nothing of them."""

OPTIONS: Final = {
    "allow_extra_args": True,
    "allow_interspersed_args": False,
    "ignore_unknown_options": True,
}


def bench(context: typer.Context) -> None:
    """Run one of the benchmarks: `--help` lists them, `NAME --help` says what one takes; --json
    makes JSON lines. The exit code is the benchmark's."""
    words = [sys.executable, "-P", "-c", PROGRAM, *(context.args or ["--help"])]
    raise typer.Exit(children.exit_code(words))

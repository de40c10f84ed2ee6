"""The command line: `python -m benchmarks COMMAND [options]`, `strom bench COMMAND [options]`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

from strom import StromError

from .commands import checkpoints, failures, parts, rates
from .configured import configured, given

HELP = "python -m benchmarks"


def parser(prog: str = HELP) -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(prog=prog, description=f"{prog} COMMAND [options]")
    names = main.add_subparsers(dest="name", required=True)
    for kind in (rates, checkpoints, failures, parts):
        kind.add_to(names)
    return main


def main(prog: str = HELP) -> None:
    """`prog`: what it is called as."""
    options = parser(prog).parse_args()
    columns = getattr(options, "columns", ())
    if columns and not options.json:
        show_row({name: name for name in columns}, columns)
    try:
        for line in run(options):
            if columns and not options.json and "error" not in line:
                show_row(line, columns)
            else:
                show(line, options.json)
    except StromError as error:
        raise SystemExit(str(error)) from error


def run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The result lines of one command, as they come."""
    told = given(getattr(options, "conf", None), getattr(options, "backend", None))
    with configured(told):
        yield from options.run(options)


def show(line: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(line), flush=True)
    else:
        print("  ".join(f"{name}={value}" for name, value in line.items()), flush=True)


def show_row(line: dict[str, Any], columns: Sequence[str]) -> None:
    """One row of a table, the first column's text to the left, numbers to the right."""
    first, *others = ("-" if line.get(name) is None else line[name] for name in columns)
    print(f"{first:<24}" + "".join(f"{other!s:>14}" for other in others), flush=True)

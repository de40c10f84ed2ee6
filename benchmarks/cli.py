"""The command line: `python -m benchmarks COMMAND [options]`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from strom import StromError

from . import commands
from .before_after import GROUPS, WHOLE
from .compare import PEERS
from .nexmark.registry import NEXMARK
from .states import STATES
from .workloads import WORKLOADS

HELP = "python -m benchmarks"


def count(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text)
    if not 1 <= number < 1 << 63:
        raise argparse.ArgumentTypeError(f"must be at least 1 (and below 2**63), is {text}")
    return number


def counts(text: str) -> list[int]:
    """Several of them, with commas."""
    return [count(part) for part in text.split(",")]


def positive(text: str) -> float:
    """A finite number above 0."""
    number = float(text)
    if not (isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"must be a positive number, is {text}")
    return number


def milliseconds(text: str) -> int:
    """A whole number of at least 0."""
    return 0 if int(text) == 0 else count(text)


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(prog=HELP, description=__doc__)
    names = main.add_subparsers(dest="name", required=True)
    for name, query in WORKLOADS.items():
        command = names.add_parser(name, help=query.summary)
        command.set_defaults(run=commands.workloads, queries=name)
        _measured(command)
    suite = names.add_parser("nexmark", help="Nexmark queries, a line each")
    suite.add_argument(
        "queries",
        help=f"all, rows (with Python functions), or names with commas: {','.join(NEXMARK)}",
    )
    suite.set_defaults(run=commands.workloads)
    _measured(suite)
    _compare(names.add_parser("compare", help="a peer on the same queries, alternating"))
    _latency(names.add_parser("latency", help="delay through a keyed stage at a given rate"))
    scale = names.add_parser("scale", help="speedup from 1 to 2 to 4 tasks")
    scale.set_defaults(run=commands.scale)
    scale.add_argument("--queries", default="q5,q7c,kstate")
    scale.add_argument("--tasks", type=counts, default=[1, 2, 4], help="default: 1,2,4")
    _measured(scale)
    report = names.add_parser("report", help="Markdown and pictures from lines of the others")
    report.set_defaults(run=commands.report)
    report.add_argument("--out", required=True, metavar="DIR")
    report.add_argument(
        "files", nargs="*", help="JSON lines; none: a quick set is run first, into DIR"
    )
    _common(report)
    recovery = names.add_parser("recovery", help="SIGKILL a task, time until all run again")
    recovery.set_defaults(run=commands.recovery)
    recovery.add_argument("--kills", type=count, default=3)
    _common(recovery)
    _before_after(names.add_parser("before-after", help="another revision, then this, in turns"))
    _snapshot(names.add_parser("snapshot", help="how long a snapshot holds up a task, by state"))
    return main


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--parallelism", type=count, default=2)
    command.add_argument("--host", choices=["ray", "local"], default="ray")
    command.add_argument("--json", action="store_true", help="JSON lines instead of text")


def _measured(command: argparse.ArgumentParser) -> None:
    command.add_argument("--events", type=count, help="default: as many as take some seconds")
    command.add_argument("--checkpoint-interval", type=positive, metavar="SECONDS")
    command.add_argument("--runs", type=count, default=1, help="the line is that of the median run")
    command.add_argument(
        "--verify", action="store_true", help="first compare the output with the reference's"
    )
    _stream(command)
    _common(command)


def _stream(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--whole-stream",
        action="store_true",
        help="Nexmark queries read one stream of all kinds, not only the kinds they need",
    )


def _latency(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.latency)
    command.add_argument("--rate", type=count, default=10_000, help="records per second")
    command.add_argument("--seconds", type=positive, default=10.0)
    command.add_argument(
        "--buffer-timeout", type=milliseconds, metavar="MS", help="default: the engine's"
    )
    command.add_argument(
        "--overload",
        action="store_true",
        help="for a third of the time offer twice what can be done, then RATE again",
    )
    _common(command)


def _before_after(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.before_after, json=True)
    command.add_argument("--base", required=True, metavar="REV", help="what to compare with")
    command.add_argument(
        "--benchmarks",
        default="all",
        help=f"all, {', '.join(GROUPS)}, or names with commas; {WHOLE}q5 is q5 --whole-stream",
    )
    command.add_argument("--events", type=count, help="default: as many as take some seconds")
    command.add_argument("--rounds", type=count, default=3, help="runs of each of both")
    command.add_argument("--seconds", type=positive, default=10.0, help="of latency")
    command.add_argument("--kills", type=count, default=3, help="of recovery")
    command.add_argument("--limit", type=positive, default=600.0, help="seconds for one run")
    command.add_argument(
        "--out", metavar="FILE", help="append the lines to FILE; the table is of all in it"
    )
    command.add_argument("--parallelism", type=count, default=2)
    command.add_argument("--host", choices=["ray", "local"], default="ray")


def _snapshot(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.snapshot, columns=commands.SNAPSHOT_COLUMNS)
    command.add_argument("--keys", type=count, default=1_000_000)
    command.add_argument("--rounds", type=count, default=5, help="snapshots of each")
    command.add_argument(
        "--states", default="all", help=f"all, or names with commas: {','.join(STATES)}"
    )
    command.add_argument("--json", action="store_true", help="JSON lines instead of a table")


def _compare(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=commands.compare)
    command.add_argument("peer", choices=sorted(PEERS))
    command.add_argument("--queries", help="names with commas; default: all that the peer has")
    command.add_argument(
        "--peers", metavar="DIR", help="folder of the peers' scripts ($STROM_PEERS)"
    )
    command.add_argument("--work", metavar="DIR", help="folder of their environments ($PEERS_WORK)")
    command.add_argument("--events", type=count, help="default: as many as take some seconds")
    command.add_argument("--peer-events", type=count, help="default: what its scripts choose")
    command.add_argument("--runs", type=count, default=3, help="each of both, in turns")
    _stream(command)
    _common(command)


def main() -> None:
    options = parser().parse_args()
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


def run(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """The result lines of one command, as they come."""
    lines: Iterable[dict[str, Any]] = options.run(options)
    return lines


def show(line: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(line), flush=True)
    else:
        print("  ".join(f"{name}={value}" for name, value in line.items()), flush=True)


def show_row(line: dict[str, Any], columns: Sequence[str]) -> None:
    """One row of a table, the first column's text to the left, numbers to the right."""
    first, *others = ("-" if line[name] is None else line[name] for name in columns)
    print(f"{first:<24}" + "".join(f"{other!s:>14}" for other in others), flush=True)

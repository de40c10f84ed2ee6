"""The command line: `python -m benchmarks NAME [options]`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from .measure import Setting, measure
from .workloads import WORKLOADS

DEFAULT_EVENTS = {"wordcount": 4_000_000}
EVENTS = 20_000_000


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = main.add_subparsers(dest="name", required=True)
    for name, workload in WORKLOADS.items():
        command = commands.add_parser(name, help=(workload.__doc__ or "").strip().splitlines()[0])
        command.add_argument("--events", type=int, default=DEFAULT_EVENTS.get(name, EVENTS))
        _common(command)
        command.add_argument("--checkpoint-interval", type=float, metavar="SECONDS")
        command.add_argument("--runs", type=int, default=1, help="print a line for each of N runs")
        command.add_argument(
            "--verify", action="store_true", help="first compare the output with the reference's"
        )
    latency = commands.add_parser("latency", help="delay through a keyed stage at a given rate")
    latency.add_argument("--rate", type=int, default=10_000, help="records per second")
    latency.add_argument("--seconds", type=float, default=10.0)
    _common(latency)
    recovery = commands.add_parser("recovery", help="SIGKILL a task, time until all run again")
    recovery.add_argument("--kills", type=int, default=3)
    _common(recovery)
    return main


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--parallelism", type=int, default=2)
    command.add_argument("--host", choices=["ray", "local"], default="ray")
    command.add_argument("--json", action="store_true", help="one JSON line instead of text")


def main() -> None:
    options = parser().parse_args()
    for line in run(options):
        show(line, options.json)


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The result lines of one command."""
    if options.name == "latency":
        from .latency import measure_latency

        return [measure_latency(options.rate, options.seconds, options.parallelism, options.host)]
    if options.name == "recovery":
        from .recovery import measure_recovery

        return [measure_recovery(options.kills, options.parallelism)]
    setting = Setting(
        options.name,
        options.events,
        options.parallelism,
        options.host,
        options.checkpoint_interval,
    )
    verified = _verify(setting) if options.verify else {}
    return [{**measure(setting).line(), **verified} for _ in range(options.runs)]


def _verify(setting: Setting) -> dict[str, Any]:
    """What to add to each line. Ends the program if the output is wrong."""
    from .verify import WrongOutput, verify

    try:
        events = verify(setting)
    except WrongOutput as error:
        raise SystemExit(f"wrong output: {error}") from error
    return {"verified": True, "verified_events": events}


def show(line: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(line), flush=True)
    else:
        print("  ".join(f"{name}={value}" for name, value in line.items()), flush=True)

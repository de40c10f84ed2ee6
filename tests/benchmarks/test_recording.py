"""What `recording` measures, with a job so small that it takes no time."""

from __future__ import annotations

from strom.benchmarks import cli


def test_the_command() -> None:
    arguments = "recording --host local --events 100000 --parallelism 1 --json"
    lines = list(cli.run(cli.parser().parse_args(arguments.split())))
    ways = [(line["records"], line["recorded"]) for line in lines]
    assert ways == [(kind, on) for kind in ("columns", "objects") for on in (False, True)]
    assert all(line["events_per_s"] > 0 for line in lines)

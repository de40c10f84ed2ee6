"""What `unaligned` measures, with a job so small that it takes no time."""

from __future__ import annotations

from strom.benchmarks import cli


def test_the_command() -> None:
    """Only those that overtake have records in flight."""
    arguments = "unaligned --host local --events 400000 --rate 400000 --interval 0.1 --json"
    lines = {line["way"]: line for line in cli.run(cli.parser().parse_args(arguments.split()))}
    assert list(lines) == ["off", "aligned", "timeout", "unaligned"]
    assert lines["off"]["checkpoints"] == 0
    assert lines["aligned"].get("in_flight_mb", 0) == 0
    assert lines["unaligned"]["checkpoints"] > 0
    assert lines["unaligned"]["in_flight_mb"] > 0

"""What `observe` measures: a job in each way, and ratios within rounds."""

from __future__ import annotations

from typing import Any

import pytest
from strom.benchmarks import cli, observe
from strom.benchmarks.accounted import accounted
from strom.benchmarks.measure import Run, Setting
from strom.benchmarks.observe import WAYS, summary, turned


def figures(rate: int, cpu: float) -> Run:
    return Run(1.0, rate, cpu, 0.0, 1, 1, 1, 1, 0.0)


def test_ratios_are_of_one_round() -> None:
    taken = {
        "off": [figures(100, 1.0), figures(200, 2.0), figures(400, 4.0)],
        "on": [figures(99, 1.1), figures(200, 2.0), figures(200, 4.0)],
    }
    shares = {"off": [0.0] * 3, "on": [0.002, 0.001, 0.003]}
    line = summary(Setting("kstate", 10), taken, shares)
    assert line["on"] == {"speed": 0.99, "worst_round": 0.5, "cpu": 1.0, "share": 0.002}
    assert (line["events_per_s_off"], line["rounds"]) == (200, 3)


def test_calls_within_others_count_once() -> None:
    class Nested:
        def outer(self) -> int:
            return self.inner() + 1

        def inner(self) -> int:
            return sum(range(200_000))

    before = Nested.outer
    with accounted([(Nested, "outer"), (Nested, "inner")]) as account:
        Nested().outer()
        Nested().inner()
    assert account.calls == 2
    assert account.seconds > 0
    assert Nested.outer is before


def test_each_way_begins_a_round() -> None:
    ways = list(WAYS)
    rounds = [turned(ways, number) for number in range(len(ways))]
    assert [order[0] for order in rounds] == ways
    assert all(sorted(order) == sorted(ways) for order in rounds)


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "READ_S", 0.01)
    words = ["observe", "--workloads", "kstate", "--events", "200000", "--rounds", "1"]
    words += ["--host", "local", "--parallelism", "1", "--json"]
    (line,) = cli.run(cli.parser().parse_args(words))
    assert (line["name"], line["workload"], line["rounds"]) == ("observe", "kstate", 1)
    for way in ("on", "read", "dashboard", "markers"):
        told: dict[str, Any] = line[way]
        assert told["speed"] > 0
        assert told["worst_round"] == told["speed"]
        assert 0 < told["share"] < 1
    with pytest.raises(SystemExit, match="no workload"):
        list(cli.run(cli.parser().parse_args(["observe", "--workloads", "nothing"])))

"""What `ttl` measures: every case runs with and without a time to live, and stays flat."""

from __future__ import annotations

from typing import Any

import pytest
from strom.benchmarks import cli, ttl
from strom.benchmarks.ttl import BLOCK, CASES, SAMPLES, run, summary


@pytest.mark.parametrize("case", CASES)
def test_a_case_holds_what_lives(case: str) -> None:
    events = BLOCK * SAMPLES * 2
    line = run(case, events, True)
    assert len(line["keys"]) == len(line["rss_mb"]) == SAMPLES
    assert line["records_per_s"] > 0
    assert 0 < line["keys"][-1] <= max(line["keys"][:4]) * 1.1


def figures(rate: int, keys: list[int], rss: list[int]) -> dict[str, Any]:
    return {"records_per_s": rate, "slowest_batch_ms": 1.0, "keys": keys, "rss_mb": rss}


@pytest.mark.parametrize(
    ("keys", "rss", "flat"),
    [
        ([10] * 8, [50] * 8, True),
        ([10] * 7 + [20], [50] * 8, False),
        ([10] * 8, [50] * 7 + [60], False),
    ],
)
def test_the_line(keys: list[int], rss: list[int], flat: bool) -> None:
    without = [figures(200, [], [50] * 8), figures(100, [], [60] * 8)]
    line = summary(without, [figures(90, keys, rss), figures(90, keys, rss)])
    assert (line["records_per_s"], line["records_per_s_without"], line["ratio"]) == (90, 150, 0.6)
    assert line["flat"] is flat


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ttl, "in_a_process", lambda case, events, w: run(case, events, w))
    words = ["ttl", "--cases", "sum", "--events", str(BLOCK * SAMPLES), "--rounds", "1", "--json"]
    (line,) = cli.run(cli.parser().parse_args(words))
    assert (line["name"], line["case"], line["rounds"]) == ("ttl", "sum", 1)
    assert "error" not in line
    with pytest.raises(SystemExit, match="no case"):
        list(cli.run(cli.parser().parse_args(["ttl", "--cases", "nothing"])))

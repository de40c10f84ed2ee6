"""The connectors' suite: what it puts into topics, how lines are judged, what ends the program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strom import ConfigurationError
from strom.benchmarks import cli
from strom.benchmarks.commands import parts
from strom.benchmarks.connectors import kafka_count, peers, suite
from strom.benchmarks.connectors.lines import WrongResult, at_least, at_most, expect, rates
from strom.benchmarks.connectors.topics import KEYS, keys, objects, values


def test_values_are_numbered_and_of_one_size() -> None:
    made = values(998, 3, 20).to_pylist()
    assert made == [b"%012dxxxxxxxx" % n for n in (998, 999, 1000)]


def test_objects_are_json_of_one_size() -> None:
    made = objects(95, 10, 100).to_pylist()
    assert {len(text) for text in made} == {100}
    rows = [json.loads(text) for text in made]
    assert [row["id"] for row in rows] == list(range(95, 105))
    assert [row["price"] for row in rows] == [n / 8 for n in range(95, 105)]


def test_keys_are_those_that_are_expected() -> None:
    drawn = [int(key[-7:]) for key in keys(0, 1_000).to_pylist()]
    assert np.array_equal(np.bincount(drawn, minlength=KEYS), kafka_count.expected(1_000))


def test_lines_are_judged() -> None:
    line = rates(1_000, 100, 0.5, 0.25)
    assert line["records_per_s"] == 2_000
    assert line["mb_per_s"] == 0.2
    assert line["cpu_s_per_m_records"] == 250.0
    assert at_least(line, "records_per_s", 2_000)["within"] is True
    assert at_least(line, "records_per_s", 2_001)["within"] is False
    assert at_most(line, "seconds", 0.5)["within"] is True
    assert at_most(line, "seconds", 0.4)["within"] is False
    with pytest.raises(WrongResult, match="rows: 2 instead of 3"):
        expect(2, 3, "rows")


def test_every_name_has_its_measurement() -> None:
    assert tuple(suite.MEASUREMENTS) == parts.CONNECTORS


def run(*arguments: str) -> Iterator[dict[str, Any]]:
    yield from cli.run(cli.parser().parse_args(["connectors", *arguments]))


def test_only_what_failed_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that was missed does not; what comes behind a failure is measured all the same."""

    def measured(systems: Any, amounts: suite.Amounts) -> Iterator[dict[str, Any]]:
        yield at_least({"name": "bridge", "events": amounts.events}, "events", 1_000)

    def failing(systems: Any, amounts: suite.Amounts) -> Iterator[dict[str, Any]]:
        raise WrongResult("one record is missing")
        yield

    def refused(systems: Any, amounts: suite.Amounts) -> Iterator[dict[str, Any]]:
        raise ConfigurationError("no Java")
        yield

    made = {"kafka_native": failing, "kafka_count": refused, "bridge": measured}
    monkeypatch.setattr(suite, "MEASUREMENTS", made)
    assert [line["within"] for line in run("--only", "bridge", "--events", "7")] == [False]
    lines = run("--only", "kafka_native,kafka_count,bridge", "--events", "1000")
    assert next(lines) == {"name": "kafka_native", "error": "one record is missing"}
    assert next(lines)["error"] == "no Java"
    assert next(lines)["within"] is True
    with pytest.raises(SystemExit, match="failed: kafka_native, kafka_count"):
        next(lines)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SystemExit, match=r"no connector .*kafka_naive"):
        next(run("--only", "kafka_naive"))


def test_a_peer_that_is_not_to_be_had_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    line = peers.bytewax("127.0.0.1:1", "topic", 1, str(tmp_path / "file"))
    assert "cannot be installed" in line["missing"]
    assert "records_per_s" not in line

"""What `checkpoint` measures: checkpoints that continue each other, and whole ones."""

from __future__ import annotations

import pytest
from strom.benchmarks import cli
from strom.benchmarks.checkpoint import measure_share, measure_throughput
from strom.benchmarks.configured import BACKEND, configured


def test_a_share_that_changed_is_what_is_written() -> None:
    line = measure_share(20_000, 0.01, 3, incremental=True)
    assert (line["kind"], line["keys"], line["changed"]) == ("incremental", 20_000, 0.01)
    event_time = 60_000  # a row of some hundred bytes for each key group, which is written whole
    assert line["new_bytes"] < 0.03 * line["all_bytes"] + event_time
    assert line["total_ms"] >= line["sync_ms"] > 0
    assert line["files"] == 4  # the base, two deltas, and event time
    assert line["new_bytes"] < line["all_bytes"] / 5


def test_whole_ones_are_written_whole() -> None:
    line = measure_share(5_000, 0.01, 2, incremental=False)
    assert line["kind"] == "full"
    assert line["new_bytes"] == line["all_bytes"]


def test_a_measurement_that_broke_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strom.benchmarks.apart.sys.executable", "/bin/false")
    words = ["checkpoint", "--keys", "10", "--only", "task", "--backends", "memory"]
    options = cli.parser().parse_args(words)
    with pytest.raises(SystemExit, match="failed: 10 keys, memory"):
        list(cli.run(options))


def test_the_state_is_where_it_is_said_to_be() -> None:
    with configured({BACKEND: "rocksdb"}):
        line = measure_share(2_000, 0.1, 2, incremental=True)
    assert line["backend"] == "rocksdb"
    assert line["all_bytes"] >= line["new_bytes"] > 0


def test_throughput_with_checkpoints_and_without() -> None:
    line = measure_throughput(1_000, "rocksdb", 60_000, 1, 1, "local")
    assert (line["backend"], line["keys"], line["events"]) == ("rocksdb", 1_000, 60_000)
    assert line["loss"] == round(1 - line["events_per_s"] / line["events_per_s_without"], 3)
    assert line["checkpoints"] >= 1

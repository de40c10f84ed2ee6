"""What `strom top` makes of a job's metrics."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from strom.observe.live import MAX_WATERMARK, Rates
from strom.observe.top import figures, render


def metrics(records: int = 100, watermark: int | None = 5_000, failure: str = "") -> dict[str, Any]:
    def task(vertex: str, subtask: int, busy: float, held: float) -> dict[str, Any]:
        times = {
            "busyTimeMsPerSecond": busy,
            "backPressuredTimeMsPerSecond": held,
            "idleTimeMsPerSecond": 1000 - busy - held,
        }
        common = {"vertex": vertex, "name": f"the {vertex}", "subtask": subtask}
        return {**common, "state": "running", "times": times, "peak_rss_bytes": 3_000_000}

    return {
        "state": "RUNNING",
        "restarts": 2,
        "last_failure": failure or None,
        "checkpoints": {
            "completed": 4,
            "failed": 1,
            "last_id": 5,
            "last_duration_ms": 17,
            "last_size": 12345,
        },
        "exchange": {"in_flight_bytes": 2_000_000},
        "operators": [
            {
                "id": f"o{n}",
                "name": name,
                "parallelism": 2,
                "records_in": records * n,
                "records_out": records,
                "watermark": watermark,
            }
            for n, name in enumerate(["[source]", "sums"])
        ],
        "tasks": [task("a", 0, 100, 800), task("a", 1, 300, 600), task("b", 0, 950, 0)],
    }


def shown(found: dict[str, Any]) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(render(found, "job 1"))
    return out.getvalue()


def test_rates_are_of_the_time_between_two_looks() -> None:
    rates = Rates()
    first = figures(metrics(100), rates, 10.0, 0)
    assert [one["in_per_s"] for one in first["operators"]] == [0.0, 0.0]
    again = figures(metrics(300), rates, 12.0, 0)
    assert [one["in_per_s"] for one in again["operators"]] == [0.0, 100.0]
    assert [one["out_per_s"] for one in again["operators"]] == [100.0, 100.0]
    restarted = figures(metrics(50), rates, 13.0, 0)
    assert [one["out_per_s"] for one in restarted["operators"]] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("watermark", "lag"), [(5_000, 1_000), (7_500, -1_500), (None, None), (MAX_WATERMARK, None)]
)
def test_lag_is_of_event_time_behind_the_clock(watermark: int | None, lag: int | None) -> None:
    found = figures(metrics(watermark=watermark), Rates(), 0.0, 6_000)
    assert [one["lag_ms"] for one in found["operators"]] == [lag, lag]


def test_tasks_are_means_with_the_busiest_beside() -> None:
    source, sums = figures(metrics(), Rates(), 0.0, 0)["vertices"]
    assert (source["name"], source["tasks"]) == ("the a", 2)
    assert (source["busy"], source["busy_most"]) == (pytest.approx(0.2), pytest.approx(0.3))
    assert (source["held"], source["held_most"]) == (pytest.approx(0.7), pytest.approx(0.8))
    assert source["rss_bytes"] == 6_000_000
    assert (sums["busy"], sums["idle"]) == (pytest.approx(0.95), pytest.approx(0.05))


def test_what_a_terminal_shows() -> None:
    text = shown(figures(metrics(failure="operator 'sums': boom\nTraceback"), Rates(), 0.0, 6_000))
    assert "[source]" in text  # no markup
    assert "20% (30%)" in text
    assert "1.0 s" in text
    assert "12,345" in text
    assert "last failure: operator 'sums': boom" in text
    assert "Traceback" not in text
    long_ago = shown(figures(metrics(), Rates(), 0.0, 5_000 + 3_723_000))
    assert "1:02:03" in long_ago


def test_tasks_that_have_not_reported_yet() -> None:
    told = metrics()
    told["tasks"] = [{"vertex": "a", "name": "a", "subtask": 0, "state": None}]
    (vertex,) = figures(told, Rates(), 0.0, 0)["vertices"]
    assert (vertex["busy"], vertex["rss_bytes"]) == (0.0, 0)
    assert "a" in shown(figures(told, Rates(), 0.0, 0))


def test_keys_are_said_where_one_subtask_gets_more_than_the_others() -> None:
    hot = [{"key": "[shop]", "share": 0.4, "most": 0.41, "subtask": 1}]
    even = {"name": "even", "skew": 1.2, "hot": [], "loads": [1.0]}
    skewed = {"name": "sums", "skew": 2.5, "hot": hot, "loads": [1.0]}
    found = figures({**metrics(), "keys": [even, skewed]}, Rates(), 1.0, 0)
    assert found["keys"][1] == {"name": "sums", "skew": 2.5, "hot": hot}
    text = shown(found)
    assert (
        "sums: its busiest subtask gets 2.5 times the mean; most frequent keys: [shop] (40%)"
        in text
    )
    assert "even" not in text
